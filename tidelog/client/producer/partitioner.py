"""Chooses the partition of a record if the application does not.

Owns: the partitioners and Java's murmur2. Pure, except for the random choice of the sticky one. Invariants: a
record with a key gets the same partition as in the Java client, as long as the number of partitions stays the
same: murmur2 of the key's bytes, sign bit cleared, modulo all partitions, with or without a leader. Source:
org.apache.kafka.common.utils.Utils.murmur2, KIP-480 (sticky partitioner).
"""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias
from zlib import crc32

KeyPartitioner: TypeAlias = Callable[[bytes, int], int]
"""Maps (key, number of partitions) to a partition, always the same for the same arguments."""

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


def consistent(key: bytes | None, partitions: Sequence[int], led: Sequence[int]) -> int:
    """librdkafka's "consistent" partitioner, for `Producer(partitioner=...)`: CRC-32 of the key. Records
    without a key get the partition of the empty key."""
    return partitions[crc32(key or b"") % len(partitions)]


def next_sticky_partition(rng: random.Random, led: Sequence[int], current: int) -> int:
    """A partition for the next batch of records without a key: a random one of `led` except `current`. If
    there is no other, `current`."""
    others = [partition for partition in led if partition != current]
    return rng.choice(others) if others else current
