"""What a request names twice is answered once or refused: repeats multiply neither work nor answers."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.handlers.conftest import Asker
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

TIMES = 3
Repeats = Callable[[Asker], Awaitable[list[tuple[Any, int]]]]
"""Names one thing `TIMES` times and another once; (what, error code) of each part of the answer."""


async def create_topics(asker: Asker) -> list[tuple[Any, int]]:
    topic = {"num_partitions": 1, "replication_factor": 1}
    topics = [{"name": name, **topic} for name in ["again"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.CREATE_TOPICS, 7, topics=topics)
    assert [held.name for held in asker.services.catalog.topics()] == ["t", "once"]
    return [(held.name, held.error_code) for held in answer.topics]


async def delete_topics(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"] * TIMES + ["once"])
    assert [held.name for held in asker.services.catalog.topics()] == ["t"]
    return [(held.name, held.error_code) for held in answer.responses]


async def create_partitions(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"name": name, "count": 2, "assignments": None} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=topics)
    counts = [len(held.partitions) for held in asker.services.catalog.topics()]
    assert counts == [1, 2]
    return [(held.name, held.error_code) for held in answer.results]


async def find_coordinator(asker: Asker) -> list[tuple[Any, int]]:
    answer = await asker.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["t"] * TIMES + ["once"])
    return [(held.key, held.error_code) for held in answer.coordinators]


async def metadata(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"name": name} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.METADATA, 12, topics=topics)
    return [(held.name, held.error_code) for held in answer.topics]


def resources(**more: Any) -> list[dict[str, Any]]:
    return [{"resource_type": 2, "resource_name": name, **more} for name in ["t"] * TIMES + ["once"]]


async def describe_configs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources(configuration_keys=None))
    return [(held.resource_name, held.error_code) for held in answer.results]


async def alter_configs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.ask(ApiKey.ALTER_CONFIGS, 2, resources=resources(configs=[]))
    return [(held.resource_name, held.error_code) for held in answer.responses]


async def incremental_alter_configs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources(configs=[]))
    return [(held.resource_name, held.error_code) for held in answer.responses]


async def describe_producers(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"name": name, "partition_indexes": [0] * TIMES} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    return [(topic.name, part.error_code) for topic in answer.topics for part in topic.partitions]


ANSWERED_ONCE = [find_coordinator, metadata, describe_configs, describe_producers]
REFUSED = [create_topics, delete_topics, create_partitions, alter_configs, incremental_alter_configs]


@pytest.mark.parametrize("ask", ANSWERED_ONCE)
async def test_what_only_reads_answers_a_repeat_once(asker: Asker, ask: Repeats) -> None:
    await asker.create("t")
    assert await ask(asker) == [("t", ErrorCode.NONE), ("once", ErrorCode.NONE)]


@pytest.mark.parametrize("ask", REFUSED)
async def test_what_changes_things_refuses_a_repeat_and_does_the_rest(asker: Asker, ask: Repeats) -> None:
    await asker.create("t")
    (refused, code), done = await ask(asker)
    assert (refused in ("t", "again"), code) == (True, ErrorCode.INVALID_REQUEST)
    assert done == ("once", ErrorCode.NONE)


async def test_settings_asked_for_in_two_places_are_described_in_one(asker: Asker) -> None:
    await asker.create("t")
    wanted = [
        {"resource_type": 2, "resource_name": "t", "configuration_keys": keys}
        for keys in (["segment.ms"], ["retention.ms"], ["segment.ms"])
    ]
    answer = await asker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=wanted)
    assert [[held.name for held in result.configs] for result in answer.results] == [
        ["retention.ms", "segment.ms"]
    ]


async def test_partitions_of_a_topic_named_in_two_places_are_all_described(asker: Asker) -> None:
    await asker.create("t", 2)
    topics = [{"name": "t", "partition_indexes": [index]} for index in (1, 0)]
    answer = await asker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    assert [[part.partition_index for part in topic.partitions] for topic in answer.topics] == [[1, 0]]
