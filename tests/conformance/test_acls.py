"""librdkafka and the command administer ACLs; librdkafka and ours say when a permission is taken away."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaProducer

from tests.conformance.commands import typist
from tests.conformance.conftest import RunningBroker
from tests.conformance.round_trips import Way
from tests.conformance.scram_users import add_users
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.client import (
    ClusterConfig,
    Consumer,
    DeliveryNotAuthorizedError,
    Producer,
    TopicAuthorizationFailedError,
)
from tidelog.client import TopicPartition as OurPartition
from tidelog.protocol import acls as ours

PASSWORD = "secret"
MECHANISM = "SCRAM-SHA-256"
ADMIN, ALICE = "admin", "alice"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(
        tmp_path_factory.mktemp("secured"),
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        listener_security_protocol_map=("SASL_PLAINTEXT:SASL_PLAINTEXT",),
        sasl_enabled_mechanisms=(MECHANISM,),
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:admin",
        group_initial_rebalance_delay_ms=0,
    )
    add_users(running, PASSWORD, ADMIN, ALICE)
    yield running
    running.stop()


@pytest.fixture
def topic(secured: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A topic with one record, which Alice may read and write until a test says otherwise."""
    name: str = request.node.name
    secured.run(secured.broker.services.topics.create(name))
    secured.run(
        secured.broker.services.acls.create([may(ours.Operation.WRITE, name), may(ours.Operation.READ, name)])
    )
    producer = KafkaProducer(**way(secured, ADMIN).python())
    producer.send(name, b"first").get(DEADLINE_SECONDS)
    producer.close()
    return name


def may(operation: ours.Operation, name: str) -> ours.Acl:
    pattern = (ours.ResourceType.TOPIC, ours.PatternType.LITERAL, name)
    return ours.Acl(*pattern, "User:alice", "*", operation, ours.Permission.ALLOW)


def revoke(secured: RunningBroker, operation: ours.Operation, topic: str) -> None:
    secured.run(secured.broker.services.acls.delete([may(operation, topic)]))


def way(secured: RunningBroker, user: str = ALICE) -> Way:
    return Way(f"127.0.0.1:{secured.broker.port}", MECHANISM, user, PASSWORD)


