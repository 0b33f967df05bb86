"""What one pass over the partitions of a Fetch may still read, and what it has read.

Invariants: the first partition with data gives at least one batch, whatever the limits, so that a consumer
with a limit below the batch size makes progress (KIP-74); after it both limits apply. Bytes that remote
storage is to give count as read. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.handlers.fetch_sessions import PartitionKey
    from tidelog.broker.storage.log_types import Read, ReadResult
    from tidelog.broker.storage.readable_log import RemoteRead
    from tidelog.protocol.hot import FetchPartitionResult, TopicKey


class FetchBudget:
    """The limits of one pass, and its results in the order of the partitions."""

    def __init__(self, most_bytes: int) -> None:
        self.left_bytes = max(0, most_bytes)
        """What may still be read; the first partition with data may give more."""
        self.size_bytes = 0
        self.results: list[tuple[TopicKey, FetchPartitionResult, bool]] = []
        """With each result whether it has records."""
        self.sizes: dict[str, int] = {}
        """Record bytes that consumers read, by topic."""
        self.must_answer = False
        """A partition has something that is always answered at once, for example an error."""
        self.throttled_bytes = 0
        """Of replicas that the quota of replication holds for."""
        self.left: list[PartitionKey] = []
        """What a follower's next request has to check again: errors, and what did not fit into this."""
        self.remote: list[RemoteRead] = []
        """What has to be read from remote storage before this is complete."""

    def answer_without_records(
        self, topic: TopicKey, result: FetchPartitionResult, *, comes_again: bool, at_once: bool = True
    ) -> None:
        """The result of a partition that was not read."""
        self.results.append((topic, result, False))
        self.must_answer |= at_once
        if comes_again:
            self.left.append((topic, result.partition_index))

    def read_remotely(self, read: RemoteRead) -> None:
        """Remote storage is to give this."""
        self.remote.append(read)
        self.left_bytes = max(0, self.left_bytes - read.wanted.max_bytes)

    def took(
        self,
        topic: TopicKey,
        result: FetchPartitionResult,
        found: ReadResult,
        read: Read,
        counted_as: str | None,
        *,
        is_throttled: bool,
    ) -> None:
        """The result of a partition that was read; consumers of topic `counted_as` get it."""
        read_bytes = sum(map(len, found.records))
        if read_bytes:
            # A read ends with its segment or at a limit, so waiting adds nothing of this partition.
            self.must_answer |= found.next_offset < read.upper_offset
            self.size_bytes += read_bytes
            self.left_bytes = max(0, self.left_bytes - read_bytes)
            if is_throttled:
                self.throttled_bytes += read_bytes
            if counted_as is not None:
                self.sizes[counted_as] = self.sizes.get(counted_as, 0) + read_bytes
        elif read.offset < read.upper_offset:
            self.left.append((topic, result.partition_index))
        self.results.append((topic, result, read_bytes > 0))
