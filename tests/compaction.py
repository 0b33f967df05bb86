"""What Kafka's log cleaner leaves of a batch: some of its records, or none, and all else as it was."""

from collections.abc import Collection

from tidelog.protocol.compression import compress
from tidelog.protocol.records import BATCH_HEADER_SIZE, LOG_OVERHEAD, decode_batch, read_batch_header
from tidelog.protocol.records.header import write_header
from tidelog.protocol.records.varints import encode_varint
from tidelog.protocol.types import Buffer


def cleaned(batch: Buffer, kept: Collection[int]) -> bytes:
    """The one batch in `batch` with only those of its records whose offset delta is in `kept`."""
    header = read_batch_header(batch)
    records = [record for record in decode_batch(batch) if record.offset - header.base_offset in kept]
    payload = bytearray()
    for record in records:
        fields = [b"\0", encode_varint(record.timestamp - header.base_timestamp)]
        fields.append(encode_varint(record.offset - header.base_offset))
        fields += [_sized(record.key), _sized(record.value), encode_varint(len(record.headers))]
        for name, content in record.headers:
            fields += [_sized(name.encode()), _sized(content)]
        body = b"".join(fields)
        payload += encode_varint(len(body)) + body
    # An empty batch keeps its largest timestamp and no codec.
    packed = compress(header.compression, bytes(payload)) if records else b""
    latest = max((record.timestamp for record in records), default=header.max_timestamp)
    result = bytearray(BATCH_HEADER_SIZE) + packed
    write_header(
        result,
        header._replace(
            batch_length=len(result) - LOG_OVERHEAD,
            attributes=header.attributes if records else header.attributes & ~0x07,
            max_timestamp=latest,
            record_count=len(records),
        ),
    )
    return bytes(result)


def _sized(content: bytes | None) -> bytes:
    return encode_varint(-1) if content is None else encode_varint(len(content)) + content
