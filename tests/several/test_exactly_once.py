"""Processors over several brokers, each of which is killed in turn: every record counts once.

The group, the transactions and the partitions are on different brokers, so each kill hits other parts of a
transaction: its coordinator, the group's, a leader.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faults.etcd import running_etcd
from faults.process import BrokerProcess
from tests.conformance.test_client_transactions import committed as committed_of
from tests.several.brokers import Brokers
from tests.several.processes import QUICK as FEW
from tests.several.processes import processes
from tests.several.test_coordinators import PARTITIONS, coordinated_by
from tests.several.test_transactions import cluster, committed, versions
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.cluster.catalog import TRANSACTIONS_TOPIC
from tidelog.client import Admin, Consumer, NewTopic, Producer
from tidelog.client.errors import ClientError

__all__ = ["cluster", "versions"]
RECORDS = 40
"""For each broker that is killed."""
QUICK: dict[str, Any] = {"retry_backoff_ms": 10}


async def fill(addresses: str, records: range) -> None:
    async with Producer(bootstrap_servers=addresses, enable_idempotence=True, linger_ms=0, **QUICK) as source:
        for number in records:
            await source.send("in", b"%d" % number, partition=number % PARTITIONS)


async def process(addresses: str, group: str, name: str, done: Counter[str]) -> None:
    """Copy records in transactions until cancelled; after an error as a new process would."""
    while True:
        try:
            async with (
                Producer(bootstrap_servers=addresses, transactional_id=name, **QUICK) as writer,
                Consumer(
                    "in",
                    bootstrap_servers=addresses,
                    group_id=group,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    isolation_level="read_committed",
                    fetch_max_wait_ms=20,
                    max_poll_records=10,
                    session_timeout_ms=6_000,
                    **QUICK,
                ) as reader,
            ):
                while True:
                    found = await reader.getmany(timeout_ms=100)
                    if not found:
                        continue
                    await writer.begin_transaction()
                    for records in found.values():
                        for record in records:
                            await writer.send("out", record.value, partition=record.partition)
                    offsets = {where: records[-1].offset + 1 for where, records in found.items()}
                    await writer.send_offsets_to_transaction(offsets, reader.group_metadata())
                    await writer.commit_transaction()
                    done[name] += 1
        except ClientError:
            continue


async def read_committed(addresses: str, topic: str, partitions: int) -> list[bytes]:
    """See `committed` there; it wants something that has addresses."""
    return await committed_of(SimpleNamespace(bootstrap_servers=addresses), topic, partitions)  # type: ignore[arg-type]


async def copy_while(
    addresses: str, group: str, names: Sequence[str], kills: Sequence[Callable[[], Awaitable[None]]]
) -> list[int]:
    """Two processors copy records of ours; each of `kills` comes while some are copied. What was sent."""
    done: Counter[str] = Counter()
    processors = [asyncio.create_task(process(addresses, group, name, done)) for name in names]
    for turn, kill in enumerate(kills):
        before = done.total()
        filling = asyncio.create_task(fill(addresses, range(turn * RECORDS, (turn + 1) * RECORDS)))
        await until(lambda: done.total() > before)  # noqa: B023
        await kill()
        await filling
    total = len(kills) * RECORDS
    async with Admin(bootstrap_servers=addresses, **QUICK) as admin, asyncio.timeout(DEADLINE_SECONDS):
        while sum(each.offset for each in (await admin.groups.offsets(group)).values()) < total:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for task in processors:
        task.cancel()
    await asyncio.wait(processors)
    return list(range(total))


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize("versions", ["one epoch"], indirect=True)
async def test_every_record_is_copied_once_whichever_broker_is_killed(cluster: Brokers) -> None:
    async def kill(victim: int) -> None:
        await cluster.kill(victim)
        await cluster.start(victim)

    group = coordinated_by(cluster, 2)
    names = [coordinated_by(cluster, node_id, TRANSACTIONS_TOPIC) for node_id in (1, 3)]
    kills = [partial(kill, victim) for victim in (1, 2, 3)]
    expected = await copy_while(cluster.bootstrap_servers, group, names, kills)
    assert sorted(await committed(cluster, "out", len(expected))) == expected


async def test_every_record_is_copied_once_whichever_process_is_killed(tmp_path: Path) -> None:
    async with processes(tmp_path / "data", 3) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name, PARTITIONS, 1, {}) for name in ("in", "out")])
        kills = [partial(broker.kill_and_await, process) for process in sorted(broker.pids())]
        expected = await copy_while(broker.bootstrap_servers, "group", ["a", "b"], kills)
        copied = await read_committed(broker.bootstrap_servers, "out", PARTITIONS)
        assert sorted(map(int, copied)) == expected
        assert await broker.stop() == 0


@pytest.mark.needs_etcd
async def test_every_record_is_copied_once_whichever_broker_over_etcd_is_killed(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        members = await stack.enter_async_context(running_etcd(tmp_path))
        started = []
        for node_id in (1, 2, 3):
            settings = {**FEW, "node.id": node_id, "cluster.store": f"etcd:{members.endpoints[0]}"}
            broker = BrokerProcess(tmp_path / f"broker-{node_id}", settings=settings)
            await broker.start()
            stack.push_async_callback(broker.kill_9)
            started.append(broker)
        addresses = ",".join(f"127.0.0.1:{broker.port}" for broker in started)
        async with Admin(bootstrap_servers=addresses) as admin:
            await admin.create_topics([NewTopic(name, PARTITIONS, 1, {}) for name in ("in", "out")])

        async def kill(broker: BrokerProcess) -> None:
            await broker.kill_9()
            await broker.start()

        kills = [partial(kill, broker) for broker in started]
        expected = await copy_while(addresses, "group", ["a", "b"], kills)
        copied = await read_committed(addresses, "out", PARTITIONS)
        assert sorted(map(int, copied)) == expected
