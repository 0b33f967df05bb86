"""OffsetCommit, OffsetFetch and OffsetDelete: what was acknowledged is told, and no more."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, PartitionAssignment
from tidelog.broker.coordinator.shards import partition_of
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey


def answered(topic: Any) -> list[tuple[int, tuple[int, str, int]]]:
    """(partition, (offset, metadata, error code)) of each partition in order."""
    return [
        (each.partition_index, (each.committed_offset, each.metadata, each.error_code))
        for each in topic.partitions
    ]


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
    services, given_up = asker.services, list[Callable[[], None]]()
    replica = asker.replica(OFFSETS_TOPIC, partition_of("g", 5))
    services.membership = SimpleNamespace(  # type: ignore[assignment]
        give_up_soon=lambda _, __, kept: given_up.append(kept)
    )
    services._give_up(replica)
    services._give_up(replica)
    services.membership = None
    (kept,) = given_up
    with pytest.raises(ApiError) as refused:
        await commit(asker, ("t", 0, 2))
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    kept()
    assert await committed(asker) == {("t", 0): 1}


async def test_what_became_of_an_earlier_election_says_nothing_of_a_later_one(asker: Asker) -> None:
    await asker.create("t")
    services, given_up, replica = asker.services, list[Callable[[], None]](), asker.replica("t")
    services.membership = SimpleNamespace(  # type: ignore[assignment]
        give_up_soon=lambda _, __, kept: given_up.append(kept)
    )
    services._give_up(replica)
    replica.lead(PartitionAssignment(services.node_id, replica.leader_epoch + 1, (1,), (1,)))
    assert not replica.is_given_up
    services._give_up(replica)
    services.membership = None
    earlier, later = given_up
    earlier()
    assert replica.is_given_up
    later()
    assert not replica.is_given_up
