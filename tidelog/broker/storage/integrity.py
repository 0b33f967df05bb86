"""Whether bytes are the batch that belongs at their position.

Owns the check of magic, length, CRC and offset. Recovery makes it for every batch that it reads; reads make
it for batches that were not checked before. Offsets may be missing between two batches of a file only if a
log was cleaned. The CRC does not cover the leader epoch: a start sees only one that no leader had.

Pure.
"""

from collections.abc import Callable

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    CURRENT_MAGIC,
    BatchHeader,
    batch_crc_is_valid,
    read_batch_header,
)
from tidelog.protocol.types import Buffer

RESERVED_BYTES = 1 << 20
"""Where `preallocate` is set, the file of a growing segment ends at a multiple of it."""


class CorruptSegmentError(OSError):
    """The file does not hold a chain of batches where it must. The message names file and position.

    An OSError, because for readers of the log it is a disk failure like others.
    """


def is_reserved(position: int, end: int, read: Callable[[int, int], Buffer]) -> bool:
    """Whether what lies between a position and the end of a file was reserved for later batches: all of it is
    zeros, up to a multiple of `RESERVED_BYTES`. Other zeros are damage, or were never durable.

    `read` gives so many bytes at a position.
    """
    if end % RESERVED_BYTES:
        return False
    size = BATCH_HEADER_SIZE
    while position < end:
        if bytes(read(position, min(size, end - position))).strip(b"\0"):
            return False
        position, size = position + size, RESERVED_BYTES
    return True


def may_follow(base_offset: int, end_offset: int, cleaned_offset: int) -> bool:
    """Whether a batch may begin there after one that ends at `end_offset`; see `cleaned_offset`."""
    return base_offset == end_offset or end_offset < base_offset <= cleaned_offset


def problem_of(
    header: BatchHeader, data: memoryview, position: int, expected_offset: int, cleaned_offset: int
) -> str:
    """Why the bytes at `position` are not the batch that belongs there, or nothing."""
    if header.magic != CURRENT_MAGIC:
        return f"expected magic {CURRENT_MAGIC}, got {header.magic}"
    if header.size_bytes > len(data) - position:
        return f"a batch of {header.size_bytes} bytes is cut off after {len(data) - position}"
    if not batch_crc_is_valid(data, header, position):
        return "the CRC is wrong"
    if not may_follow(header.base_offset, expected_offset, cleaned_offset):
        return f"expected base offset {expected_offset}, got {header.base_offset}"
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta}"
    return ""


def good_prefix(data: memoryview, first_offset: int, cleaned_offset: int) -> tuple[int, int, str]:
    """How many bytes of `data` are good batches from `first_offset` on, the offset after them, and why it
    ends there (nothing at the end of the data)."""
    position, expected = 0, first_offset
    while position < len(data):
        try:
            header = read_batch_header(data, position)
        except ProtocolError as error:
            return position, expected, str(error)
        problem = problem_of(header, data, position, expected, cleaned_offset)
        if problem:
            return position, expected, problem
        position += header.size_bytes
        expected = header.last_offset + 1
    return position, expected, ""


def is_unfinished(tail: memoryview, size: int, offset: int) -> bool:
    """Whether a log's last `size` bytes, which begin with `tail`, may be what a killed process left.

    That is the beginning of the batch of `offset` and nothing else. `tail` holds a header if there is one.
    """
    if size < BATCH_HEADER_SIZE:
        return offset.to_bytes(8, "big").startswith(bytes(tail[:8]))
    try:
        header = read_batch_header(tail)
    except ProtocolError:
        return False
    return header.base_offset == offset and header.magic == CURRENT_MAGIC and header.size_bytes > size
