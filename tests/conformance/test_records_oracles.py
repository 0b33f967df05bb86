"""Batches that we build are read by aiokafka and kafka-python, and theirs by us, codec by codec."""

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tidelog.protocol.compression import Compression
from tidelog.protocol.records import (
    RecordBatchBuilder,
    batch_crc_is_valid,
    decode_batch,
    read_batch_header,
    set_producer,
    with_log_append_time,
)

NOW = 1_700_000_000_000
ENTRIES: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (NOW, b"key", b"value", []),
    (NOW + 1, None, b"no key", []),
    (NOW + 70_000, b"no value", None, []),
    (NOW - 86_400_000, None, None, []),
    (NOW, b"", b"", [("", b""), ("null", None), ("naïve ☃", "grüße".encode())]),
    *(
        (NOW + index, f"key {index}".encode(), b"v" * index, [("index", bytes([index]))])
        for index in range(200)
    ),
    (NOW, None, b"large " * 20_000, []),
]

readers = pytest.mark.parametrize(
    "reader", [AiokafkaRecords, KafkaPythonRecords], ids=["aiokafka", "kafka-python"]
)
codecs = pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())


def built(codec: Compression) -> bytearray:
    builder = RecordBatchBuilder()
    for entry in ENTRIES:
        builder.append(*entry)
    return builder.build(codec, producer_id=4711, producer_epoch=3, base_sequence=2**31 - 5, base_offset=1000)


def seen_by(batch: Any) -> list[tuple[Any, ...]]:
    """What a foreign reader makes of a batch."""
    return [
        (
            record.offset,
            record.timestamp,
            record.timestamp_type,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            [tuple(header) for header in record.headers],
        )
        for record in batch
    ]


def sent(timestamp_ms: int | None = None) -> list[tuple[Any, ...]]:
    return [
        (
            1000 + index,
            entry[0] if timestamp_ms is None else timestamp_ms,
            0 if timestamp_ms is None else 1,
            *entry[1:],
        )
        for index, entry in enumerate(ENTRIES)
    ]


@readers
@codecs
def test_they_read_what_we_build(reader: Callable[[bytes], Any], codec: Compression) -> None:
    records = reader(bytes(built(codec)))
    batch = records.next_batch()
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 2**31 - 5)
    assert seen_by(batch) == sent()
    assert not records.has_next()


@readers
@codecs
def test_they_read_what_we_patch(reader: Callable[[bytes], Any], codec: Compression) -> None:
    batch = built(codec)
    set_producer(batch, 2**62, 32767, 0)
    theirs = reader(with_log_append_time(batch, NOW + 5)).next_batch()
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (2**62, 32767, 0)
    assert seen_by(theirs) == sent(timestamp_ms=NOW + 5)


@pytest.mark.parametrize("builder", [AiokafkaBuilder, KafkaPythonBuilder], ids=["aiokafka", "kafka-python"])
@codecs
def test_we_read_what_they_build(builder: Callable[..., Any], codec: Compression) -> None:
    theirs = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        batch_size=10_000_000,
    )
    for index, (timestamp, key, value, headers) in enumerate(ENTRIES):
        theirs.append(index, timestamp, key, value, headers)
    batch = bytes(theirs.build())
    header = read_batch_header(batch)
    assert batch_crc_is_valid(batch, header)
    assert header[9:] == (4711, 3, 17, len(ENTRIES))
    assert header.compression is codec
    assert [
        (record.timestamp, record.key, record.value, list(record.headers)) for record in decode_batch(batch)
    ] == ENTRIES


@codecs
def test_uncompressed_bytes_are_the_very_ones_that_they_build(codec: Compression) -> None:
    """Only the codec's output may differ, so the plain batch must not, and every header field must not."""
    ours = RecordBatchBuilder()
    theirs = KafkaPythonBuilder(2, int(codec), 0, 4711, 3, 17, 10_000_000)
    for index, (timestamp, key, value, headers) in enumerate(ENTRIES):
        ours.append(timestamp, key, value, headers)
        theirs.append(index, timestamp, key, value, headers)
    our_batch, their_batch = ours.build(codec, 4711, 3, 17), bytes(theirs.build())
    if codec is Compression.NONE:
        our_batch[12:16] = their_batch[12:16]
        assert bytes(our_batch) == their_batch
    our_header, their_header = read_batch_header(our_batch), read_batch_header(their_batch)
    assert our_header[5:] == their_header[5:]
