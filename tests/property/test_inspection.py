"""What an inspection passes, every decoder takes, and what no decoder would take, it refuses."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    MOST_KEYLESS,
    BatchHeader,
    Inspection,
    RecordBatchBuilder,
    inspect_in_lanes,
    inspect_one_by_one,
    inspect_single_record,
    inspect_uniform,
    inspectable,
    read_batch_header,
)
from tidelog.protocol.records.columns import Lists, decode_record
from tidelog.protocol.records.varints import decode_varint, dense_column, distinct, encode_varint, widths

NOW = 1_700_000_000_000
sizes = st.sampled_from([0, 1, 5, 50, 55, 56, 57, 58, 63, 64, 65, 100, 400, 8180, 8192])
contents = st.none() | sizes.map(bytes) | st.binary(max_size=70)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=2)
timestamps = st.sampled_from(
    [NOW, NOW, NOW, NOW + 1, NOW + 63, NOW + 64, NOW + 5000, NOW - 5, NOW + 9000, -1]
)
entries = st.lists(st.tuples(timestamps, contents, contents, st.just([]) | headers), min_size=1, max_size=6)
alike = st.lists(
    st.tuples(timestamps, st.just(None), sizes.map(bytes), st.just([])), min_size=1, max_size=6
) | st.lists(st.tuples(timestamps, st.just(b"key"), sizes.map(bytes), st.just([])), min_size=1, max_size=6)
any_entries = st.one_of(entries, alike)
repeats = st.sampled_from([1, 1, 1, 12, 30])


def built(entries: Any) -> tuple[bytearray, BatchHeader]:
    builder = RecordBatchBuilder()
    for entry in entries:
        builder.append(*entry)
    batch = builder.build()
    return batch[BATCH_HEADER_SIZE:], read_batch_header(batch)


def plainly(records: bytes, header: BatchHeader) -> Inspection | None:
    """By the plain decoder, one record after the other; None where a consumer could not read them."""
    lists, position = Lists(header), 0
    try:
        for _ in range(header.record_count):
            attributes = records[decode_varint(records, position)[1] :][:1]
            position = decode_record(records, position, header, lists)
            if not attributes.isascii():  # Which aiokafka and kafka-python read as a varint.
                return None
    except ProtocolError:
        return None
    if position != len(records) or lists.offsets != list(range(header.record_count)):
        return None
    if any(not -(2**63) <= each < 2**63 for each in lists.timestamps):
        return None
    timed = [each for each in lists.timestamps if each != -1]
    keyless = [position for position, key in enumerate(lists.keys) if key is None]
    return comparable(Inspection(min(timed, default=-1), max(*lists.timestamps, -1), keyless))


def comparable(found: Inspection | None) -> Inspection | None:
    return found and found._replace(keyless=list(found.keyless[:MOST_KEYLESS]))


def one_by_one(records: bytes, header: BatchHeader) -> Inspection | None:
    try:
        return inspect_one_by_one(inspectable(records), header)
    except ProtocolError:
        return None


def single_record(records: bytes, header: BatchHeader) -> Inspection | None:
    return inspect_single_record(bytes(BATCH_HEADER_SIZE) + records[len(inspectable(b"")) :], header)


def assert_right(records: bytes, header: BatchHeader) -> None:
    expected = plainly(records, header)
    assert comparable(one_by_one(records, header)) == expected
    for quick in (single_record, inspect_uniform, inspect_in_lanes):
        try:
            found = quick(inspectable(records), header)
        except ProtocolError:
            assert expected is None
        else:
            assert found is None or comparable(found) == expected


@given(any_entries, repeats)
def test_valid_records_pass(entries: Any, times: int) -> None:
    records, header = built(entries * times)
    assert plainly(bytes(records), header) is not None
    assert_right(bytes(records), header)


@given(st.tuples(timestamps, contents, contents, st.just([]) | headers), st.data())
def test_a_single_record_passes_exactly_when_it_can_be_decoded(entry: Any, data: st.DataObject) -> None:
    records, header = built([entry])
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, len(records) - 1) | st.integers(0, min(7, len(records) - 1)))
        more = data.draw(st.binary(max_size=2) | st.sampled_from([b"\x00", b"\x01", b"\x7f", b"\x80\x01"]))
        records[place : place + data.draw(st.integers(0, 2))] = more
    assert_right(bytes(records), header)


@given(sizes.filter(lambda size: size < 8100), st.none() | st.binary(max_size=63), st.sampled_from([NOW, -1]))
def test_a_single_record_is_proved_in_place(size: int, key: bytes | None, timestamp: int) -> None:
    records, header = built([(timestamp, key, bytes(size))])
    keyless = [0] if key is None else []
    assert comparable(single_record(inspectable(records), header)) == Inspection(
        timestamp, timestamp, keyless
    )


def test_a_length_of_three_bytes_is_not_read_as_one_of_two() -> None:
    """All would be right behind two bytes of it, with the third one for the attributes."""
    key, value = encode_varint(63) + bytes(63), encode_varint(8180) + bytes(8180)
    length = encode_varint(3 + len(key) + len(value) + 1)
    assert (len(length), length[2]) == (3, 1)
    records = length + b"\0\0" + key + value + b"\0"
    _, header = built([(NOW, None, b"")])
    assert_right(records, header)


@given(any_entries, repeats, st.data())
def test_records_pass_exactly_when_they_can_be_decoded(entries: Any, times: int, data: st.DataObject) -> None:
    records, header = built(entries * times)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(records) - 1) | st.integers(0, min(12, len(records) - 1)))
        more = data.draw(st.binary(max_size=2) | st.sampled_from([b"\x00", b"\x01", b"\x7e", b"\x80\x01"]))
        records[place : place + data.draw(st.integers(0, 2))] = more
    assert_right(bytes(records), header)


@given(any_entries, repeats, st.integers(1, 70), st.data())
def test_counts_pass_exactly_when_the_records_are_as_many(
    entries: Any, times: int, count: int, data: st.DataObject
) -> None:
    records, header = built(entries * times)
    delta = data.draw(st.sampled_from([count - 1, header.last_offset_delta]))
    assert_right(bytes(records), header._replace(record_count=count, last_offset_delta=delta))


@given(
    any_entries,
    repeats,
    st.sampled_from([-(2**63), -1, 0, 2**63 - 1, 2**63 - 64]),
)
def test_timestamps_pass_exactly_when_they_fit_into_int64(entries: Any, times: int, base: int) -> None:
    records, header = built(entries * times)
    assert_right(bytes(records), header._replace(base_timestamp=base))


@settings(max_examples=20)
@given(st.sampled_from([63, 64, 65, 8191, 8192, 8193, 8300]), sizes, st.booleans(), st.data())
@example(1_048_600, 0, True, None)
def test_many_records_are_proved_at_once(count: int, size: int, same: bool, data: Any) -> None:
    if size > 100:
        count = min(count, 65)
    if same:
        values = [bytes(size)] * count
    else:
        few = [bytes(size + each) for each in data.draw(st.lists(st.integers(0, 9), min_size=2, max_size=5))]
        values = (few * count)[:count]
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(NOW, None, value)
    batch = builder.build()
    found = Inspection(NOW, NOW, range(count))
    records, header = inspectable(batch[BATCH_HEADER_SIZE:]), read_batch_header(batch)
    if same:
        assert inspect_uniform(records, header) == found
    if max(map(len, values)) < 8100 and count >= 24:
        assert inspect_in_lanes(records, header) == found
    # A single wrong offset, the last, is noticed in any way. Behind it: key, value with its size, headers.
    wrong = bytearray(records)
    wrong[-1 - len(values[-1]) - len(encode_varint(len(values[-1]))) - 1 - 1] ^= 0x02
    assert inspect_uniform(bytes(wrong), header) is None
    assert inspect_in_lanes(bytes(wrong), header) is None
    with pytest.raises(ProtocolError, match=f"its offset delta is not {count - 1}"):
        inspect_one_by_one(bytes(wrong), header._replace(last_offset_delta=2**30))


@given(st.lists(sizes, min_size=2, max_size=4), st.integers(1, 60), st.sampled_from([0, 1, 2]), st.data())
def test_records_with_later_and_later_timestamps_are_proved_at_once(
    few: list[int], records_a_ms: int, damages: int, data: st.DataObject
) -> None:
    """Some deltas take one byte and others two, as from a producer that waits for its batches to fill."""
    builder = RecordBatchBuilder()
    for number in range(1000):
        builder.append(NOW + number // records_a_ms, None, bytes(few[number % len(few)] % 120))
    batch = builder.build()
    records, header = bytearray(batch[BATCH_HEADER_SIZE:]), read_batch_header(batch)
    found = Inspection(NOW, NOW + 999 // records_a_ms, range(1000))
    assert inspect_in_lanes(inspectable(records), header) == found
    for _ in range(damages):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    assert_right(bytes(records), header)


def test_a_short_length_is_not_taken_for_the_second_byte_of_a_long_one() -> None:
    """A record of 7 bytes behind a byte 0x80, whose value says what a length of 0x80 0x0E would mean."""
    builder = RecordBatchBuilder()
    for _ in range(30):
        builder.append(NOW, None, b"v" * 100)
    batch = builder.build()
    records, header = batch[BATCH_HEADER_SIZE:], read_batch_header(batch)
    value_size = (0x0E << 7 >> 1) - 7
    # Behind its length: attributes, timestamp, offset, no key, the two bytes of the value's size, no headers.
    short = b"\x0e" + bytes([0, 0, 2 * 29, 1]) + encode_varint(value_size) + b"\0"
    assert len(short) == 1 + 0x0E // 2
    records[-len(records) // 30 :] = short
    records[-len(short) - 2 : -len(short)] = b"\x00\x80"
    data = inspectable(records)
    assert inspect_in_lanes(data, header) is None
    with pytest.raises(ProtocolError):
        inspect_one_by_one(data, header)


@given(
    st.sampled_from([0, 1, 63, 64, 8000, 8192, 2**20, 2**27 - 9]), st.integers(0, 70), st.integers(1, 9000)
)
def test_columns_of_offset_deltas_are_those_of_their_varints(near: int, more: int, count: int) -> None:
    for width, first, length in widths(2**27):
        begin = max(near + more, first)
        end = min(begin + count, first + length)
        varints = [encode_varint(number) for number in range(begin, end)]
        assert all(len(each) == width for each in varints)
        for byte in range(width) if varints else ():
            assert dense_column(begin, end - begin, byte) == bytes(each[byte] for each in varints)


def test_a_varint_of_an_offset_is_read_as_it_is_written() -> None:
    for number in (0, 63, 64, 8191, 8192, 2**20, 2**27):
        assert decode_varint(encode_varint(number), 0) == (number, len(encode_varint(number)))


@given(st.binary() | st.lists(st.integers(0, 3), max_size=40).map(bytes))
def test_the_distinct_values_of_a_column_are_those_of_its_bytes(column: bytes) -> None:
    assert distinct(column) == set(column)
