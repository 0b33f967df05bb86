"""Records of one kind are encoded together, to the bytes of records encoded one by one."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.records import BATCH_HEADER_SIZE, RecordBatchBuilder, decode_batch
from tidelog.protocol.records.builder import _encode_record
from tidelog.protocol.records.runs import FIELD_SIZES, _Remembered, field_size, run_end

NOW = 1_700_000_000_000

contents = st.binary(max_size=5) | st.sampled_from([b"v" * size for size in (56, 57, 58, 63, 64, 600, 8192)])
keys = st.none() | contents
steps = st.sampled_from([0, 0, 0, 1, 30, -1])
others = st.tuples(
    st.sampled_from([0, 1, 70, 9_000, -1, 2**40]),
    keys,
    st.none() | contents | st.just(bytearray(b"mutable")),
    st.sampled_from([(), (("h", b"x"),)]),
)
runs = st.one_of(
    st.lists(st.tuples(steps, some_keys, some_values, st.just(())), max_size=90)
    for some_keys in (st.none(), st.just(b"key"), contents)
    for some_values in (st.just(b"value"), contents)
)
stretches = st.lists(st.tuples(others, runs), min_size=1, max_size=4)


@given(stretches, st.sampled_from([300, 5_000, 2**31 - 1]))
def test_records_encoded_together_are_those_encoded_singly(drawn: Any, max_size_bytes: int) -> None:
    builder = RecordBatchBuilder(max_size_bytes)
    timestamp = NOW
    expected = b""
    taken = 0
    for first, more in drawn:
        for step, key, value, headers in (first, *more):
            timestamp += step
            record = _encode_record(timestamp - NOW if taken else 0, taken, key, value, headers)
            fits = not taken or BATCH_HEADER_SIZE + len(expected) + len(record) <= max_size_bytes
            if not taken:
                timestamp = NOW
            assert builder.append(timestamp, key, value, headers) == (taken + 1 if fits else 0)
            if fits:
                expected += record
                taken += 1
            assert builder.size_bytes == BATCH_HEADER_SIZE + len(expected)
            assert builder.record_count == taken
    batch = builder.build()
    assert batch[BATCH_HEADER_SIZE:] == expected
    assert len(decode_batch(batch)) == taken


def test_what_may_change_is_not_waited_for() -> None:
    builder = RecordBatchBuilder()
    value = bytearray(b"as it was")
    for _ in range(3):
        builder.append(NOW, None, b"first")
        builder.append(NOW, None, value)  # type: ignore[arg-type]
    value[:] = b"later"
    assert [each.value for each in decode_batch(builder.build())] == [b"first", b"as it was"] * 3


def test_a_run_goes_on_past_the_offset_deltas_that_take_one_or_two_bytes() -> None:
    builder = RecordBatchBuilder()
    for number in range(8_300):
        builder.append(NOW, b"%d" % (number % 100), b"%d" % number)
    records = decode_batch(builder.build())
    assert [int(record.value or b"") for record in records] == list(range(8_300))
    assert [record.offset for record in records] == list(range(8_300))
    assert [run_end(number) for number in (0, 63, 64, 8_191, 8_192)] == [64, 64, 1_088, 8_192, 9_216]


def test_the_sizes_of_fields_are_those_of_their_lengths_and_contents() -> None:
    assert [field_size(length) for length in range(len(FIELD_SIZES))] == FIELD_SIZES
    assert [field_size(length) for length in (63, 64, 8_191, 8_192)] == [64, 66, 8_193, 8_195]


def test_lengths_that_ever_change_are_forgotten_again() -> None:
    sizes = _Remembered(field_size)
    assert [sizes[number] for number in range(10_000)][100] == 102
    assert len(sizes) < 8_193
    assert sizes[100] == 102
