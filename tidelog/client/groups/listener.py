"""Callbacks of an application around a rebalance.

Owns: their names, as in Kafka, and how they are called: plain functions and coroutine functions alike.
Invariant: a listener without `on_partitions_lost` gets `on_partitions_revoked` instead, as in Kafka.
"""

import inspect
from collections.abc import Awaitable
from typing import Any

from tidelog.protocol.types import TopicPartition


class ConsumerRebalanceListener:
    """Override what you need; each method may be `async`. The group waits for them, so they must be short.

    An exception that one of them raises is raised by the next read.
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are about to go to other members. None of their records is returned any more.

        With auto commit, the finished records are committed already. `Consumer.commit` still works.
        """
        return None

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are new. None of their records was returned yet, so `Consumer.seek` can set the
        start."""
        return None

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Awaitable[None] | None:
        """Other members may read these partitions already. Their offsets can no longer be committed."""
        return self.on_partitions_revoked(lost)


async def notify(listener: object, name: str, partitions: frozenset[TopicPartition]) -> None:
    """Call a method of `listener`, and wait for it. Raises what it raises."""
    method: Any = getattr(listener, name, None)
    if method is None and name == "on_partitions_lost":
        method = getattr(listener, "on_partitions_revoked", None)
    if method is None:
        return
    result = method(set(partitions))
    if inspect.isawaitable(result):
        await result
