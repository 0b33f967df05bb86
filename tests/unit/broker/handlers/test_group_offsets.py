"""OffsetFetch and OffsetCommit without groups: nothing is committed, and nothing can be."""

from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.handlers.conftest import Asker
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey, decode_request, encode_request

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
    topic = asker.services.catalog.topic("t")
    assert topic is not None
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


@pytest.mark.parametrize("version", [2, 10])
async def test_every_commit_is_refused_and_the_log_says_so_once(asker: Asker, version: int) -> None:
    values = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    body = encode_request(ApiKey.OFFSET_COMMIT, version, values)
    request = decode_request(ApiKey.OFFSET_COMMIT, version, body)
    with capture_logs() as events:
        for _ in range(3):
            with pytest.raises(ApiError) as refusal:
                asker.call(ApiKey.OFFSET_COMMIT, version, request)
            assert refusal.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    (event,) = events
    assert (event["event"], event["group_id"]) == ("offset_commit_refused", "g")
