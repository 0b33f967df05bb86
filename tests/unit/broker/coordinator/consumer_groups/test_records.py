"""The records of groups of the consumer protocol: the bytes that Kafka would write, and what they mean."""

from typing import Any
from uuid import UUID

import pytest

from tidelog.broker.coordinator.consumer_groups.group import (
    ClassicMember,
    Current,
    MemberState,
    ResolvedRegex,
    SubscribedTopic,
    Subscription,
)
from tidelog.broker.coordinator.consumer_groups.records import (
    CONSUMER_GROUP_RECORDS,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    TopicsRecord,
)
from tidelog.broker.coordinator.groups.group import Protocol
from tidelog.broker.coordinator.record_formats import RecordFormats

FORMATS = RecordFormats(CONSUMER_GROUP_RECORDS)
TOPIC = UUID(int=0x0F)
ID = "0000000000000000000000000000000f"
GROUP, MEMBER = "0001 67", "0001 6d"
MEMBER_VALUE = Subscription(
    "i", None, "c", "/h", ("t",), "a.*", 9, "range", ClassicMember(7, (Protocol("p", b"x"),))
)
# Laid out by hand from Kafka's JSON definitions: a flexible value ends with its tagged fields, an array or a
# string begins with its length plus one.
RECORDS: list[tuple[Any, str, str]] = [
    (GroupEpochRecord("g", 5), f"0003 {GROUP}", "0000 00000005 00"),
    (
        TopicsRecord("g", {"t": SubscribedTopic(TOPIC, 3)}),
        f"0004 {GROUP}",
        f"0000 02 {ID} 0274 00000003 01 00 00",
    ),
    (
        MemberRecord("g", "m", MEMBER_VALUE),
        f"0005 {GROUP} {MEMBER}",
        "0000 0269 00 0263 032f68 02 0274 04612e2a 00000009 06 72616e6765"
        "01 00 0c 01 00000007 02 0270 0278 00 00",
    ),
    (
        MemberRecord("g", "m", Subscription(rebalance_timeout_ms=9)),
        f"0005 {GROUP} {MEMBER}",
        "0000 00 00 01 01 01 00 00000009 00 00",
    ),
    (TargetEpochRecord("g", 4), f"0006 {GROUP}", "0000 00000004 00"),
    (
        TargetRecord("g", "m", {TOPIC: frozenset((1, 2))}),
        f"0007 {GROUP} {MEMBER}",
        f"0000 02 {ID} 03 00000001 00000002 00 00",
    ),
    (
        CurrentRecord(
            "g", "m", Current(4, 3, MemberState.UNREVOKED_PARTITIONS, {}, {TOPIC: frozenset((1,))})
        ),
        f"0008 {GROUP} {MEMBER}",
        f"0000 00000004 00000003 01 01 02 {ID} 02 00000001 00 00",
    ),
    (
        RegexRecord("g", "a.*", ResolvedRegex(frozenset(("ab",)), 6, 7)),
        f"0010 {GROUP} 0003 612e2a",
        "0000 02 036162 0000000000000006 0000000000000007 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), RECORDS)
def test_a_record_is_written_as_kafka_writes_it(record: Any, key: str, value: str) -> None:
    octets = bytes.fromhex(key), bytes.fromhex(value)
    assert FORMATS.encode(record) == octets
    assert FORMATS.decode(*octets) == record


@pytest.mark.parametrize(("record", "key"), [(record, key) for record, key, _ in RECORDS])
def test_a_tombstone_has_the_key_and_no_value(record: Any, key: str) -> None:
    tombstone = type(record)(*record[:-1], None)
    assert FORMATS.encode(tombstone) == (bytes.fromhex(key), None)
    assert FORMATS.decode(bytes.fromhex(key), None) == tombstone


def test_what_later_versions_of_kafka_add_as_tagged_fields_is_passed_over() -> None:
    hashed = bytes.fromhex("0000 00000005 02 00 08 0000000000000009 01 08 0000000000000001")
    assert FORMATS.decode(bytes.fromhex(f"0003 {GROUP}"), hashed) == GroupEpochRecord("g", 5)
    with_epochs = bytes.fromhex(f"0000 00000004 00000003 00 02 {ID} 02 00000001 01 00 05 02 00000004 01 00")
    current = FORMATS.decode(bytes.fromhex(f"0008 {GROUP} {MEMBER}"), with_epochs).current
    assert current == Current(4, 3, MemberState.STABLE, {TOPIC: frozenset((1,))}, {})


def test_a_member_state_of_a_later_version_is_unknown() -> None:
    value = bytes.fromhex("0000 00000004 00000003 09 01 01 00")
    record = FORMATS.decode(bytes.fromhex(f"0008 {GROUP} {MEMBER}"), value)
    assert record.current.state is MemberState.UNKNOWN
