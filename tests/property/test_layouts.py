"""A batch that is laid out as an earlier one decodes as if nobody had seen that one."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.records import BATCH_HEADER_SIZE, RecordBatchBuilder, decode_batch, read_batch_header
from protocol.records import layouts as known
from protocol.records.header import write_crc

NOW = 1_700_000_000_000
counts = st.sampled_from([2, 3, 16, 63, 64, 65, 66, 130, 600])
sizes = st.sampled_from([0, 1, 20, 63, 64, 100, 1000])
deltas = st.sampled_from([0, 1, 63, 64, 10_000])


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    known._layouts.clear()
    known._seen.clear()


def built(count: int, key_size: int | None, value_size: int | None, step_ms: int, seed: int) -> bytearray:
    builder = RecordBatchBuilder()
    fill = bytes([seed])
    for index in range(count):
        key = None if key_size is None else fill * key_size
        value = None if value_size is None else fill * value_size
        builder.append(NOW + seed + (step_ms if index % 3 else 0), key, value)
    return builder.build(base_offset=seed * 1000)


def outcome(batch: bytes | bytearray) -> object:
    try:
        return decode_batch(batch)
    except ProtocolError as error:
        return str(error)


def layout_of(batch: bytearray) -> known.Layout | None:
    size = len(batch) - BATCH_HEADER_SIZE
    return known._layouts.get((BATCH_HEADER_SIZE, size, read_batch_header(batch).record_count))


@given(counts, st.none() | sizes, st.none() | sizes, deltas, st.data())
def test_a_known_layout_changes_nothing(
    count: int, key_size: int | None, value_size: int | None, step_ms: int, data: st.DataObject
) -> None:
    forget()
    for seed in (1, 2):
        earlier = bytes(built(count, key_size, value_size, step_ms, seed))
        decode_batch(earlier)
        decode_batch(memoryview(earlier))
    batch = built(count, key_size, value_size, data.draw(deltas), 3)
    for _ in range(data.draw(st.integers(0, 2))):
        near_the_start = st.integers(BATCH_HEADER_SIZE, min(len(batch) - 1, BATCH_HEADER_SIZE + 12))
        place = data.draw(near_the_start | st.integers(BATCH_HEADER_SIZE, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    write_crc(batch)
    outcomes = [outcome(bytes(batch)), outcome(memoryview(batch))]
    forget()
    assert outcomes == [outcome(bytes(batch))] * 2


@given(counts, st.none() | sizes, st.binary(min_size=4, max_size=4))
def test_a_header_that_contradicts_its_records_is_refused_as_ever(
    count: int, value_size: int | None, last_offset_delta: bytes
) -> None:
    forget()
    for seed in (1, 2):
        decode_batch(bytes(built(count, 4, value_size, 0, seed)))
    batch = built(count, 4, value_size, 0, 3)
    batch[23:27] = last_offset_delta
    write_crc(batch)
    first: Any = outcome(bytes(batch))
    forget()
    assert first == outcome(bytes(batch))


@pytest.mark.parametrize(("key_size", "value_size"), [(None, 100), (8, 100), (8, None), (0, 0), (64, 1000)])
@pytest.mark.parametrize("count", [2, 64, 65, 148, 3000])
def test_the_third_batch_of_a_kind_is_known(count: int, key_size: int | None, value_size: int | None) -> None:
    batches = [built(count, key_size, value_size, 5, seed) for seed in (1, 2, 3)]
    for batch in batches:
        assert layout_of(batch) is None or batch is batches[2]
        records = decode_batch(bytes(batch))
    assert layout_of(batches[2]) is not None
    fill = bytes([3])
    assert {record.value for record in records} == {None if value_size is None else fill * value_size}
    assert {record.key for record in records} == {None if key_size is None else fill * key_size}
    assert [record.offset for record in records] == list(range(3000, 3000 + count))


def test_what_no_layout_fits_is_not_kept() -> None:
    for seed in (1, 2, 3):
        decode_batch(bytes(built(1, None, 10, 0, seed)))
        decode_batch(bytes(built(5, None, None, 0, seed)))
        decode_batch(bytes(built(5, None, 10, 64, seed)))
        uneven = RecordBatchBuilder()
        for size in (10, 12, 8, 10):
            uneven.append(NOW, None, b"v" * size, [("h", b"")] if size == 8 else [])
        decode_batch(bytes(uneven.build()))
    assert not known._layouts


def test_layouts_are_forgotten_before_they_take_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_MOST_RECORDS", 100)
    for size in range(40):
        for seed in (1, 2):
            decode_batch(bytes(built(9, None, size, 0, seed)))
        assert 0 < sum(count for _, _, count in known._layouts) <= 100
    monkeypatch.setattr(known, "_MOST_SEEN", 10)
    for size in range(40):
        decode_batch(bytes(built(3, None, size, 0, 1)))
        assert len(known._seen) <= 10
