"""Which records of the batches in an answer were acquired."""

from uuid import UUID

from tidelog.client import TopicPartition
from tidelog.client.share.decoding import AcquiredRange, Decoded, decoded
from tidelog.client.share.held import HeldPartition
from tidelog.client.share.session import SharePartition
from tidelog.protocol.records import RecordBatchBuilder

HOLDER = HeldPartition(TopicPartition("t", 3), SharePartition(UUID(int=7), 3), 1, lambda: None)


def batch(base_offset: int, *values: bytes, is_control: bool = False) -> bytes:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(1_000, None, value)
    built = bytearray(builder.build(is_control=is_control))
    built[:8] = base_offset.to_bytes(8, "big")
    return bytes(built)


def read(data: bytes, *acquired: tuple[int, int, int]) -> Decoded:
    return decoded(HOLDER, data, [AcquiredRange(*each) for each in acquired], check_crc=True)


def test_only_acquired_records_are_returned_with_their_delivery_counts() -> None:
    data = batch(10, b"a", b"b", b"c") + batch(13, b"d", b"e")
    found = read(data, (11, 11, 2), (12, 13, 1))
    assert [(each.offset, each.value, each.delivery_count) for each in found.records] == [
        (11, b"b", 2),
        (12, b"c", 1),
        (13, b"d", 1),
    ]
    assert found.records[0].topic_partition == TopicPartition("t", 3)
    assert found.records[0].holder is HOLDER
    assert (found.gaps, found.damaged, found.error) == ([], [], None)


def test_offsets_without_a_record_are_gaps_also_those_of_markers() -> None:
    marker = batch(12, b"marker", is_control=True)
    found = read(batch(10, b"a") + marker + batch(15, b"b"), (10, 15, 1))
    assert [each.offset for each in found.records] == [10, 15]
    assert found.gaps == [11, 12, 13, 14]


def test_a_damaged_batch_costs_its_own_records_only() -> None:
    damaged = bytearray(batch(11, b"b", b"c"))
    damaged[-1] ^= 1
    found = read(batch(10, b"a") + bytes(damaged) + batch(13, b"d"), (10, 13, 1))
    assert [each.offset for each in found.records] == [10, 13]
    assert (found.gaps, found.damaged) == ([], [11, 12])
    assert "CRC" in str(found.error)


def test_what_follows_bytes_that_are_no_batch_is_damaged() -> None:
    found = read(batch(10, b"a") + bytes(70), (10, 12, 1))
    assert [each.offset for each in found.records] == [10]
    assert (found.gaps, found.damaged) == ([], [11, 12])
    assert found.error is not None
