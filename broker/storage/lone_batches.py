"""A client's batch of one plain record, judged in one function: the fast twin of the checks of all batches.

Owns the decision that such a batch is stored as it was sent. It says yes, or nothing: every batch that is
unusual, or wrong, goes through `batch_rules` and `recompression`, which have the rules and the errors.
Invariant: what passes here passes there, with the same timestamps and unchanged bytes (a property test
compares them). Pure.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    BatchHeader,
    inspect_lone,
    unpack_header,
)
from tidelog.protocol.records.header import ATTRIBUTES_AT, TRANSACTIONAL_BIT
from tidelog.protocol.types import Buffer

_PLAIN: Final = (0, TRANSACTIONAL_BIT)
_AS_SENT: Final = ("producer", "uncompressed")
_new_tuple = tuple.__new__


def lone_header(batch: Buffer, config: LogConfig, now_ms: int) -> BatchHeader | None:
    """The header of the one batch in `batch`, whose one record is stored as it is; None for any other."""
    size = len(batch)
    if size < BATCH_HEADER_SIZE:
        return None
    header = _new_tuple(BatchHeader, unpack_header(batch))
    start, length, _, magic, crc, attributes, delta, oldest, latest, producer, epoch, sequence, count = header
    if count != 1 or delta or start or magic != CURRENT_MAGIC or length + LOG_OVERHEAD != size:
        return None
    if attributes not in _PLAIN or oldest != latest or oldest < 0:
        return None
    if producer >= 0 and (sequence < 0 or epoch < 0):
        return None
    if size > config.max_message_bytes or size > config.segment_bytes:
        return None
    if config.compression_type not in _AS_SENT or config.message_timestamp_type != "CreateTime":
        return None
    age_ms = now_ms - oldest
    if age_ms > config.message_timestamp_before_max_ms or -age_ms > config.message_timestamp_after_max_ms:
        return None
    if crc32c(memoryview(batch)[ATTRIBUTES_AT:]) != crc:
        return None
    found = inspect_lone(batch, header)
    if found is None:
        return None
    _, _, keyless = found
    return None if keyless and "compact" in config.cleanup_policy else header
