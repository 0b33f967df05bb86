"""How a record is identified: key and value of record `counter` of a writer's partition.

Owns the layout. The key alone determines the value, so an altered record is not recognised. Pure.
"""

import zlib

from faults.checker import Mark

_SMALLEST_BYTES = 20
_SPREAD_BYTES = 600


def record_of(mark: Mark) -> tuple[bytes, bytes]:
    """Key and value; values have 20 to 619 bytes."""
    key = b"%d/%d/%d" % mark
    return key, _value_of(key)


def mark_of(key: object, value: object) -> Mark | None:
    """The identity of this record; None if no writer makes such a record."""
    if not isinstance(key, bytes) or not isinstance(value, bytes):
        return None
    fields = key.split(b"/")
    if len(fields) != 3 or not all(each.isdigit() for each in fields) or value != _value_of(key):
        return None
    return Mark(*map(int, fields))


def _value_of(key: bytes) -> bytes:
    size_bytes = _SMALLEST_BYTES + zlib.crc32(key) % _SPREAD_BYTES
    return (key + b" ") * (size_bytes // (len(key) + 1)) + key[: size_bytes % (len(key) + 1)]
