"""The hash by which a key gets its partition: Java's murmur2.

Owns the choice. Invariant: a record with a key gets the same partition as in the Java client, as long as the
number of partitions stays the same: murmur2 of the key's bytes, sign bit cleared, modulo all partitions, with
or without a leader. Pure. Source: org.apache.kafka.common.utils.Utils.murmur2.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


@lru_cache(64)
def _words(count: int) -> Callable[[bytes], tuple[int, ...]]:
    """Reads the first `count` words of some bytes."""
    return Struct(f"<{count}I").unpack_from


def murmur2(data: bytes) -> int:
    """Java's 32-bit murmur2, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    for k in _words(length >> 2)(data):
        k = k * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if rest := data[length & ~3 :]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition that the Java client chooses for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
