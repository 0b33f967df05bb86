"""One consumer's group: its commits, and what happens around its callbacks."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tidelog.client import (
    ClientError,
    ClusterConfig,
    ConsumerRecord,
    OffsetAndMetadata,
    RequestTimeoutError,
    TimestampType,
    TopicPartition,
)
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.consumer.config import ConsumerConfig
from tidelog.client.consumer.group import Group
from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.client.consumer.progress import Progress
from tidelog.client.groups.steps import Join, Sync
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster import Cluster

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Offsets:
    """Takes commits; each waits until it is let through."""

    def __init__(self) -> None:
        self.arrived: list[dict[TopicPartition, int]] = []
        self.stored: dict[TopicPartition, int] = {}
        self.gate = asyncio.Event()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        plain = {key: each.offset for key, each in offsets.items()}
        self.arrived.append(plain)
        await self.gate.wait()
        self.stored |= plain


def made(
    offsets: Offsets, positions: Mapping[TopicPartition, int], **settings: Any
) -> tuple[Group, Progress]:
    readers = {key: PartitionReader(key, check_crc=True) for key in positions}
    for key, position in positions.items():
        readers[key].seek(position)
    progress = Progress()

    def read(partitions: frozenset[TopicPartition]) -> None:
        kept = {key: readers.get(key) or PartitionReader(key, check_crc=True) for key in partitions}
        readers.clear()
        readers.update(kept)

    group = Group(
        ConsumerConfig(group_id="g", **settings),
        Cluster(ClusterConfig(), ASKED_APIS),
        readers,
        progress,
        read=read,
        fetch_more=lambda: None,
        on_data=lambda: None,
    )
    group.offsets = offsets  # type: ignore[assignment]
    return group, progress


async def test_a_commit_that_takes_long_does_not_come_after_a_later_one() -> None:
    offsets = Offsets()
    group, _ = made(offsets, {KEY: 10})
    readers = group._readers
    slow = asyncio.create_task(group._commit_finished(frozenset(readers)))
    await asyncio.sleep(0)
    readers[KEY].seek(20)
    later = asyncio.create_task(group._commit_finished(frozenset(readers)))
    by_hand = asyncio.create_task(group.commit({KEY: OffsetAndMetadata(15)}))
    await asyncio.sleep(0)
    assert offsets.arrived == [{KEY: 10}]
    offsets.gate.set()
    await asyncio.gather(slow, later, by_hand)
    assert offsets.arrived == [{KEY: 10}, {KEY: 20}, {KEY: 15}]
    assert offsets.stored == {KEY: 15}


async def test_an_automatic_commit_covers_what_is_finished_and_is_new() -> None:
    offsets = Offsets()
    offsets.gate.set()
    group, progress = made(offsets, {KEY: 10, OTHER: 5})
    progress.returned = ConsumerRecord("t", 0, 9, 0, TimestampType.CREATE_TIME, None, b"", (), -1, 0, -1)
    await group._commit_finished(frozenset({KEY, OTHER}))
    progress.finish()
    await group._commit_finished(frozenset({KEY, OTHER}))
    await group._commit_finished(frozenset({KEY, OTHER}))
    assert offsets.arrived == [{KEY: 9, OTHER: 5}, {KEY: 10}, {}]


class Remembering:
    """A listener that remembers its calls, and does `meanwhile` in `on_partitions_assigned`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.meanwhile: Any = lambda: None

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append("assigned")
        self.meanwhile()

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.calls.append("lost")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_what_the_group_takes_away_while_the_callback_runs_is_not_read(protocol: str) -> None:
    group, _ = made(Offsets(), {}, group_protocol=protocol)
    group.listener = listener = Remembering()
    membership = group.membership
    listener.meanwhile = lambda: membership.heartbeat_answered(
        membership.identity, ErrorCode.UNKNOWN_MEMBER_ID
    )
    await group._take_over(frozenset({KEY, OTHER}))
    assert not membership.owned
    assert not group._readers
    assert listener.calls == ["assigned", "lost"]


