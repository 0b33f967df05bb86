"""Chooses the partition of a record if the application does not.

Owns: the partitioners beside that of keys (`protocol.murmur2`). Pure, except for the random choice of the
sticky one. Source: KIP-480 (sticky partitioner).
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias
from zlib import crc32

KeyPartitioner: TypeAlias = Callable[[bytes, int], int]
"""Maps (key, number of partitions) to a partition, always the same for the same arguments."""


def consistent(key: bytes | None, partitions: Sequence[int], led: Sequence[int]) -> int:
    """librdkafka's "consistent" partitioner, for `Producer(partitioner=...)`: CRC-32 of the key. Records
    without a key get the partition of the empty key."""
    return partitions[crc32(key or b"") % len(partitions)]


def next_sticky_partition(rng: random.Random, led: Sequence[int], current: int) -> int:
    """A partition for the next batch of records without a key: a random one of `led` except `current`. If
    there is no other, `current`."""
    others = [partition for partition in led if partition != current]
    return rng.choice(others) if others else current
