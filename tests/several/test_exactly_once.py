"""Processors over several brokers, each of which is killed in turn: every record counts once.

The group, the transactions and the partitions are on different brokers, so each kill hits other parts of a
transaction: its coordinator, the group's, a leader.
"""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.several.brokers import Brokers
from tests.several.test_coordinators import PARTITIONS, coordinated_by
from tests.several.test_transactions import cluster, committed, versions
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.cluster.catalog import TRANSACTIONS_TOPIC
from tidelog.client import Admin, Consumer, Producer
from tidelog.client.errors import ClientError

__all__ = ["cluster", "versions"]
RECORDS = 90
"""For each broker that is killed."""
QUICK: dict[str, Any] = {"retry_backoff_ms": 10}


async def fill(cluster: Brokers, records: range) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, linger_ms=0, **QUICK
    ) as source:
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


@pytest.mark.usefixtures("versions")
async def test_every_record_is_copied_once_whichever_broker_is_killed(cluster: Brokers) -> None:
    addresses = cluster.bootstrap_servers
    group = coordinated_by(cluster, 2)
    names = [coordinated_by(cluster, node_id, TRANSACTIONS_TOPIC) for node_id in (1, 3)]
    done: Counter[str] = Counter()
    processors = [asyncio.create_task(process(addresses, group, name, done)) for name in names]
    for turn, victim in enumerate((1, 2, 3)):
        before = done.total()
        filling = asyncio.create_task(fill(cluster, range(turn * RECORDS, (turn + 1) * RECORDS)))
        await until(lambda: done.total() > before)  # noqa: B023
        await cluster.kill(victim)
        await cluster.start(victim)
        await filling
    async with Admin(bootstrap_servers=addresses, **QUICK) as admin, asyncio.timeout(DEADLINE_SECONDS):
        while sum(each.offset for each in (await admin.groups.offsets(group)).values()) < 3 * RECORDS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for task in processors:
        task.cancel()
    await asyncio.wait(processors)
    assert sorted(await committed(cluster, "out", 3 * RECORDS)) == list(range(3 * RECORDS))