def test_librdkafka_creates_describes_and_deletes_acls(secured: RunningBroker) -> None:
    admin = AdminClient(way(secured, ADMIN).librdkafka())
    acl = AclBinding(
        ResourceType.GROUP,
        "billing",
        ResourcePatternType.LITERAL,
        "User:carol",
        "10.0.0.1",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    admin.create_acls([acl])[acl].result(DEADLINE_SECONDS)
    wanted = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        "User:carol",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.describe_acls(wanted).result(DEADLINE_SECONDS) == [acl]
    assert admin.delete_acls([wanted])[wanted].result(DEADLINE_SECONDS) == [acl]
    assert admin.describe_acls(wanted).result(DEADLINE_SECONDS) == []


def test_the_command_adds_lists_and_deletes_acls(
    secured: RunningBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def properties(user: str) -> tuple[str, str]:
        file = tmp_path / f"{user}.properties"
        file.write_text(
            f"bootstrap.servers=127.0.0.1:{secured.broker.port}\nsecurity.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={MECHANISM}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{user}" password="{PASSWORD}";\n'
        )
        return "--command-config", str(file)

    tidelog, as_admin, as_alice = typist(capfd), properties(ADMIN), properties(ALICE)
    options = ("User:dave", "--operation", "describe-configs", "--operation", "Read", "--topic", "cli-")
    code, shown, problem = tidelog("acl", "add", *options, "--prefixed", *as_admin)
    assert code == 0, problem
    assert said(shown, "added") == [
        "added User:dave allow DescribeConfigs topic prefix cli- from *",
        "added User:dave allow Read topic prefix cli- from *",
    ]
    _, shown, _ = tidelog("acl", "list", "--topic", "cli-7", "--principal", "User:dave", *as_admin)
    rows = [line.split() for line in shown.splitlines() if "User:dave" in line]
    assert rows == [
        ["User:dave", "allow", "Read", "topic", "cli-", "prefixed", "*"],
        ["User:dave", "allow", "DescribeConfigs", "topic", "cli-", "prefixed", "*"],
    ]
    code, shown, _ = tidelog("acl", "delete", "User:dave", "--topic", "cli-", "--prefixed", *as_admin)
    assert (code, len(said(shown, "deleted"))) == (0, 2)
    code, _, problem = tidelog("acl", "delete", "User:dave", "--all", *as_admin)
    assert (code, "no such ACL" in problem) == (1, True)
    code, _, problem = tidelog("acl", "add", "User:dave", "--operation", "Reed", "--topic", "t", *as_admin)
    assert (code, "got 'Reed'" in problem) == (2, True)
    code, _, problem = tidelog("acl", "list", *as_alice)
    assert (code, "cluster" in problem) == (1, True), problem


def test_librdkafka_reports_a_write_that_is_no_longer_allowed(secured: RunningBroker, topic: str) -> None:
    producer = ConfluentProducer(way(secured).librdkafka())
    reported: list[KafkaError | None] = []

    def write(value: bytes) -> KafkaError | None:
        producer.produce(topic, value, on_delivery=lambda error, _: reported.append(error))
        assert producer.flush(DEADLINE_SECONDS) == 0
        return reported.pop()

    assert write(b"allowed") is None
    revoke(secured, ours.Operation.WRITE, topic)
    error = write(b"denied")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_librdkafka_reports_a_read_that_is_no_longer_allowed(secured: RunningBroker, topic: str) -> None:
    group = may(ours.Operation.READ, "any")._replace(resource_type=ours.ResourceType.GROUP)
    secured.run(secured.broker.services.acls.create([group]))
    consumer = ConfluentConsumer({**way(secured).librdkafka(), "group.id": "any", "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = until_given(lambda: consumer.poll(0.1))
    assert message.value() == b"first"
    revoke(secured, ours.Operation.READ, topic)
    message = until_given(lambda: consumer.poll(0.1))
    assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


async def test_our_clients_raise_for_what_is_no_longer_allowed_and_go_on_once_it_is(
    secured: RunningBroker, topic: str
) -> None:
    cluster = ClusterConfig(**way(secured).ours(), retry_backoff_ms=10, retry_backoff_max_ms=20)
    async with Producer(cluster=cluster) as producer, Consumer(cluster=cluster) as consumer:
        await producer.send_and_wait(topic, b"allowed", partition=0)
        consumer.assign([OurPartition(topic, 0)])
        consumer.seek(OurPartition(topic, 0), 0)
        assert [(await consumer.getone()).value for _ in range(2)] == [b"first", b"allowed"]
        for operation in (ours.Operation.WRITE, ours.Operation.READ):
            await asyncio.to_thread(revoke, secured, operation, topic)
        with pytest.raises(DeliveryNotAuthorizedError, match=rf"{topic}-0: .*TOPIC_AUTHORIZATION_FAILED"):
            await producer.send_and_wait(topic, b"denied", partition=0)
        with pytest.raises(TopicAuthorizationFailedError):
            async with asyncio.timeout(DEADLINE_SECONDS):
                await consumer.getone()
        both = [may(ours.Operation.WRITE, topic), may(ours.Operation.READ, topic)]
        await asyncio.to_thread(secured.run, secured.broker.services.acls.create(both))
        assert (await producer.send_and_wait(topic, b"allowed again", partition=0)).offset == 2
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await allowed(consumer) == b"allowed again"


async def test_a_topic_that_was_forbidden_is_read_once_it_is_allowed_and_others_before(
    secured: RunningBroker, topic: str
) -> None:
    """Subscribed to without a group, and in a group."""
    others: list[bytes | None] = []

    async def read(consumer: Consumer) -> None:
        while True:
            others.append((await consumer.getone()).value)

    secured.run(secured.broker.services.topics.create("later"))
    group = may(ours.Operation.READ, "later")._replace(resource_type=ours.ResourceType.GROUP)
    await asyncio.to_thread(secured.run, secured.broker.services.acls.create([group]))
    cluster = ClusterConfig(**way(secured).ours(), retry_backoff_ms=10, retry_backoff_max_ms=20)
    begin = {"cluster": cluster, "auto_offset_reset": "earliest"}
    async with Consumer(**begin) as alone, Consumer("later", topic, group_id="later", **begin) as member:
        alone.assign([OurPartition("later", 0)])
        async with asyncio.timeout(DEADLINE_SECONDS):
            for consumer in (alone, member):
                with pytest.raises(TopicAuthorizationFailedError):
                    await read(consumer)
            assert (others or [await allowed(member)]) == [b"first"]
        both = [may(ours.Operation.WRITE, "later"), may(ours.Operation.READ, "later")]
        await asyncio.to_thread(secured.run, secured.broker.services.acls.create(both))
        async with Producer(cluster=cluster) as producer:
            await producer.send_and_wait("later", b"later")
        async with asyncio.timeout(DEADLINE_SECONDS):
            for consumer in (alone, member):
                assert await allowed(consumer) == b"later"


async def allowed(consumer: Consumer) -> bytes | None:
    """The next value, once it may be read."""
    while True:
        try:
            return (await consumer.getone()).value
        except TopicAuthorizationFailedError:
            await asyncio.sleep(0.01)


def said(shown: str, verb: str) -> list[str]:
    """The lines of a command; the broker in this process logs between them."""
    return [line for line in shown.splitlines() if line.startswith(verb)]


def until_given(ask: Callable[[], Any]) -> Any:
    """The first answer that is not empty."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
    raise TimeoutError("nothing came")
