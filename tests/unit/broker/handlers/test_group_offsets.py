"""OffsetCommit, OffsetFetch and OffsetDelete: what was acknowledged is told, and no more."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.handlers.conftest import Asker, fetch_request, make_batch
from tests.waiting import until
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.broker.coordinator.shards import partition_of
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

NOTHING = (-1, "", ErrorCode.NONE)


def answered(topic: Any) -> list[tuple[int, tuple[int, str, int]]]:
    """(partition, (offset, metadata, error code)) of each partition in order."""
    return [
        (each.partition_index, (each.committed_offset, each.metadata, each.error_code))
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", range(1, 8))
async def test_each_partition_of_one_group_has_nothing_committed_whether_it_is_there_or_not(
    asker: Asker, version: int
) -> None:
    await asker.create("t", 2)
    topics = [{"name": "t", "partition_indexes": [1, 0, 7]}, {"name": "unknown", "partition_indexes": [3]}]
    answer = await asker.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=topics)
    assert [(topic.name, answered(topic)) for topic in answer.topics] == [
        ("t", [(1, NOTHING), (0, NOTHING), (7, NOTHING)]),
        ("unknown", [(3, NOTHING)]),
    ]
    assert answer.error_code == ErrorCode.NONE
    assert all(each.committed_leader_epoch == -1 for each in answer.topics[0].partitions)


@pytest.mark.parametrize("version", [8, 9])
async def test_each_of_several_groups_has_nothing_committed(asker: Asker, version: int) -> None:
    groups = [
        {"group_id": "one", "topics": [{"name": "t", "partition_indexes": [0]}]},
        {"group_id": "", "topics": [{"name": "u", "partition_indexes": [1, 2]}]},
        {"group_id": "all", "topics": None},
    ]
    answer = await asker.ask(ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=True)
    assert [
        (group.group_id, group.error_code, [(topic.name, answered(topic)) for topic in group.topics])
        for group in answer.groups
    ] == [
        ("one", 0, [("t", [(0, NOTHING)])]),
        ("", 0, [("u", [(1, NOTHING), (2, NOTHING)])]),
        ("all", 0, []),
    ]


async def test_a_topic_is_asked_for_by_its_id_and_an_unknown_id_is_an_error(asker: Asker) -> None:
    await asker.create("t")
    topic = asker.topic("t")
    unknown = UUID(int=99)
    wanted = [
        {"topic_id": topic.topic_id, "partition_indexes": [0]},
        {"topic_id": unknown, "partition_indexes": [4]},
    ]
    answer = await asker.ask(ApiKey.OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": wanted}])
    (group,) = answer.groups
    assert [(found.topic_id, answered(found)) for found in group.topics] == [
        (topic.topic_id, [(0, NOTHING)]),
        (unknown, [(4, (-1, "", ErrorCode.UNKNOWN_TOPIC_ID))]),
    ]


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_group_without_named_topics_has_none(asker: Asker, version: int) -> None:
    answer = await asker.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=None)
    assert (answer.topics, answer.error_code) == ([], ErrorCode.NONE)


async def test_no_groups_get_no_answers(asker: Asker) -> None:
    assert (await asker.ask(ApiKey.OFFSET_FETCH, 9, groups=[])).groups == []


MINUTE_MS = 60_000
DAY_MINUTES = 24 * 60


async def commit(
    asker: Asker, *wanted: tuple[str, int, int], group: str = "g", version: int = 9, **more: Any
) -> list[int]:
    """Commit (topic, partition, offset) each with metadata that names the offset; the codes."""
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": index, "committed_offset": offset, "committed_metadata": f"at {offset}"}
            ],
        }
        for name, index, offset in wanted
    ]
    answer = await asker.ask(ApiKey.OFFSET_COMMIT, version, group_id=group, topics=topics, **more)
    assert [topic.name for topic in answer.topics] == [name for name, _, _ in wanted]
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


async def committed(asker: Asker, group: str = "g") -> dict[tuple[str, int], int]:
    """All that the group has committed."""
    answer = await asker.ask(ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": group, "topics": None}])
    assert answer.groups[0].error_code == ErrorCode.NONE
    return {
        (topic.name, part.partition_index): part.committed_offset
        for topic in answer.groups[0].topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(2, 10))
async def test_a_commit_by_names_is_returned_in_every_version(asker: Asker, version: int) -> None:
    await asker.create("t", 2)
    partition = {"partition_index": 1, "committed_offset": 42, "committed_metadata": "here"}
    epoch = {"committed_leader_epoch": 7} if version >= 6 else {}
    topics = [{"name": "t", "partitions": [{**partition, **epoch}]}]
    answer = await asker.ask(ApiKey.OFFSET_COMMIT, version, group_id="g", topics=topics)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    wanted = [{"name": "t", "partition_indexes": [0, 1]}]
    for asked in range(1, 8):
        found = await asker.ask(ApiKey.OFFSET_FETCH, asked, group_id="g", topics=wanted)
        assert answered(found.topics[0]) == [(0, NOTHING), (1, (42, "here", ErrorCode.NONE))]
        told = found.topics[0].partitions[1].committed_leader_epoch
        assert told == (7 if epoch and asked >= 5 else -1)
    for asked in (8, 9):
        several = [{"group_id": "other", "topics": None}, {"group_id": "g", "topics": None}]
        found = await asker.ask(ApiKey.OFFSET_FETCH, asked, groups=several, require_stable=True)
        assert [answered(topic) for group in found.groups for topic in group.topics] == [
            [(1, (42, "here", ErrorCode.NONE))]
        ]


async def test_a_commit_by_topic_id_is_returned_by_id_and_by_name(asker: Asker) -> None:
    await asker.create("t")
    topic = asker.topic("t")
    partitions = [{"partition_index": 0, "committed_offset": 5}]
    topics = [{"topic_id": each, "partitions": partitions} for each in (topic.topic_id, UUID(int=9))]
    answer = await asker.ask(ApiKey.OFFSET_COMMIT, 10, group_id="g", topics=topics)
    assert [(each.topic_id, each.partitions[0].error_code) for each in answer.topics] == [
        (topic.topic_id, ErrorCode.NONE),
        (UUID(int=9), ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    found = await asker.ask(ApiKey.OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": None}])
    assert [(each.topic_id, answered(each)) for each in found.groups[0].topics] == [
        (topic.topic_id, [(0, (5, "", ErrorCode.NONE))])
    ]
    assert await committed(asker) == {("t", 0): 5}


async def test_partitions_that_cannot_be_committed_fail_alone(open_asker: Callable[..., Any]) -> None:
    asker = await open_asker(offset_metadata_max_bytes=4)
    await asker.create("t")
    asked = [("t", 0, 1), ("unknown", 0, 2), ("t", 1, 2), ("t", -1, 2), ("t", 2**31 - 1, 2), ("t", 0, 10)]
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4
    assert await commit(asker, *asked) == [ErrorCode.NONE, *unknown, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await committed(asker) == {("t", 0): 1}


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
async def test_a_generation_of_a_group_that_is_not_there_is_refused(
    asker: Asker, version: int, code: ErrorCode
) -> None:
    await asker.create("t")
    member = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    with pytest.raises(ApiError, check=lambda error: error.code == code):
        await commit(asker, ("t", 0, 1), version=version, **member)
    assert await commit(asker, ("t", 0, 1), version=version) == [ErrorCode.NONE]
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.UNKNOWN_MEMBER_ID):
        await commit(asker, ("t", 0, 2), version=version, **member)
    assert await committed(asker) == {("t", 0): 1}


async def test_a_commit_that_no_batch_holds_is_refused_as_a_whole(asker: Asker) -> None:
    await asker.create("t")
    partitions = [
        {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 4000} for _ in range(300)
    ]
    topics = [{"name": "t", "partitions": partitions}]
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        await asker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=topics)
    assert await committed(asker) == {}


async def test_a_group_whose_partition_is_offline_fails_alone_and_with_a_code_in_every_version(
    asker: Asker,
) -> None:
    await asker.create("t")
    await commit(asker, ("t", 0, 1), group="offline")
    await commit(asker, ("t", 0, 2), group="g")
    assert partition_of("offline", 5) != partition_of("g", 5)
    asker.replica(OFFSETS_TOPIC, partition_of("offline", 5)).fail(OSError("the disk is gone"))
    groups = [{"group_id": group, "topics": None} for group in ("offline", "g")]
    for version in (8, 9, 10):
        answer = await asker.ask(ApiKey.OFFSET_FETCH, version, groups=groups)
        assert [(group.error_code, len(group.topics)) for group in answer.groups] == [
            (ErrorCode.NOT_COORDINATOR, 0),
            (ErrorCode.NONE, 1),
        ]
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.NOT_COORDINATOR):
        await asker.ask(ApiKey.OFFSET_FETCH, 1, group_id="offline", topics=[])
    found = await asker.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["offline", "g"])
    assert [each.error_code for each in found.coordinators] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NONE,
    ]


async def test_a_coordinator_that_asked_for_another_leader_is_none_until_the_store_has_answered(
    asker: Asker,
) -> None:
    await asker.create("t")
    await commit(asker, ("t", 0, 1))
    services, answered = asker.services, asyncio.Event()
    replica = asker.replica(OFFSETS_TOPIC, partition_of("g", 5))
    services.membership = SimpleNamespace(  # type: ignore[assignment]
        give_up_soon=lambda *_: asyncio.ensure_future(answered.wait())
    )
    services._give_up(replica)
    services.membership = None
    with pytest.raises(ApiError) as refused:
        await commit(asker, ("t", 0, 2))
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    answered.set()
    await until(lambda: not replica.is_given_up)
    assert await committed(asker) == {("t", 0): 1}


async def test_offsets_are_deleted_and_stay_so(open_asker: Callable[..., Any]) -> None:
    asker = await open_asker()
    await asker.create("t", 3)
    await commit(asker, ("t", 0, 1), ("t", 1, 2), ("t", 2, 3))
    wanted = [
        {"name": "t", "partitions": [{"partition_index": index} for index in (0, 2, 7)]},
        {"name": "unknown", "partitions": [{"partition_index": 0}]},
    ]
    answer = await asker.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=wanted)
    assert answer.error_code == ErrorCode.NONE
    assert [(topic.name, {part.error_code for part in topic.partitions}) for topic in answer.topics] == [
        ("t", {ErrorCode.NONE}),
        ("unknown", {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    ]
    assert await committed(asker) == {("t", 1): 2}
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.GROUP_ID_NOT_FOUND):
        await asker.ask(ApiKey.OFFSET_DELETE, 0, group_id="nobody", topics=wanted)
    await asker.services.close()
    assert await committed(await open_asker()) == {("t", 1): 2}


async def test_offsets_of_a_deleted_topic_are_gone_and_are_none_of_the_next_one_s(
    open_asker: Callable[..., Any],
) -> None:
    asker = await open_asker()
    for name in ("t", "kept"):
        await asker.create(name)
    await commit(asker, ("t", 0, 5), ("kept", 0, 6))
    # No more than the catalog changes before the crash: the records that remove them may not be written.
    topic = asker.services.catalog.topic("t")
    await asker.services.topics.delete(topic.topic_id)
    assert await committed(asker) == {("kept", 0): 6}
    await asker.create("t")
    wanted = [{"name": "t", "partition_indexes": [0]}]
    for restarted in (asker, None):
        if restarted is None:
            await asker.services.close(clean=False)
            restarted = await open_asker()
        assert await committed(restarted) == {("kept", 0): 6}
        found = await restarted.ask(ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": wanted}])
        assert answered(found.groups[0].topics[0]) == [(0, NOTHING)]


async def test_offsets_expire_with_the_retention_since_their_commit(open_asker: Callable[..., Any]) -> None:
    asker = await open_asker(offsets_retention_minutes=DAY_MINUTES)
    await asker.create("t", 2)
    await commit(asker, ("t", 0, 1))
    asker.clock.now_ms += DAY_MINUTES * MINUTE_MS // 2
    await commit(asker, ("t", 1, 2))
    asker.clock.now_ms += DAY_MINUTES * MINUTE_MS // 2
    await asker.services.groups.sweep()
    assert await committed(asker) == {("t", 1): 2}
    await asker.services.close()
    asker = await open_asker(offsets_retention_minutes=DAY_MINUTES)
    assert await committed(asker) == {("t", 1): 2}
    asker.clock.now_ms += DAY_MINUTES * MINUTE_MS // 2
    await asker.services.groups.sweep()
    assert await committed(asker) == {}


async def test_a_retention_that_a_client_asks_for_holds(
    open_asker: Callable[..., Any],
) -> None:
    asker = await open_asker()
    await asker.create("t")
    await commit(asker, ("t", 0, 1), version=4, retention_time_ms=1000)
    await asker.services.close()
    asker = await open_asker()
    asker.clock.now_ms += 999
    await asker.services.groups.sweep()
    assert await committed(asker) == {("t", 0): 1}
    asker.clock.now_ms += 1
    await asker.services.groups.sweep()
    assert await committed(asker) == {}


async def test_the_offsets_topic_is_made_on_first_need_and_described_as_compacted(asker: Asker) -> None:
    await asker.create("t")
    await committed(asker)
    assert asker.services.catalog.topic(OFFSETS_TOPIC) is None
    answer = await asker.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["t"], key_type=1)
    assert asker.services.catalog.topic(OFFSETS_TOPIC) is None
    answer = await asker.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"])
    assert answer.coordinators[0].error_code == ErrorCode.NONE
    topic = asker.topic(OFFSETS_TOPIC)
    assert len(topic.partitions) == asker.services.config.offsets_topic_num_partitions == 5
    metadata = await asker.ask(ApiKey.METADATA, 12, topics=None)
    internal = {each.name: each.is_internal for each in metadata.topics}
    assert internal == {"t": False, OFFSETS_TOPIC: True, TRANSACTIONS_TOPIC: True}
    described = await asker.ask(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[{"resource_type": 2, "resource_name": OFFSETS_TOPIC}]
    )
    configs = {config.name: config.value for config in described.results[0].configs}
    assert configs["cleanup.policy"] == "compact"
    assert configs["segment.bytes"] == str(100 << 20)
    log = asker.replica(OFFSETS_TOPIC).log
    assert log.config.cleanup_policy == ("compact",)


async def test_clients_read_the_offsets_topic_and_do_not_write_it(asker: Asker) -> None:
    await asker.create("t")
    await commit(asker, ("t", 0, 1))
    partition = partition_of("g", 5)
    for index in range(5):
        result = await asker.produce(OFFSETS_TOPIC, make_batch(b"v"), partition=index)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    deleted = await asker.ask(
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": OFFSETS_TOPIC, "partitions": [{"partition_index": partition, "offset": 1}]}],
    )
    assert deleted.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    grown = await asker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": OFFSETS_TOPIC, "count": 9}])
    assert grown.results[0].error_code == ErrorCode.INVALID_PARTITIONS
    answer = asker.call(ApiKey.FETCH, 12, fetch_request((OFFSETS_TOPIC, partition, 0)))
    assert answer.topics[0][1][0].error_code == ErrorCode.NONE
    assert answer.topics[0][1][0].high_watermark == 1


async def test_a_setting_of_the_offsets_topic_can_be_changed_and_it_stays_compacted(asker: Asker) -> None:
    await asker.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"])
    configs = [{"name": "segment.ms", "value": "1000"}]
    resource = {"resource_type": 2, "resource_name": OFFSETS_TOPIC, "configs": configs}
    altered = await asker.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource])
    assert altered.responses[0].error_code == ErrorCode.NONE
    topic = asker.topic(OFFSETS_TOPIC)
    assert (topic.configs["cleanup.policy"], topic.configs["segment.ms"]) == ("compact", "1000")


async def test_the_offsets_topic_may_be_deleted_and_groups_begin_anew(asker: Asker) -> None:
    await asker.create("t")
    await commit(asker, ("t", 0, 1))
    deleted = await asker.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": OFFSETS_TOPIC}])
    assert deleted.responses[0].error_code == ErrorCode.NONE
    assert await committed(asker) == {}
    assert await commit(asker, ("t", 0, 2)) == [ErrorCode.NONE]
    assert await committed(asker) == {("t", 0): 2}


async def test_groups_are_the_same_after_their_log_was_compacted(
    open_asker: Callable[..., Any],
) -> None:
    asker = await open_asker(offsets_topic_segment_bytes=600)
    await asker.create("t")
    for offset in range(40):
        await commit(asker, ("t", 0, offset))
    log = asker.replica(OFFSETS_TOPIC, partition_of("g", 5)).log
    before = log.size_bytes
    await asker.services.maintenance.checkpoint()
    for _ in range(2):
        await asker.services.cleaner.clean_dirtiest()
        await asker.services.maintenance.checkpoint()
    assert log.size_bytes < before / 4
    await asker.services.close()
    asker = await open_asker(offsets_topic_segment_bytes=600)
    assert await committed(asker) == {("t", 0): 39}
