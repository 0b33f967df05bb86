"""Groups of both protocols with librdkafka: members share, come, go and come back, groups move."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException
from confluent_kafka.admin import AdminClient

from tests.conformance.conftest import RunningBroker, broker_with
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.protocol.errors import ErrorCode

PARTITIONS = 6
RECORDS = 60
HEARTBEAT_MS = 100
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.initial.rebalance.delay.ms": 0,
}
VALUES = {b"%d" % number for number in range(RECORDS)}
KINDS: dict[str, dict[str, Any]] = {
    "consumer": {},
    **{
        strategy: {"protocol": "classic", "partition_assignment_strategy": strategy}
        for strategy in ("range", "cooperative-sticky")
    },
}
of_each_kind = pytest.mark.parametrize("kind", KINDS)
_numbers = count()


broker = broker_with(**SETTINGS)


def fill(address: str, topic: str, values: set[bytes]) -> None:
    messages = [
        Message(number % PARTITIONS, 1_000, None, value) for number, value in enumerate(sorted(values))
    ]
    ConfluentKafka().write(address, {topic: ("none", messages)})


class Members:
    """Consumers of one group, polled in turn. `read` counts how often each value came."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.topic = f"shared-{next(_numbers)}"
        self.group = f"group-{self.topic}"
        self.consumers: list[Consumer] = []
        self.read: dict[bytes, int] = {}
        self.revoked: list[int] = []
        ConfluentKafka().create_topics(address, {self.topic: PARTITIONS})
        fill(address, self.topic, VALUES)

    def add(self, protocol: str = "consumer", subscribed: str | None = None, **settings: Any) -> Consumer:
        of_classic = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": HEARTBEAT_MS}
        given = {**(of_classic if protocol == "classic" else {}), **settings}
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": self.group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in given.items()},
            }
        )
        self.consumers.append(consumer)
        consumer.subscribe(
            [subscribed or self.topic], on_revoke=lambda _, gone: self.revoked.append(len(gone))
        )
        return consumer

    def close(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        consumer.close()

    def poll(self) -> None:
        for consumer in self.consumers:
            message = consumer.poll(0.01)
            if message is not None:
                assert message.error() is None, message.error()
                self.read[message.value()] = self.read.get(message.value(), 0) + 1

    def shares(self) -> list[int]:
        return sorted(len(consumer.assignment()) for consumer in self.consumers)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_for(lambda: self.poll() or condition(), what, DEADLINE_SECONDS)

    def wait_for_shares(self, *expected: int) -> None:
        self.wait(lambda: self.shares() == list(expected), f"shares {expected}")
        owned = [(each.topic, each.partition) for one in self.consumers for each in one.assignment()]
        assert len(owned) == len(set(owned))

    def commit_all(self) -> None:
        """Once all is read. `read` counts from then on: members that did not come together may have read some
        records twice."""
        self.wait(self._has_committed_all, "all records")
        self.read.clear()

    def _has_committed_all(self) -> bool:
        positions = [each.offset for one in self.consumers for each in one.position(one.assignment())]
        if positions != [RECORDS // PARTITIONS] * PARTITIONS:
            return False
        try:
            for consumer in self.consumers:
                consumer.commit(asynchronous=False)
        except KafkaException:  # The group rebalances.
            return False
        return True

    def type(self) -> ConsumerGroupType:
        admin = AdminClient({"bootstrap.servers": self.address})
        listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
        return next(each.type for each in listed.valid if each.group_id == self.group)


@pytest.fixture
def members(broker: RunningBroker) -> Iterator[Members]:
    made = Members(broker.address)
    yield made
    for consumer in made.consumers:
        consumer.close()


@of_each_kind
def test_members_share_the_partitions_and_give_up_no_more_than_they_must(members: Members, kind: str) -> None:
    """Who assigns by range gives up all and gets a part again."""
    first = members.add(**KINDS[kind])
    members.wait(lambda: members.read.keys() >= VALUES, "all records")
    first.commit(asynchronous=False)
    members.add(**KINDS[kind])
    members.wait_for_shares(3, 3)
    members.add(**KINDS[kind])
    members.wait_for_shares(2, 2, 2)
    assert sum(members.revoked) == (6 + 3 + 3 if kind == "range" else 3 + 1 + 1)
    members.close(first)
    members.wait_for_shares(3, 3)
    assert set(members.read.values()) == {1}
    for consumer in members.consumers:
        assert all(each.offset == RECORDS // PARTITIONS for each in consumer.committed(consumer.assignment()))


@of_each_kind
def test_a_static_member_gets_its_partitions_again_without_a_rebalance(members: Members, kind: str) -> None:
    other = members.add(**KINDS[kind], group_instance_id="other")
    static = members.add(**KINDS[kind], group_instance_id="i")
    members.wait_for_shares(3, 3)
    share, rest, rebalances = static.assignment(), other.assignment(), len(members.revoked)
    members.close(static)
    back = members.add(**KINDS[kind], group_instance_id="i")
    members.wait(back.assignment, "partitions")
    assert sorted(back.assignment()) == sorted(share)
    assert other.assignment() == rest
    # Closing a consumer calls its own callback.
    assert len(members.revoked) == rebalances + 1


def test_a_regular_expression_and_the_topics_that_appear_and_grow(members: Members) -> None:
    members.add(subscribed=f"^{members.topic}.*")
    members.wait_for_shares(PARTITIONS)
    ConfluentKafka().create_topics(members.address, {f"{members.topic}-later": 1})
    members.wait_for_shares(PARTITIONS + 1)


@pytest.mark.parametrize("kind", ["consumer", "range"])
def test_operators_see_both_types_of_groups_and_delete_empty_ones(members: Members, kind: str) -> None:
    admin = AdminClient({"bootstrap.servers": members.address})
    of_kind = {"group_remote_assignor": "range"} if kind == "consumer" else KINDS[kind]
    consumer = members.add(client_id="observed", **of_kind)
    members.wait_for_shares(PARTITIONS)
    expected = ConsumerGroupType.CONSUMER if kind == "consumer" else ConsumerGroupType.CLASSIC
    described = admin.describe_consumer_groups([members.group])[members.group].result(DEADLINE_SECONDS)
    assert (members.type(), described.type, described.state) == (
        expected,
        expected,
        ConsumerGroupState.STABLE,
    )
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert (member.client_id, member.host) == ("observed", "/127.0.0.1")
    assert len(member.assignment.topic_partitions) == PARTITIONS
    refused = admin.delete_consumer_groups([members.group])[members.group].exception(DEADLINE_SECONDS)
    assert refused.args[0].code() == ErrorCode.NON_EMPTY_GROUP
    members.commit_all()
    members.close(consumer)
    admin.delete_consumer_groups([members.group])[members.group].result(DEADLINE_SECONDS)
    listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
    assert members.group not in {each.group_id for each in listed.valid}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_live_group_moves_to_the_new_protocol_and_back(members: Members, strategy: str) -> None:
    _, second = (members.add("classic", partition_assignment_strategy=strategy) for _ in range(2))
    members.wait_for_shares(3, 3)
    members.commit_all()
    assert members.type() is ConsumerGroupType.CLASSIC
    third = members.add()
    members.wait_for_shares(2, 2, 2)
    assert members.type() is ConsumerGroupType.CONSUMER
    members.close(second)
    members.wait_for_shares(3, 3)
    members.close(third)
    members.wait_for_shares(PARTITIONS)
    assert members.type() is ConsumerGroupType.CLASSIC
    # What was committed before the group moved is not read again.
    more = {b"more %d" % number for number in range(PARTITIONS)}
    fill(members.address, members.topic, more)
    members.wait(lambda: members.read.keys() >= more, "the later records")
    assert members.read == dict.fromkeys(more, 1)
