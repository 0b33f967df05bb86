"""CreateTopics, DeleteTopics, CreatePartitions: each topic alone, durable when answered, in Kafka's codes."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Awaitable[Asker]]


def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}


async def created(
    asker: Asker, *topics: dict[str, Any], version: int = 7, validate_only: bool = False
) -> list[Any]:
    answer = await asker.ask(ApiKey.CREATE_TOPICS, version, topics=list(topics), validate_only=validate_only)
    return list(answer.topics)


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_created_topic_is_there_for_the_next_request(asker: Asker, version: int) -> None:
    (answer,) = await created(asker, topic("t", 3), version=version)
    assert answer.error_code == ErrorCode.NONE
    assert [asker.replica("t", index).partition for index in range(3)] == [0, 1, 2]
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        configs = {config.name: config.value for config in answer.configs}
        assert configs["cleanup.policy"] == "delete"
    if version >= 7:
        assert answer.topic_id == asker.topic("t").topic_id


@pytest.mark.parametrize(
    ("policy", "kept"), [("compact", ("compact",)), ("compact,delete", ("compact", "delete"))]
)
async def test_a_topic_may_be_compacted_as_the_state_of_frameworks_is(
    asker: Asker, policy: str, kept: tuple[str, ...]
) -> None:
    """Faust, Quix Streams, Kafka Streams, Connect and schema registries create such topics at their start."""
    await asker.create("changelog", cleanup_policy=policy)
    assert asker.replica("changelog").log.config.cleanup_policy == kept


async def test_minus_one_takes_the_brokers_defaults(open_asker: Open) -> None:
    asker = await open_asker(num_partitions=4)
    (answer,) = await created(asker, topic("t", -1, -1))
    assert (answer.num_partitions, answer.replication_factor) == (4, 1)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 10_001), ErrorCode.POLICY_VIOLATION),
        (topic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", configs=[{"name": "no.such", "value": "1"}]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[{"name": "cleanup.policy", "value": "compacted"}]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[{"name": "retention.ms", "value": None}]), ErrorCode.INVALID_CONFIG),
        (
            topic("t", assignments=[{"partition_index": 0, "broker_ids": [1]}]),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            topic("t", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [9]}]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
async def test_a_wish_that_cannot_be_met_has_its_code_and_a_reason(
    asker: Asker, wanted: dict[str, Any], code: ErrorCode
) -> None:
    (answer,) = await created(asker, wanted)
    assert answer.error_code == code
    assert answer.error_message
    assert len(asker.services.catalog) == 0


async def test_a_manual_assignment_is_followed(asker: Asker) -> None:
    assignments = [{"partition_index": index, "broker_ids": [1]} for index in (1, 0)]
    (answer,) = await created(asker, topic("t", -1, -1, assignments=assignments))
    assert (answer.error_code, answer.num_partitions) == (0, 2)


async def test_topics_of_one_request_fail_alone(asker: Asker) -> None:
    await asker.create("a")
    answers = await created(asker, topic("a"), topic("b"), topic("c"), topic("c"))
    assert {answer.name: answer.error_code for answer in answers} == {
        "a": ErrorCode.TOPIC_ALREADY_EXISTS,
        "b": ErrorCode.NONE,
        "c": ErrorCode.INVALID_REQUEST,
    }


async def test_a_request_for_too_many_partitions_is_refused_whole(asker: Asker) -> None:
    answers = await created(asker, topic("a", 6_000), topic("b", 6_000))
    assert [answer.error_code for answer in answers] == [ErrorCode.POLICY_VIOLATION] * 2
    assert len(asker.services.catalog) == 0


async def test_validate_only_changes_nothing(asker: Asker) -> None:
    (answer,) = await created(asker, topic("t", 2), validate_only=True)
    assert (answer.error_code, answer.num_partitions, answer.topic_id) == (0, 2, UUID(int=0))
    assert asker.services.catalog.topic("t") is None
    (refused,) = await created(asker, topic("t", 0), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS


async def deleted(asker: Asker, *topics: dict[str, Any]) -> list[Any]:
    return list((await asker.ask(ApiKey.DELETE_TOPICS, 6, topics=list(topics))).responses)


@pytest.mark.parametrize("version", range(1, 6))
async def test_a_topic_is_deleted_by_name(asker: Asker, version: int) -> None:
    await asker.create("t")
    answer = await asker.ask(ApiKey.DELETE_TOPICS, version, topic_names=["t", "unknown"])
    assert [(held.name, held.error_code) for held in answer.responses] == [
        ("t", 0),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert (await asker.produce("t", make_batch(b"v"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_is_deleted_by_id(asker: Asker) -> None:
    await asker.create("t")
    held = asker.topic("t")
    unknown = uuid4()
    answers = await deleted(
        asker, {"name": None, "topic_id": held.topic_id}, {"name": None, "topic_id": unknown}
    )
    assert [(answer.name, answer.topic_id, answer.error_code) for answer in answers] == [
        ("t", held.topic_id, 0),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_name_and_id_together_or_neither_is_an_invalid_request(asker: Asker) -> None:
    await asker.create("t")
    for wrong in ({"name": "t", "topic_id": uuid4()}, {"name": None}):
        (answer,) = await deleted(asker, wrong)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert asker.services.catalog.topic("t") is not None


async def test_deletion_can_be_forbidden(open_asker: Open) -> None:
    asker = await open_asker(delete_topic_enable=False)
    await asker.create("t")
    (answer,) = await deleted(asker, {"name": "t"})
    assert answer.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert asker.services.catalog.topic("t") is not None


async def grown(asker: Asker, version: int = 2, validate_only: bool = False, **wanted: Any) -> Any:
    answer = await asker.ask(
        ApiKey.CREATE_PARTITIONS,
        version,
        topics=[{"assignments": None, **wanted}],
        validate_only=validate_only,
    )
    return answer.results[0]


@pytest.mark.parametrize("version", range(4))
async def test_new_partitions_take_records(asker: Asker, version: int) -> None:
    await asker.create("t")
    assert (await grown(asker, version, name="t", count=3)).error_code == 0
    assert (await asker.produce("t", make_batch(b"v"), partition=2)).base_offset == 0


async def test_partitions_never_become_fewer(asker: Asker) -> None:
    await asker.create("t", 2)
    for count in (2, 1, 0):
        assert (await grown(asker, name="t", count=count)).error_code == ErrorCode.INVALID_PARTITIONS
    assert (await grown(asker, name="no", count=3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_partitions_can_be_validated_only(asker: Asker) -> None:
    await asker.create("t")
    assert (await grown(asker, validate_only=True, name="t", count=3)).error_code == 0
    assert len(asker.topic("t").partitions) == 1
