"""The batches of a segment's file in large pieces, for readers of the whole file.

Owns the reading ahead. Only what a header needs to be one is checked; `integrity` judges a batch. Blocking.
"""

from collections.abc import Iterator

from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BATCH_HEADER_SIZE, BatchHeader, read_batch_header

_CHUNK_BYTES = 1 << 20


def batches_of(
    segment: LocalSegment, position: int, size: int
) -> Iterator[tuple[BatchHeader | str, memoryview]]:
    """Each batch with its bytes, read in large pieces; a string says why there is no further one."""
    chunk, chunk_at = memoryview(b""), position
    while position < size:
        at = position - chunk_at
        left = size - position
        if left < BATCH_HEADER_SIZE:
            yield f"{left} bytes are no batch header", chunk[:0]
            return
        if at + BATCH_HEADER_SIZE > len(chunk):
            chunk_at, at = position, 0
            chunk = segment.read_bytes(position, min(_CHUNK_BYTES, left))
        try:
            header = read_batch_header(chunk, at)
        except ProtocolError as error:
            yield str(error), chunk[:0]
            return
        if header.size_bytes > left:
            yield f"a batch of {header.size_bytes} bytes is cut off after {left}", chunk[:0]
            return
        if at + header.size_bytes > len(chunk):
            chunk_at, at = position, 0
            chunk = segment.read_bytes(position, min(max(_CHUNK_BYTES, header.size_bytes), left))
        yield header, chunk[at : at + header.size_bytes]
        position += header.size_bytes
