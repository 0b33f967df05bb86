"""The administrator finds the controller, follows it, and gives up in time with the broker's own words."""

import asyncio
from typing import Any

import pytest

from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import (
    Admin,
    BrokerError,
    BrokerUnavailableError,
    NewTopic,
    OffsetOutOfRangeError,
    TopicPartition,
    UnknownTopicError,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

QUOTA = ErrorCode.THROTTLING_QUOTA_EXCEEDED
WANTED = [NewTopic("orders", 2, 1)]


def created(request: Request, code: ErrorCode = ErrorCode.NONE, text: str | None = None) -> dict[str, Any]:
    told = {"error_code": code, "error_message": text}
    return {"topics": [{"name": each.name, **told} for each in request.values.topics]}


async def test_a_controller_that_moved_is_found_and_asked_once() -> None:
    async with ScriptedBroker() as first, ScriptedBroker() as second:
        controller = 1

        def metadata(_: Request) -> dict[str, Any]:
            nodes = ((1, first), (2, second))
            answer = first.metadata([])
            answer["brokers"] = [
                {"node_id": number, "host": "127.0.0.1", "port": node.port, "rack": None}
                for number, node in nodes
            ]
            return answer | {"controller_id": controller}

        def moved(request: Request) -> dict[str, Any]:
            nonlocal controller
            controller = 2
            return created(request, ErrorCode.NOT_CONTROLLER)

        for node in (first, second):
            node.scripts[ApiKey.METADATA] = metadata
        first.scripts[ApiKey.CREATE_TOPICS] = moved
        second.scripts[ApiKey.CREATE_TOPICS] = created
        async with Admin(bootstrap_servers=first.address, retry_backoff_ms=5) as admin:
            await admin.create_topics(WANTED)
        assert [len(node.seen(ApiKey.CREATE_TOPICS)) for node in (first, second)] == [1, 1]


async def test_what_passes_is_tried_again_until_the_time_is_up_and_then_told_in_the_brokers_words() -> None:
    async with ScriptedBroker() as broker:
        broker.scripts[ApiKey.CREATE_TOPICS] = lambda request: created(
            request, ErrorCode.KAFKA_STORAGE_ERROR, "no room on the disk"
        )
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            Admin(bootstrap_servers=broker.address, retry_backoff_ms=5, request_timeout_ms=500) as admin,
        ):
            with pytest.raises(BrokerError, match="topic 'orders': no room on the disk") as caught:
                await admin.create_topics(WANTED)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(broker.seen(ApiKey.CREATE_TOPICS)) > 2


async def test_of_several_topics_only_those_that_were_not_done_are_asked_for_again() -> None:
    """As where a quota is used up by the first of them."""
    done: set[str] = set()

    def changed(request: Request) -> list[dict[str, Any]]:
        names = [each if isinstance(each, str) else each.name for each in asked_for(request)]
        assert not done & {*names}
        done.add(names[0])
        return [{"name": each, "error_code": 0 if each in done else QUOTA} for each in names]

    def asked_for(request: Request) -> Any:
        return getattr(request.values, "topics", None) or request.values.topic_names

    async with ScriptedBroker() as broker:
        broker.scripts[ApiKey.CREATE_TOPICS] = lambda request: {"topics": changed(request)}
        broker.scripts[ApiKey.CREATE_PARTITIONS] = lambda request: {"results": changed(request)}
        broker.scripts[ApiKey.DELETE_TOPICS] = lambda request: {"responses": changed(request)}
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            Admin(bootstrap_servers=broker.address, retry_backoff_ms=5) as admin,
        ):
            await admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1), NewTopic("c", 1, 1)])
            assert done == {"a", "b", "c"}
            done.clear()
            await admin.create_partitions({"a": 2, "b": 2})
            assert done == {"a", "b"}
            done.clear()
            await admin.delete_topics(["a", "b"])
            assert done == {"a", "b"}


async def test_a_refusal_for_good_is_told_at_once(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.CREATE_TOPICS] = lambda request: created(
        request, ErrorCode.POLICY_VIOLATION, "too many handles"
    )
    async with Admin(bootstrap_servers=broker.address) as admin:
        with pytest.raises(BrokerError, match="too many handles"):
            await admin.create_topics(WANTED)
    assert len(broker.seen(ApiKey.CREATE_TOPICS)) == 1


