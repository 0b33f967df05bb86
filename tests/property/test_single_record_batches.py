"""What the fast twin of the checks of a batch passes, the checks pass too, and store as it was sent."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker.storage import support
from tests.unit.broker.storage.support import NOW_MS, open_log, outcome
from tidelog.broker.storage.batch_rules import checked_header
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.recompression import admitted
from tidelog.broker.storage.single_record_batches import single_record_headers
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    LOG_OVERHEAD,
    RecordBatchBuilder,
    read_batch_header,
    write_header,
)
from tidelog.protocol.records.header import write_crc

NOW = 1_700_000_000_000
configs = st.sampled_from(
    [
        LogConfig(),
        LogConfig(cleanup_policy=("compact",)),
        LogConfig(compression_type="uncompressed"),
        LogConfig(compression_type="lz4"),
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(max_message_bytes=100),
        LogConfig(segment_bytes=100),
        LogConfig(message_timestamp_before_max_ms=10, message_timestamp_after_max_ms=10),
    ]
)
fields: dict[str, Any] = {
    "base_offset": st.sampled_from([0, 1, -1]),
    "batch_length": st.sampled_from([49, 60, 10**6]),
    "magic": st.sampled_from([0, 1, 3]),
    "attributes": st.integers(0, 0x7F),
    "last_offset_delta": st.sampled_from([-1, 1]),
    "base_timestamp": st.sampled_from([-1, 0, NOW - 11, NOW + 1]),
    "max_timestamp": st.sampled_from([-1, 0, NOW - 11, NOW + 1, NOW + 11]),
    "producer_id": st.sampled_from([-2, 5]),
    "producer_epoch": st.sampled_from([-1, 3]),
    "base_sequence": st.sampled_from([-1, 7]),
    "record_count": st.sampled_from([-1, 0, 2]),
}
changes = st.sampled_from(sorted(fields)).flatmap(lambda name: st.tuples(st.just(name), fields[name]))


@settings(max_examples=150)
@given(
    configs,
    st.sampled_from([NOW, NOW, NOW - 10, NOW - 11, NOW + 11, -1]),
    st.sampled_from([None, b"", b"key", bytes(70)]),
    st.sampled_from([None, b"value", bytes(100)]),
    st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4]),
    st.lists(changes, max_size=2),
    st.integers(1, 2),
    st.booleans(),
)
def test_a_batch_of_one_record_that_the_twin_passes_is_stored_as_it_was_sent_by_the_rules_too(
    config: LogConfig,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    codec: Compression,
    changed: list[tuple[str, int]],
    records: int,
    is_damaged: bool,
) -> None:
    builder = RecordBatchBuilder()
    for _ in range(records):
        builder.append(timestamp, key, value)
    batch = builder.build(codec)
    write_header(batch, read_batch_header(batch)._replace(**dict(changed)))
    if is_damaged:
        batch[-1] ^= 1
    for header in single_record_headers([batch], config, NOW):
        assert not is_damaged
        assert checked_header(batch, config) == header
        latest, to_store = admitted(batch, header, config, NOW, None)
        assert to_store is batch
        assert latest == header.max_timestamp


def test_the_twin_passes_an_ordinary_record() -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, b"key", b"value")
    batch = builder.build()
    assert single_record_headers([batch], LogConfig(), NOW) == [read_batch_header(batch)]
    assert not single_record_headers([batch[:40]], LogConfig(), NOW)


@pytest.mark.parametrize("size", [None, 5, 100])
def test_a_batch_like_the_one_before_it_passes_where_it_would_pass_alone(size: int | None) -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, None, None if size is None else bytes(size))
    first = builder.build()
    longer = first + b"\0"
    write_header(longer, read_batch_header(first)._replace(batch_length=len(longer) - LOG_OVERHEAD))
    others = [longer]
    for position in (*range(BATCH_HEADER_SIZE, len(first))[:12], len(first) - 1):
        for bit in range(8):
            batch = first.copy()
            batch[position] ^= 1 << bit
            write_crc(batch)
            others.append(batch)
    for batch in others:
        alone = single_record_headers([batch], LogConfig(), NOW)
        assert single_record_headers([first, batch], LogConfig(), NOW)[1:] == alone


sends = st.tuples(
    st.integers(-1, 1),
    st.sampled_from(["next"] * 6 + ["again", "gap", "bump", "two"]),
    st.integers(-400, 400),
    st.integers(0, 60),
)


def sent(history: list[tuple[int, str, int, int]]) -> list[bytes]:
    """Batches of producers that mostly follow each other; "two" has two records."""
    batches, following = [], {-1: (0, 0), 0: (0, 0), 1: (0, 0)}
    for producer, how, shift_ms, size in history:
        epoch, sequence = following[producer]
        if how == "bump":
            epoch, sequence = epoch + 1, 0
        at = {"again": max(sequence - 1, 0), "gap": sequence + 1}.get(how, sequence)
        count = 2 if how == "two" else 1
        value, timestamp = bytes(size), NOW_MS + shift_ms
        batches.append(support.batch(producer, epoch, at, count, timestamp=timestamp, value=value))
        if how not in ("again", "gap"):
            following[producer] = epoch, sequence + count
    return batches


@settings(max_examples=25)
@given(st.lists(sends, max_size=30), st.lists(st.integers(1, 9), min_size=1), st.sampled_from([200, 500]))
def test_a_log_is_the_same_whether_batches_are_stored_in_runs_or_one_by_one(
    history: list[tuple[int, str, int, int]], sizes: list[int], segment_ms: int
) -> None:
    config = LogConfig(
        segment_bytes=700, index_interval_bytes=150, segment_index_bytes=48, segment_ms=segment_ms
    )
    batches = sent(history)
    with TemporaryDirectory() as one, TemporaryDirectory() as many:
        plain, runs = (open_log(Path(each), config=config) for each in (one, many))
        for batch in batches:
            outcome(support.append, plain, batch)
        while batches:
            for size in sizes:
                result = runs.append_run(batches[:size], 0, NOW_MS) if batches else None
                if result is not None:
                    del batches[: result.last_offset - result.base_offset + 1]
                elif batches:
                    outcome(support.append, runs, batches.pop(0))
        assert list(plain.producers.entries()) == list(runs.producers.entries())
        assert plain.appended_bytes == runs.appended_bytes
        for log in (plain, runs):
            assert log.close(clean=True)
        files = [
            sorted(each for each in Path(name).iterdir() if "snapshot" not in each.name)
            for name in (one, many)
        ]
        assert [path.name for path in files[0]] == [path.name for path in files[1]]
        assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]
