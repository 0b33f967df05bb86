"""What members of other clients write is understood, and what ours write is understood by them."""

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from tidelog.client import TopicPartition
from tidelog.client.groups.consumer_protocol import (
    Subscription,
    cooperative_user_data,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    sticky_user_data,
)
from tidelog.protocol.errors import ProtocolError

OWNED = frozenset({TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)})
TOPICS = frozenset({"a", "b"})


def test_a_subscription_comes_back_with_everything() -> None:
    data = encode_subscription(TOPICS, OWNED, 7, None)
    assert decode_subscription(data, "static") == Subscription(TOPICS, OWNED, 7, "static")


def test_aiokafka_reads_our_subscription_and_we_read_its() -> None:
    data = encode_subscription(TOPICS, OWNED, 7, b"data")
    read = ConsumerProtocolMemberMetadata.decode(data)
    assert (sorted(read.subscription), read.user_data) == (["a", "b"], b"data")
    theirs = ConsumerProtocolMemberMetadata(0, ["a", "b"], b"").encode()
    assert decode_subscription(theirs) == Subscription(TOPICS)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_kafka_python_s_subscription_of_each_version_is_read(version: int) -> None:
    part = ConsumerProtocolSubscription.TopicPartition
    owned = [part(topic="a", partitions=[0, 2]), part(topic="b", partitions=[1])]
    theirs = ConsumerProtocolSubscription(
        version=version, topics=["a", "b"], user_data=b"", owned_partitions=owned, generation_id=7
    )
    found = decode_subscription(theirs.encode())
    assert found.topics == TOPICS
    assert found.owned == (OWNED if version >= 1 else frozenset())
    assert found.generation == (7 if version >= 2 else -1)


def test_a_version_of_the_future_is_read_as_the_newest_known_one() -> None:
    data = encode_subscription(TOPICS, OWNED, 7, None)
    assert decode_subscription(b"\x00\x09" + data[2:] + b"what version 9 adds").owned == OWNED


def test_the_user_data_of_aiokafka_s_sticky_assignor_says_what_a_member_had() -> None:
    previous = [("a", [0, 2]), ("b", [1])]
    theirs = StickyAssignorUserDataV1(previous, 4).encode()
    found = decode_subscription(ConsumerProtocolMemberMetadata(0, ["a", "b"], theirs).encode())
    assert (found.owned, found.generation) == (OWNED, 4)
    ours = StickyAssignorUserDataV1.decode(sticky_user_data(OWNED, 4))
    assert (ours.previous_assignment, ours.generation) == (previous, 4)


def test_the_generation_of_a_cooperative_member_may_stand_in_its_user_data() -> None:
    theirs = ConsumerProtocolMemberMetadata(0, ["a"], cooperative_user_data(12)).encode()
    assert decode_subscription(theirs).generation == 12


@pytest.mark.parametrize("user_data", [b"?", b"\x7f\xff\xff\xff\xff", b"\x00\x00\x00\x01\x00"])
def test_user_data_that_cannot_be_read_counts_as_absent(user_data: bytes) -> None:
    data = encode_subscription(TOPICS, (), -1, user_data)
    assert decode_subscription(data) == Subscription(TOPICS)


def test_an_assignment_comes_back_and_aiokafka_reads_it_too() -> None:
    data = encode_assignment(OWNED)
    assert decode_assignment(data) == OWNED
    assert set(ConsumerProtocolMemberAssignment.decode(data).partitions()) == OWNED


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == frozenset()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff"])
def test_bytes_that_are_no_subscription_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(data)
