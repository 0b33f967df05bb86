"""Whatever is done to records:

what the log takes, consumers decode; all else it refuses, and stays as it was.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_inspection import any_entries, built, plainly, repeats
from tests.unit.broker.storage.support import append, batch, encoded, open_log, state
from tidelog.broker.configuration.topic_settings import TOPIC_SETTINGS
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.protocol.compression import Compression, compress, decompress
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.records import decode_batch, read_batch_header

codecs = st.sampled_from(list(Compression))
compression_types = st.sampled_from(TOPIC_SETTINGS["compression.type"].choices)
MIB = 1 << 20


@contextmanager
def opened(compression_type: str = "producer") -> Iterator[PartitionLog]:
    """A log that a producer has written to: its next sequence is 1."""
    config = LogConfig(
        message_timestamp_after_max_ms=2**63 - 1,
        max_message_bytes=8 * MIB,
        compression_type=compression_type,
    )
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder), config=config)
        append(log, batch(1, 0, 0))
        yield log
        log.close(clean=False)


def assert_stored(log: PartitionLog, data: bytes) -> None:
    """The log takes it, and a consumer reads from it what was sent."""
    count = read_batch_header(data).record_count
    assert append(log, data).last_offset == count
    (found,) = log.read(Read(1, 8 * MIB, log.end_offset)).records
    sent = [record._replace(offset=record.offset + 1) for record in decode_batch(data)]
    assert decode_batch(found) == sent


def assert_refused(log: PartitionLog, data: bytes) -> None:
    before = log.end_offset, log.size_bytes, state(log)
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.INVALID_RECORD):
        append(log, data)
    assert (log.end_offset, log.size_bytes, state(log)) == before
    assert append(log, batch(1, 0, 1)).base_offset == 1


@given(any_entries, repeats, codecs, compression_types)
def test_valid_batches_of_any_codec_are_stored(
    entries: Any, times: int, codec: Compression, compression_type: str
) -> None:
    records, header = built(entries * times)
    with opened(compression_type) as log:
        assert_stored(log, as_batch(bytes(records), header.record_count, codec))


@given(any_entries, repeats, codecs, st.data())
def test_broken_records_with_a_right_crc_are_refused(
    entries: Any, times: int, codec: Compression, data: st.DataObject
) -> None:
    records, header = built(entries * times)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(records) - 1) | st.integers(0, min(12, len(records) - 1)))
        more = data.draw(st.binary(max_size=2) | st.sampled_from([b"\x00", b"\x01", b"\x7e", b"\x80\x01"]))
        records[place : place + data.draw(st.integers(0, 2))] = more
    sent = as_batch(bytes(records), header.record_count, codec)
    with opened() as log:
        if plainly(bytes(records), read_batch_header(sent)) is None:
            assert_refused(log, sent)
        else:
            assert_stored(log, sent)


@given(any_entries, codecs, st.data())
def test_damaged_compressed_bytes_are_refused_unless_they_decode(
    entries: Any, codec: Compression, data: st.DataObject
) -> None:
    records, header = built(entries)
    packed = bytearray(compress(codec, records))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    sent = as_batch(bytes(packed), header.record_count, codec, is_compressed=True)
    try:
        found = plainly(decompress(codec, bytes(packed), 8 * MIB), read_batch_header(sent))
    except ProtocolError:
        found = None
    with opened() as log:
        if found is None:
            assert_refused(log, sent)
        else:
            assert_stored(log, sent)


def as_batch(records: bytes, count: int, codec: Compression, *, is_compressed: bool = False) -> bytes:
    return encoded(records, count, codec, is_compressed=is_compressed, producer_id=1, base_sequence=1)
