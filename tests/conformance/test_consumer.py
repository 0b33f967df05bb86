"""Our consumer against our broker: sessions that are kept and ended, and a topic that is made again."""

import asyncio
from typing import Any

import pytest

from tests.conformance.client_site import FIRST, TOPIC, Site
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import OffsetOutOfRangeError, TopicPartition


async def test_a_session_reads_many_partitions_through_a_restart_and_cut_connections(site: Site) -> None:
    await site.create(20)
    async with site.consumer(TOPIC) as consumer, site.producer() as producer:
        for turn in range(4):
            for index in range(20):
                await producer.send(TOPIC, b"%d" % turn, partition=index)
            await producer.flush()
            found: dict[TopicPartition, list[object]] = {}
            while sum(map(len, found.values())) < 20:
                for key, records in (await consumer.getmany(timeout_ms=5_000)).items():
                    found.setdefault(key, []).extend(record.value for record in records)
            expected = {TopicPartition(TOPIC, index): [b"%d" % turn] for index in range(20)}
            assert found == expected
            if turn == 1:
                site.proxy.cut_connections()
            if turn == 2:
                await site.restart()


async def test_an_assignment_made_while_positions_of_another_are_sought_is_read(site: Site) -> None:
    await site.create(1)
    async with site.producer() as producer:
        await producer.send_and_wait(TOPIC, b"0")
    async with site.consumer(auto_offset_reset="earliest") as consumer, asyncio.timeout(DEADLINE_SECONDS):
        consumer.assign([TopicPartition("missing", 0)])
        await until(lambda: consumer._fetcher._tasks)  # type: ignore[union-attr]
        consumer.assign([FIRST])
        assert (await consumer.getone()).value == b"0"


@pytest.mark.parametrize(
    ("policy", "is_subscribed", "group"),
    [
        ("earliest", False, {}),
        ("none", False, {}),
        ("earliest", True, {}),
        ("earliest", True, {"group_id": "classic"}),
        ("earliest", True, {"group_id": "kip-848", "group_protocol": "consumer"}),
    ],
    ids=str,
)
async def test_a_position_is_lost_with_its_topic_though_a_new_one_has_the_same_name(
    site: Site, policy: str, is_subscribed: bool, group: dict[str, Any]
) -> None:
    async def write(*values: bytes) -> None:
        async with site.producer() as producer:
            for value in values:
                await producer.send_and_wait(TOPIC, value)

    old, new = ([b"%s %d" % (kind, number) for number in range(5)] for kind in (b"old", b"new"))
    await site.create()
    await write(*old[:3])
    settings: dict[str, Any] = {"fetch_max_wait_ms": 60_000, "auto_commit_interval_ms": 10, **group}
    consumer = site.consumer(*[TOPIC] * is_subscribed, auto_offset_reset=policy, **settings)
    async with consumer, site.admin() as admin, asyncio.timeout(DEADLINE_SECONDS):
        if not is_subscribed:
            consumer.assign([FIRST])
            consumer.seek(FIRST, 0)
        assert [(await consumer.getone()).value for _ in range(3)] == old[:3]
        waiting_read = asyncio.create_task(consumer.getone())
        await admin.delete_topics([TOPIC])
        await site.create()
        await write(*new)
        if policy == "none":
            with pytest.raises(OffsetOutOfRangeError, match="created again"):
                await waiting_read
            consumer.seek(FIRST, 0)
            waiting_read = asyncio.create_task(consumer.getone())
        assert [(await waiting_read).value, *[(await consumer.getone()).value for _ in range(4)]] == new
