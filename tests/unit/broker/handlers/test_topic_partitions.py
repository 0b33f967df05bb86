"""DescribeTopicPartitions: order, limits, cursors and unknown topics."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.handlers.conftest import Asker
from tidelog.broker.security.authorizer import SUPPORTED_OPERATIONS
from tidelog.protocol.acls import ResourceType
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Awaitable[Asker]]


def cursor(topic: str, index: int) -> dict[str, Any]:
    return {"topic_name": topic, "partition_index": index}


async def pages(asker: Asker, limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
    """Answer after answer until one has no cursor: the topics of each, with their partitions."""
    found: list[list[tuple[str, list[int]]]] = []
    at: Any = None
    while at is not None or not found:
        answer = await asker.ask(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[{"name": name} for name in names],
            response_partition_limit=limit,
            cursor=at,
        )
        found.append([(one.name, [part.partition_index for part in one.partitions]) for one in answer.topics])
        at = answer.next_cursor
    return found


async def test_answers_follow_the_order_of_names_and_have_each_partition_once(asker: Asker) -> None:
    for name, count in (("b", 3), ("c", 1), ("a", 2)):
        await asker.create(name, count)
    whole = [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert await pages(asker, 2000) == [whole]
    assert await pages(asker, 2) == [[whole[0]], [("b", [0, 1])], [("b", [2]), ("c", [0])]]
    assert await pages(asker, 0) == [[(name, [index])] for name, indexes in whole for index in indexes]
    assert await pages(asker, 4, "c", "b", "b") == [[("b", [0, 1, 2]), ("c", [0])]]


async def test_a_partition_is_described_as_metadata_describes_it(asker: Asker) -> None:
    await asker.create("t", 2)
    asker.replica("t", 1).fail(OSError("the disk is gone"))
    (described,) = (await asker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[])).topics
    (topic,) = (await asker.ask(ApiKey.METADATA, 12, topics=[{"name": "t"}])).topics
    assert (described.topic_id, described.is_internal) == (topic.topic_id, False)
    assert described.topic_authorized_operations == SUPPORTED_OPERATIONS[ResourceType.TOPIC]
    for part, known in zip(described.partitions, topic.partitions, strict=True):
        assert {name: part[name] for name in known} == dict(known)
        assert part.eligible_leader_replicas == part.last_known_elr == []


async def test_the_brokers_own_limit_holds_whatever_is_asked_for(open_asker: Open) -> None:
    asker = await open_asker(max_request_partition_size_limit=2)
    await asker.create("t", 3)
    assert await pages(asker, 1000) == [[("t", [0, 1])], [("t", [2])]]


async def test_unknown_topics_that_were_named_are_errors(asker: Asker) -> None:
    topics = [{"name": "missing"}, {"name": "a b"}]
    answer = await asker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics)
    assert [(one.name, one.error_code, one.topic_id) for one in answer.topics] == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, UUID(int=0)),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UUID(int=0)),
    ]


async def test_a_cursor_whose_topic_was_deleted_continues_with_the_next(asker: Asker) -> None:
    await asker.create("c")
    answer = await asker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], cursor=cursor("b", 7))
    assert [(one.name, len(one.partitions)) for one in answer.topics] == [("c", 1)]


@pytest.mark.parametrize("bad", [cursor("t", -1), cursor("another", 0)])
async def test_a_bad_cursor_is_refused(asker: Asker, bad: dict[str, Any]) -> None:
    await asker.create("t")
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.INVALID_REQUEST):
        await asker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "t"}], cursor=bad)
