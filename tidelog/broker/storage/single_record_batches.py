"""Clients' batches of one plain record, checked together: the fast path of the checks of all batches.

Owns which batches one write may store, as they were sent. It says yes, or nothing: every batch that is
unusual, or wrong, goes through `batch_rules` and `recompression`, which have the rules and the errors.
Invariants: what passes here passes there, with the same timestamps and unchanged bytes (a property test
compares them); of the batches of a run, each but the first is the one that its producer has to send after the
one before. Pure.
"""

from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    BatchHeader,
    inspect_single_record,
    unpack_header,
)
from tidelog.protocol.records.header import ATTRIBUTES_AT, TRANSACTIONAL_BIT
from tidelog.protocol.types import Buffer

_PLAIN: Final = (0, TRANSACTIONAL_BIT)
_KEYLESS_END: Final = BATCH_HEADER_SIZE + 8
"""Of a record without a key, `inspect_single_record` checks the bytes up to here, its size and its end."""
_AS_SENT: Final = ("producer", "uncompressed")
_new_tuple = tuple.__new__


def single_record_headers(batches: Sequence[Buffer], config: LogConfig, now_ms: int) -> list[BatchHeader]:
    """The headers of the first of `batches`: of those that have one record each, which is stored as it is,
    and that one producer (or none) sent one after the other. Empty if already the first is another."""
    headers: list[BatchHeader] = []
    if config.compression_type not in _AS_SENT or config.message_timestamp_type != "CreateTime":
        return headers
    most_bytes = min(config.max_message_bytes, config.segment_bytes)
    first_ms = max(0, now_ms - config.message_timestamp_before_max_ms)
    last_ms = now_ms + config.message_timestamp_after_max_ms
    is_compacted = "compact" in config.cleanup_policy
    sender, next_sequence = None, 0
    keyless_size, keyless = 0, batches[0][:0]
    for batch in batches:
        size = len(batch)
        if not BATCH_HEADER_SIZE <= size <= most_bytes:
            break
        header = _new_tuple(BatchHeader, unpack_header(batch))
        start, length, _, magic, crc, attributes, delta, ms, latest, producer, epoch, sequence, count = header
        if count != 1 or delta or start or magic != CURRENT_MAGIC or length + LOG_OVERHEAD != size:
            break
        if attributes not in _PLAIN or ms != latest or not first_ms <= ms <= last_ms:
            break
        if producer >= 0 and (sequence < 0 or epoch < 0):
            break
        if sender is None:
            sender = producer, epoch, attributes
        # Where the sequence begins again at 0, another run begins.
        elif (producer, epoch, attributes) != sender or (producer >= 0 and sequence != next_sequence):
            break
        if crc32c(batch[ATTRIBUTES_AT:]) != crc:
            break
        if size != keyless_size or batch[BATCH_HEADER_SIZE:_KEYLESS_END] != keyless or batch[-1]:
            found = inspect_single_record(batch, header)
            if found is None or (is_compacted and found[2]):
                break
            keyless_size, keyless = size if found[2] else 0, batch[BATCH_HEADER_SIZE:_KEYLESS_END]
        headers.append(header)
        next_sequence = sequence + 1
    return headers
