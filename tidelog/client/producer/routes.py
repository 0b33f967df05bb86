"""Chooses the partition of each record of one topic, and finds its queue with one look-up.

Owns: the partitioners beside that of keys (`protocol.murmur2`), the choice of partition per topic, and the
caches that make it cheap. Invariants: `queues` has one queue per partition, in order; a change of the number
of partitions clears the caches. Source: KIP-480 (sticky partitioner).
"""

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias
from zlib import crc32

from tidelog.client.arguments import whole_number
from tidelog.client.producer.accumulator import Accumulator, PartitionQueue
from tidelog.protocol.murmur2 import murmur2_partition
from tidelog.protocol.types import TopicPartition
from tidelog.wire.metadata import TopicInfo

Partitioner: TypeAlias = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""(key, all partitions, those with a leader) -> partition; aiokafka's and kafka-python's shape."""

_REMEMBERED_KEYS: Final = 65_536


def consistent(key: bytes | None, partitions: Sequence[int], led: Sequence[int]) -> int:
    """librdkafka's "consistent" partitioner, for `Producer(partitioner=...)`: CRC-32 of the key. Records
    without a key get the partition of the empty key."""
    return partitions[crc32(key or b"") % len(partitions)]


def next_sticky_partition(rng: random.Random, led: Sequence[int], current: int) -> int:
    """A partition for the next batch of records without a key: a random one of `led` except `current`. If
    there is no other, `current`."""
    others = [partition for partition in led if partition != current]
    return rng.choice(others) if others else current


class _QueuesByKey(dict[bytes, PartitionQueue]):
    """Remembers the queues of the keys that were sent last."""

    __slots__ = ("_queues",)

    def __init__(self, queues: list[PartitionQueue]) -> None:
        self._queues = queues

    def __missing__(self, key: bytes) -> PartitionQueue:
        if len(self) >= _REMEMBERED_KEYS:
            self.clear()
        queue = self[key] = self._queues[murmur2_partition(key, len(self._queues))]
        return queue


class Route:
    """Chooses partitions for one topic's records. The producer's fast path uses the public attributes."""

    __slots__ = ("_led", "_partitioner", "_rng", "by_key", "name", "queues", "sticky")

    def __init__(
        self, info: TopicInfo, accumulator: Accumulator, partitioner: Partitioner | None, rng: random.Random
    ) -> None:
        self.name = info.name
        self._partitioner = partitioner
        self._rng = rng
        self._led: list[int] = []
        self.queues: list[PartitionQueue] = []
        self.by_key = _QueuesByKey(self.queues)
        self.sticky: PartitionQueue
        self.update(info, accumulator)

    def update(self, info: TopicInfo, accumulator: Accumulator) -> None:
        self._led = [each.partition for each in info.partitions if each.leader >= 0]
        if len(info.partitions) == len(self.queues):
            return
        was_empty = not self.queues
        self.queues = [
            accumulator.queue(TopicPartition(info.name, partition))
            for partition in range(len(info.partitions))
        ]
        self.by_key = _QueuesByKey(self.queues)
        if was_empty or self.sticky.key.partition >= len(self.queues):
            self.sticky = self.queues[next_sticky_partition(self._rng, self._led, 0)]

    def choose(self, key: bytes | None) -> PartitionQueue:
        """The queue for a record without a given partition."""
        if self._partitioner is not None:
            everything = range(len(self.queues))
            chosen = self._partitioner(key, everything, self._led or everything)
            return self.named(whole_number(chosen, "the result of the partitioner"))
        return self.sticky if key is None else self.by_key[key]

    def named(self, partition: int) -> PartitionQueue:
        """The queue of this partition. Raises ValueError if the topic does not have it."""
        if not 0 <= partition < len(self.queues):
            raise ValueError(
                f"expected a partition of 0 to {len(self.queues) - 1} of topic {self.name!r}, got {partition}"
            )
        return self.queues[partition]

    def move_on(self) -> None:
        """A batch was begun: choose another partition for records without a key from now on."""
        here = self.sticky.key.partition
        self.sticky = self.queues[next_sticky_partition(self._rng, self._led, here)]
