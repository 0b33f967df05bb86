"""What a user may not do is an error with the kind of the resource, in every client, and is not repeated."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tests.unit.wire.security.scripted_sasl import Sasl, user
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClusterAuthorizationFailedError,
    Consumer,
    ConsumerGroupMetadata,
    DeliveryUncertainError,
    GroupAuthorizationFailedError,
    Producer,
    TopicAuthorizationFailedError,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    TransactionStateError,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.wire.errors import broker_error

QUICK: Mapping[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "request_timeout_ms": 10_000}
OF_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OF_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
OF_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
OF_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def coordinator(broker: ScriptedBroker, code: int = 0) -> dict[str, object]:
    return {
        "error_code": code,
        "error_message": None,
        "node_id": 1,
        "host": "127.0.0.1",
        "port": broker.port,
    }


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (OF_TOPIC, TopicAuthorizationFailedError),
        (OF_GROUP, GroupAuthorizationFailedError),
        (OF_CLUSTER, ClusterAuthorizationFailedError),
        (OF_ID, TransactionalIdAuthorizationFailedError),
    ],
)
def test_each_kind_of_resource_has_an_error(code: ErrorCode, kind: type[BrokerError]) -> None:
    error = broker_error(code, "it")
    assert type(error) is kind
    assert isinstance(error, AuthorizationError)
    assert not error.retriable


# Producer


async def test_a_topic_that_may_not_be_seen_is_refused_before_a_record_is_taken() -> None:
    async with ScriptedBroker() as broker:
        broker.scripts[ApiKey.METADATA] = lambda request: broker.metadata(
            [each.name for each in request.values.topics], error_code=OF_TOPIC
        )
        async with Producer(bootstrap_servers=broker.address, **QUICK) as producer:
            with pytest.raises(TopicAuthorizationFailedError, match="topic 't'"):
                await producer.send(TOPIC, b"x")
            del broker.scripts[ApiKey.METADATA]
            await producer.send_and_wait(TOPIC, b"x", partition=0)


async def test_without_the_permission_for_idempotence_the_producer_ends(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.INIT_PRODUCER_ID] = lambda _: {
        "error_code": OF_CLUSTER,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    async with Producer(bootstrap_servers=broker.address, **QUICK) as producer:
        with pytest.raises(ClusterAuthorizationFailedError):
            await producer.send_and_wait(TOPIC, b"x", partition=0)
    assert len(broker.seen(ApiKey.INIT_PRODUCER_ID)) == 1


# Transactions


class Transactions:
    """A broker with a coordinator; `codes` are the answers to requests by API key."""

    def __init__(self, broker: ScriptedBroker, **codes: ErrorCode) -> None:
        self.codes = codes
        broker.scripts[ApiKey.FIND_COORDINATOR] = lambda request: coordinator(
            broker, self.code("find_group" if request.values.key_type == 0 else "find_id")
        )
        broker.scripts[ApiKey.INIT_PRODUCER_ID] = lambda _: {
            "error_code": self.code("init"),
            "producer_id": 5,
            "producer_epoch": 0,
        }
        broker.scripts[ApiKey.ADD_PARTITIONS_TO_TXN] = lambda request: {
            "results_by_topic_v3_and_below": [
                {
                    "name": each.name,
                    "results_by_partition": [
                        {"partition_index": index, "partition_error_code": self.code("add")}
                        for index in each.partitions
                    ],
                }
                for each in request.values.v3_and_below_topics
            ]
        }
        broker.scripts[ApiKey.ADD_OFFSETS_TO_TXN] = lambda _: {"error_code": self.code("add_offsets")}
        broker.scripts[ApiKey.END_TXN] = lambda _: {"error_code": self.code("end")}
        broker.scripts[ApiKey.PRODUCE] = lambda request: broker.produced(request, self.code("produce"))

    def code(self, name: str) -> ErrorCode:
        return self.codes.get(name, ErrorCode.NONE)


@pytest.mark.parametrize("step", ["find_id", "init"])
async def test_a_transactional_id_that_may_not_be_used_ends_the_start(step: str) -> None:
    async with ScriptedBroker() as broker:
        Transactions(broker, **{step: OF_ID})
        producer = Producer(bootstrap_servers=broker.address, transactional_id="id", **QUICK)
        with pytest.raises(TransactionalIdAuthorizationFailedError, match="'id'"):
            await producer.start()
        await producer.stop()


@pytest.mark.parametrize(
    ("step", "code", "cause"),
    [
        ("produce", OF_TOPIC, TopicAuthorizationFailedError),
        ("add", OF_TOPIC, TopicAuthorizationFailedError),
        ("find_group", OF_GROUP, GroupAuthorizationFailedError),
        ("add_offsets", OF_GROUP, GroupAuthorizationFailedError),
    ],
)
async def test_a_topic_or_group_that_may_not_be_used_can_be_aborted(
    step: str, code: ErrorCode, cause: type[Exception], broker: ScriptedBroker
) -> None:
    script = Transactions(broker, **{step: code})
    async with Producer(bootstrap_servers=broker.address, transactional_id="id", **QUICK) as producer:
        with pytest.raises(TransactionStateError, match="has no transaction"):
            await producer.send(TOPIC, b"x")
        await producer.begin_transaction()
        if step in ("produce", "add"):
            with pytest.raises((TopicAuthorizationFailedError, TransactionAbortedError)):
                await producer.send_and_wait(TOPIC, b"x", partition=0)
        else:
            with pytest.raises(TransactionAbortableError) as caught:
                await producer.send_offsets_to_transaction(
                    {TopicPartition(TOPIC, 0): 1}, ConsumerGroupMetadata("group")
                )
            assert isinstance(caught.value.__cause__, cause)
        for refused in (
            producer.commit_transaction,
            producer.begin_transaction,
            partial(producer.send, TOPIC),
        ):
            with pytest.raises(TransactionAbortableError) as caught:
                await refused()
            assert isinstance(caught.value.__cause__, cause)
        script.codes.clear()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"x", partition=0)


async def test_a_transactional_id_that_is_taken_away_ends_the_producer(broker: ScriptedBroker) -> None:
    script = Transactions(broker)
    async with Producer(bootstrap_servers=broker.address, transactional_id="id", **QUICK) as producer:
        await producer.begin_transaction()
        script.codes["produce"] = OF_ID
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            await producer.send_and_wait(TOPIC, b"x", partition=0)
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            await producer.commit_transaction()
        with pytest.raises((TransactionalIdAuthorizationFailedError, TransactionStateError)):
            await producer.abort_transaction()


# Consumer


async def test_a_subscriber_without_a_group_keeps_its_positions_while_a_topic_is_forbidden() -> None:
    async with ScriptedBroker() as broker:
        codes = [ErrorCode.NONE]
        broker.scripts[ApiKey.METADATA] = lambda request: broker.metadata(
            [each.name for each in request.values.topics or []], error_code=codes[0]
        )
        never = asyncio.Event()

        async def wait(_: Request) -> None:
            await never.wait()

        for key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
            broker.scripts[key] = wait  # type: ignore[assignment]
        broker.is_concurrent = True
        async with Consumer(TOPIC, bootstrap_servers=broker.address, **QUICK) as consumer:
            key = TopicPartition(TOPIC, 0)
            consumer.seek(key, 7)
            codes[0] = OF_TOPIC
            await consumer._cluster.refresh()
            with pytest.raises(TopicAuthorizationFailedError, match="topic 't'"):
                await consumer.getone()
            codes[0] = ErrorCode.NONE
            await consumer._cluster.refresh()
            consumer.seek(key, await consumer.position(key))
            assert await consumer.getmany() == {}
            assert await consumer.position(key) == 7
            never.set()


async def test_a_group_that_may_not_be_used_is_an_error_of_the_read(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.FIND_COORDINATOR] = lambda _: coordinator(broker, OF_GROUP)
    async with Consumer(TOPIC, bootstrap_servers=broker.address, group_id="group", **QUICK) as consumer:
        with pytest.raises(GroupAuthorizationFailedError, match="'group'"):
            await consumer.getone()
        with pytest.raises(GroupAuthorizationFailedError):
            await consumer.commit({TopicPartition(TOPIC, 0): 1})


# A user that is refused while its clients run


async def test_a_user_that_is_refused_later_ends_producer_and_consumer(broker: ScriptedBroker) -> None:
    sasl = Sasl(broker, "PLAIN")
    settings: Mapping[str, Any] = {**QUICK, **user("PLAIN")}
    async with (
        Producer(bootstrap_servers=broker.address, **settings) as producer,
        Consumer(bootstrap_servers=broker.address, **settings) as consumer,
    ):
        await producer.send_and_wait(TOPIC, b"x", partition=0)
        sasl.password = "changed"
        broker.cut()
        delivery = await producer.send(TOPIC, b"x", partition=0)
        consumer.assign([TopicPartition(TOPIC, 0)])
        async with asyncio.timeout(DEADLINE_SECONDS):
            # It may have been sent before the end of the connection was noticed.
            with pytest.raises((AuthenticationError, DeliveryUncertainError)):
                await delivery
            with pytest.raises(AuthenticationError):
                await producer.send(TOPIC, b"x", partition=0)
            with pytest.raises(AuthenticationError):
                await consumer.getone()