async def test_new_partitions_are_not_read_before_their_callback_though_others_are_revoked_meanwhile() -> (
    None
):
    group, _ = made(Offsets(), {KEY: 1})
    group.membership.owned = frozenset({KEY})
    group.listener = listener = Remembering()
    stopped: list[set[TopicPartition]] = []

    def revoke() -> None:
        group.membership.heartbeat_answered(group.membership.identity, ErrorCode.UNKNOWN_MEMBER_ID)
        group._react()
        stopped.append({key for key, reader in group._readers.items() if reader.is_suspended})

    listener.meanwhile = revoke
    await group._take_over(frozenset({OTHER}))
    assert stopped == [{KEY, OTHER}]


async def test_what_a_callback_was_told_is_taken_back_though_the_stop_interrupts_it() -> None:
    class Slow(Remembering):
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:  # type: ignore[override]
            self.calls.append("assigned")
            await asyncio.Event().wait()

        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            self.calls.append(f"revoked {sorted(revoked)}")

    offsets = Offsets()
    offsets.gate.set()
    group, _ = made(offsets, {})
    group.listener = listener = Slow()
    group._tasks = [asyncio.create_task(group._take_over(frozenset({KEY})))]
    await asyncio.sleep(0)
    await group.close()
    assert listener.calls == ["assigned", f"revoked {[KEY]}"]


async def test_a_callback_that_waits_for_a_cancelled_task_does_not_end_the_group() -> None:
    group, _ = made(Offsets(), {KEY: 1})

    class Listener:
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            worker = asyncio.create_task(asyncio.Event().wait())
            worker.cancel()
            await worker

    group.listener = Listener()
    await group._call_back("on_partitions_revoked", frozenset({KEY}))
    with pytest.raises(ClientError, match="on_partitions_revoked raised CancelledError"):
        group.raise_error()
    group.raise_error()


async def test_a_partition_that_is_read_again_after_all_is_fetched_again() -> None:
    group, _ = made(Offsets(), {KEY: 1})
    fetches: list[bool] = []
    group._fetch_more = lambda: fetches.append(not group._readers[KEY].is_suspended)
    group._suspend(frozenset({KEY}))
    assert not fetches
    group._suspend(frozenset())
    assert fetches == [True]


@pytest.mark.parametrize("asks", [True, False])
async def test_only_an_application_that_asks_for_nothing_exceeds_the_poll_interval(asks: bool) -> None:
    group, progress = made(Offsets(), {KEY: 1}, max_poll_interval_ms=4)
    group.membership.owned = frozenset({KEY})
    watch = asyncio.create_task(group._watch_polls())
    loop = asyncio.get_running_loop()
    end = loop.time() + 0.03
    while loop.time() < end or not (asks or group._awaits_application):
        if asks:
            # It finds nothing, and waits elsewhere.
            progress.finish()
        await asyncio.sleep(0)
    watch.cancel()
    assert group._awaits_application is not asks


class Silent:
    """A coordinator that remembers how long each answer is awaited, and gives none."""

    def __init__(self) -> None:
        self.waits_ms: dict[ApiKey, int | None] = {}

    async def find_for(self, _: object) -> int:
        return 1

    async def call(self, node_id: int, api_key: ApiKey, values: object, **more: Any) -> Any:
        self.waits_ms[api_key] = more["timeout_ms"]
        raise RequestTimeoutError("no answer")


async def test_a_lost_answer_to_sync_holds_the_group_no_longer_than_a_request_may_take() -> None:
    group, _ = made(Offsets(), {}, max_poll_interval_ms=300_000)
    group._coordinator = silent = Silent()  # type: ignore[assignment]
    for step in (Join({}), Sync({})):
        with pytest.raises(RequestTimeoutError):
            await group._carry_out(step)
    # None: request_timeout_ms. A join waits for all members, which may be at work.
    assert silent.waits_ms[ApiKey.SYNC_GROUP] is None
    assert (silent.waits_ms[ApiKey.JOIN_GROUP] or 0) > 300_000