async def test_each_reassignment_that_is_refused_is_named(broker: ScriptedBroker) -> None:
    def refused(request: Request) -> dict[str, Any]:
        told = {"error_code": ErrorCode.INVALID_REPLICA_ASSIGNMENT, "error_message": "no broker 9"}
        responses = [
            {"name": topic.name, "partitions": [{"partition_index": each.partition_index, **told}]}
            for topic in request.values.topics
            for each in topic.partitions
        ]
        return {"error_code": 0, "error_message": None, "responses": responses}

    broker.scripts[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = refused
    async with Admin(bootstrap_servers=broker.address) as admin:
        with pytest.raises(BrokerError, match="of a-0: no broker 9; the reassignment of b-1: no broker 9"):
            await admin.reassignments.alter({TopicPartition("a", 0): [9], TopicPartition("b", 1): [9]})
    assert len(broker.seen(ApiKey.ALTER_PARTITION_REASSIGNMENTS)) == 1


async def test_a_cluster_that_names_no_broker_is_no_accident_of_ours(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.METADATA] = lambda _: broker.metadata([]) | {"brokers": []}
    async with Admin(bootstrap_servers=broker.address, request_timeout_ms=50) as admin:
        with pytest.raises(BrokerUnavailableError, match="the metadata of the cluster names no broker"):
            await admin.create_topics(WANTED)


async def test_a_broker_that_is_away_for_a_moment_is_waited_for(broker: ScriptedBroker) -> None:
    quick = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 10}
    broker.scripts[ApiKey.CREATE_TOPICS] = created
    async with Admin(bootstrap_servers=broker.address, **quick) as admin:
        await broker.__aexit__(None, None, None)
        await until(lambda: not broker._writers)
        calls = [asyncio.create_task(each) for each in (admin.create_topics(WANTED), admin.list_topics())]
        tried: list[asyncio.StreamWriter] = []

        def leaves(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tried.append(writer)
            writer.close()

        async with await asyncio.start_server(leaves, "127.0.0.1", broker.port):
            await until(lambda: len(tried) > 1)
        async with broker:
            await asyncio.wait_for(asyncio.gather(*calls), DEADLINE_SECONDS)


async def test_records_of_an_unknown_partition_are_refused_at_once_and_none_are_deleted() -> None:
    async with ScriptedBroker() as broker, Admin(bootstrap_servers=broker.address) as admin:
        with pytest.raises(UnknownTopicError, match="partition t-1"):
            await admin.delete_records({TopicPartition(TOPIC, 0): 5, TopicPartition(TOPIC, 1): 5})
        assert not broker.seen(ApiKey.DELETE_RECORDS)


async def test_a_partition_whose_records_cannot_be_deleted_keeps_no_other_from_it() -> None:
    def deleted(request: Request) -> dict[str, Any]:
        (topic,) = request.values.topics
        (partition,) = topic.partitions
        code = ErrorCode.NONE if partition.partition_index else ErrorCode.OFFSET_OUT_OF_RANGE
        result = {"partition_index": partition.partition_index, "low_watermark": 5, "error_code": code}
        return {"topics": [{"name": TOPIC, "partitions": [result]}]}

    async with ScriptedBroker(partitions=2) as broker, Admin(bootstrap_servers=broker.address) as admin:
        broker.scripts[ApiKey.DELETE_RECORDS] = deleted
        with pytest.raises(OffsetOutOfRangeError, match="records of t-0"):
            await admin.delete_records({TopicPartition(TOPIC, 0): 5, TopicPartition(TOPIC, 1): 5})
        assert len(broker.seen(ApiKey.DELETE_RECORDS)) == 2


async def test_a_text_where_a_list_belongs_changes_no_topic() -> None:
    async with ScriptedBroker() as broker, Admin(bootstrap_servers=broker.address) as admin:
        for call in (admin.delete_topics, admin.describe_topics, admin.groups.delete):
            with pytest.raises(TypeError, match="expected a list of names, got the text 'orders'"):
                await call("orders")  # type: ignore[operator]
        for wrong in (["orders"], NewTopic("orders")):
            with pytest.raises(TypeError, match="expected a list of NewTopic"):
                await admin.create_topics(wrong)  # type: ignore[arg-type]
        assert not broker.seen(ApiKey.CREATE_TOPICS) + broker.seen(ApiKey.DELETE_TOPICS)
