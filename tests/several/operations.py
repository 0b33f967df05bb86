"""The runbooks of `docs/cluster-operations.md` over real brokers and a real etcd, while clients write and
read.

`make cluster` runs it: it takes minutes. Applications of several projects, with their defaults, must get no
error, and nothing may be lost, stored twice or reordered.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from faults.etcd import running_etcd
from faults.process import BrokerProcess
from tests.deadline import deadline
from tests.several.applications import CLIENTS, applications, make_topics
from tests.several.processes import QUICK
from tests.several.runbooks import Operator
from tidelog.client import Admin

# kafka-python 3.0 loses the end of a transaction for ever when the port of its coordinator refuses it.
THOSE_THAT_SURVIVE_KILLS = ("tidelog", "aiokafka", "librdkafka")

SECONDS = 3_000.0


class Machines:
    """Brokers 1 to 4, each on a port and in a folder of its own; those that were started run."""

    def __init__(self, folder: Path, store: str) -> None:
        settings = {
            **QUICK,
            "cluster.store": f"etcd:{store}",
            "broker.session.timeout.ms": 3_000,
            "leader.imbalance.check.interval.seconds": 2,
            # On a busy machine kafka-python hears later who leads now, and it must not meet a refused port.
            "shutdown.linger.ms": 30_000,
        }
        self.folder = folder
        self.broker = {
            number: BrokerProcess(folder / f"broker-{number}", settings={**settings, "node.id": number})
            for number in (1, 2, 3, 4)
        }

    async def start(self, *numbers: int) -> str:
        """Start these; the addresses of all that were started."""
        for number in numbers:
            await self.broker[number].start()
        return ",".join(self.addresses())

    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{each.port}" for each in self.broker.values() if each.port]

    def operator(self, without: int = 0) -> Operator:
        named = [f"127.0.0.1:{each.port}" for n, each in self.broker.items() if each.port and n != without]
        return Operator(self.folder, named)


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    async with running_etcd(tmp_path) as etcd:
        made = Machines(tmp_path, ",".join(etcd.endpoints))
        try:
            yield made
        finally:
            for broker in made.broker.values():
                await broker.kill_9()
        assert [each for broker in made.broker.values() for each in broker.events("partition_offline")] == []


async def replicas(address: str) -> set[tuple[int, ...]]:
    """The replicas of all partitions, each sorted."""
    async with Admin(bootstrap_servers=address) as admin:
        topics = await admin.describe_topics()
    return {tuple(sorted(each.replicas)) for topic in topics for each in topic.partitions}


async def test_brokers_restart_one_by_one_without_an_error_at_any_client(machines: Machines) -> None:
    for broker in machines.broker.values():
        broker.settings["min.insync.replicas"] = 2
    address = await machines.start(1, 2, 3)
    await make_topics(address, CLIENTS, 3)
    with deadline("the restarts", SECONDS), applications(address) as running:
        await running.go_on()
        for _ in range(2):
            for number in (1, 2, 3):
                operator = machines.operator(without=number)
                await operator.follow("Restart brokers, or upgrade them", machines.broker[number])
                await running.go_on()
        await running.end(address)


async def test_a_cluster_grows_loses_a_disk_and_gets_another_broker_while_clients_write(
    machines: Machines,
) -> None:
    address = await machines.start(1)
    await make_topics(address, THOSE_THAT_SURVIVE_KILLS, 1)
    with deadline("the runbooks", SECONDS), applications(address, THOSE_THAT_SURVIVE_KILLS) as running:
        await running.go_on()
        address = await machines.start(2, 3)
        await machines.operator().follow("Grow from one broker to three", machines.broker[1])
        assert await replicas(address) == {(1, 2, 3)}
        await running.go_on()

        await machines.broker[1].kill_9()
        await running.go_on()
        await machines.broker[1].start()

        await machines.broker[2].kill_9()
        await machines.operator(without=2).follow("Replace a disk", machines.broker[2])
        await running.go_on()

        address = await machines.start(4)
        await machines.operator(without=3).follow("Remove a broker for ever", machines.broker[3])
        assert await replicas(address) == {(1, 2, 4)}
        await running.go_on()
        await running.end(address)
    async with Admin(bootstrap_servers=address) as admin:
        assert [each.node_id for each in (await admin.describe_cluster()).brokers] == [1, 2, 4]
