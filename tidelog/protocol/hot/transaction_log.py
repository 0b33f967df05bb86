"""The record of a transactional id as it is written: a hand-tuned twin of the codecs.

Owns this one form: a key of version 0, a value of version 1. Each transaction writes three of them. Reading
is left to the codecs of `messages.transaction_records`.

Invariant: what is written equals what the codecs write (`tests/property/test_hot.py`).
"""

from collections.abc import Mapping, Sequence
from struct import Struct, error
from typing import Final

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.hot.wire import CLASSIC, FLEXIBLE, write_tags

_KEY_VERSION: Final = b"\0\0"
_HEAD: Final = Struct(">hqhib")
_VALUE_VERSION: Final = 1
_TIMES: Final = Struct(">qq")
_NULL: Final = b"\0"
# The tagged fields, by tag, with the values that are left out.
_TAGGED: Final = (
    (0, Struct(">q"), -1),
    (1, Struct(">q"), -1),
    (2, Struct(">h"), 0),
    (3, Struct(">h"), -1),
    (10_000, Struct(">h"), -1),
)


def encode_transaction_log_key(transactional_id: str) -> bytes:
    """Raises ProtocolError."""
    try:
        return _KEY_VERSION + CLASSIC.write_name(transactional_id)
    except (error, UnicodeEncodeError) as problem:
        raise ProtocolError(f"transactional id: {problem}") from None


def encode_transaction_log_value(
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    status: int,
    partitions: Mapping[str, Sequence[int]] | None,
    last_update_ms: int,
    start_ms: int,
    tagged: tuple[int, int, int, int, int],
) -> bytes:
    """`tagged`: previous and next producer id, client transaction version, next and last producer epoch.

    Raises ProtocolError.
    """
    try:
        parts = [_HEAD.pack(_VALUE_VERSION, producer_id, producer_epoch, timeout_ms, status)]
        if partitions is None:
            parts.append(_NULL)
        else:
            parts.append(FLEXIBLE.write_count(len(partitions)))
            for topic, indexes in partitions.items():
                count = len(indexes)
                parts += FLEXIBLE.write_name(topic), FLEXIBLE.write_count(count)
                parts += Struct(f">{count}i").pack(*indexes), FLEXIBLE.no_tags
        parts.append(_TIMES.pack(last_update_ms, start_ms))
        fields = zip(_TAGGED, tagged, strict=True)
        present = [(tag, form.pack(value)) for (tag, form, default), value in fields if value != default]
        parts.append(write_tags(present))
        return b"".join(parts)
    except (error, UnicodeEncodeError) as problem:
        raise ProtocolError(f"state of a transactional id: {problem}") from None
