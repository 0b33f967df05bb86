"""Three brokers and three members of etcd, each with a network of its own, the brokers also with a disk.

Owns their addresses and settings. Clients reach a broker through its proxy or directly; brokers reach each
other directly. Invariant: all of it has ended when the block has.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from faults.cluster.disks import LoopDisk
from faults.cluster.network import Network
from faults.etcd import running_etcd
from faults.process import BrokerProcess
from faults.proxy import FaultProxy
from faults.site import SESSION_MS, Node, Site, made
from faults.wire import Wire
from tidelog.protocol.schema import ApiKey

_BROKERS: Final = (1, 2, 3)
_MEMBERS: Final = (11, 12, 13)
_PROXIED_PORT: Final = 9092
_DIRECT_PORT: Final = 9093
METADATA_VERSION: Final = 8
_REASSIGN_VERSION: Final = 0
_ANSWER_S: Final = 3.0
_LOOK_S: Final = 0.2
_SETTLE_SECONDS: Final = 300.0


@dataclass(eq=False, kw_only=True)
class Machine(Node):
    """A broker with its network and its disk."""

    number: int
    disk: LoopDisk


@dataclass(kw_only=True)
class ClusterSite(Site):
    machines: list[Machine]
    network: Network

    @property
    def direct_address(self) -> str:
        return ",".join(f"{machine.broker.host}:{_DIRECT_PORT}" for machine in self.machines)

    @property
    def member_addresses(self) -> list[str]:
        return list(map(self.network.address, _MEMBERS))

    async def is_in_sync(self) -> bool:
        """Whether every broker runs, and says that all replicas of all partitions are in sync."""
        return all(await asyncio.gather(*map(self._says_in_sync, self.machines)))

    async def settle(self) -> None:
        async with asyncio.timeout(_SETTLE_SECONDS):
            while not await self.is_in_sync():
                await self._complete_replicas()
                await asyncio.sleep(_LOOK_S)

    async def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Ask one broker after the other until one has accepted it."""
        wanted = {"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}
        for broker in self.brokers:
            with suppress(OSError, EOFError):
                values = {"timeout_ms": 1000, "topics": [wanted]}
                answer = await ask(broker, ApiKey.ALTER_PARTITION_REASSIGNMENTS, _REASSIGN_VERSION, values)
                if not answer.error_code and not answer.responses[0].partitions[0].error_code:
                    return

    async def _complete_replicas(self) -> None:
        """A request that takes a partition from a broker, and got no answer, may be carried out after the
        request that gives it back."""
        everywhere = [machine.number for machine in self.machines]
        with suppress(OSError, EOFError):
            metadata = await ask(self.brokers[0], ApiKey.METADATA, METADATA_VERSION, {"topics": None})
            for topic in metadata.topics:
                for partition in topic.partitions:
                    if len(partition.replica_nodes) < len(everywhere):
                        await self.reassign(topic.name, partition.partition_index, everywhere)

    async def _says_in_sync(self, machine: Machine) -> bool:
        try:
            metadata = await ask(machine.broker, ApiKey.METADATA, METADATA_VERSION, {"topics": None})
        except (OSError, EOFError):
            return False
        return all(
            len(partition.isr_nodes) == self.replicas and partition.leader_id >= 0
            for topic in metadata.topics
            for partition in topic.partitions
        )


async def ask(broker: BrokerProcess, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
    """One request. Raises OSError (TimeoutError among them) and EOFError."""
    async with asyncio.timeout(_ANSWER_S), Wire.connected(broker.port, broker.host) as wire:
        return await wire.ask(key, version, values)


@asynccontextmanager
async def cluster_site(
    folder: Path, broker_settings: Mapping[str, object], sync_delay_ms: int, thread_share: float
) -> AsyncIterator[ClusterSite]:
    """Running brokers with their folders in `folder`. Raises BrokerProcessError where it cannot be made."""
    disk = str(sync_delay_ms), str(thread_share)
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(Network((*_BROKERS, *_MEMBERS)))
        places = [(network.address(host), network.inside(host)) for host in _MEMBERS]
        members = await stack.enter_async_context(running_etcd(made(folder), len(_MEMBERS), machines=places))
        shared = {"cluster.store": members.store, **_SETTINGS, **broker_settings}
        machines = []
        for number in _BROKERS:
            machine = await _machine(stack, made(folder / f"broker-{number}"), number, network, shared, disk)
            machines.append(machine)
        await asyncio.gather(*(machine.broker.start() for machine in machines))
        try:
            yield ClusterSite(
                machines, members, replicas=3, reading_rack=_rack(1), machines=machines, network=network
            )
        finally:
            for machine in machines:
                machine.journal.with_name("log").write_text("\n".join(machine.broker.log_lines))


_SETTINGS: Final[Mapping[str, object]] = {
    "broker.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": 2 * SESSION_MS,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "listener.security.protocol.map": "PROXIED:PLAINTEXT,DIRECT:PLAINTEXT",
    "inter.broker.listener.name": "DIRECT",
    "replica.selector.class": "RackAwareReplicaSelector",
}


def _rack(number: int) -> str:
    return f"rack-{number}"


async def _machine(
    stack: AsyncExitStack,
    folder: Path,
    number: int,
    network: Network,
    shared: Mapping[str, object],
    disk: tuple[str, str],
) -> Machine:
    """With a broker that has not started yet."""
    host, journal = network.address(number), folder / "synced"
    own_disk = LoopDisk(folder)
    stack.push_async_callback(own_disk.close)
    await own_disk.make()
    proxy = await stack.enter_async_context(FaultProxy(host, _PROXIED_PORT))
    settings = {
        "node.id": number,
        "broker.rack": _rack(number),
        "listeners": f"PROXIED://{host}:{_PROXIED_PORT},DIRECT://{host}:{_DIRECT_PORT}",
        "advertised.listeners": f"PROXIED://{proxy.host}:{proxy.port},DIRECT://{host}:{_DIRECT_PORT}",
        **shared,
    }
    command = (*network.inside(number), sys.executable, "-m", "faults.honest_disk", str(journal), *disk)
    data_dir = own_disk.mounted / "data"
    broker = BrokerProcess(data_dir, settings=settings, command=command)
    broker.host = host
    stack.push_async_callback(broker.kill_9)
    return Machine(broker, proxy, data_dir, journal, number=number, disk=own_disk)
