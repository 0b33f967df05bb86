"""Applies an answer to Fetch to the requested partitions.

Owns: the step from a decoded answer to the readers: bytes, errors, positions that the log no longer holds.
Invariants: a partition's answer is dropped if its reader was moved by a seek since the request, got the same
bytes from a new leader, or was validated in a later leader epoch or has to be. The bytes are copied while
they are in the connection's buffer; no view of them is kept.
"""

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum

from tidelog.client.consumer.fetch_session import FetchSession
from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.client.errors import CorruptRecordError, OffsetOutOfRangeError, read_error
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.hot import NO_LEADER, FetchPartitionResult, FetchResponse
from tidelog.protocol.records import AbortedTransactions
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import broker_error
from tidelog.wire.events import logger


class Verdict(Enum):
    """When and how to send the next request after an answer."""

    GO_ON = "at once"
    PAUSE = "after a pause, because a partition has a retriable error"
    ASK_ANEW = "at once and in full, because the session was lost"


class FetchAnswers:
    """`reset_timestamp` is for positions that the log does not hold; None makes that an error. `wake` is
    called if a position must be found."""

    def __init__(self, reset_timestamp: int | None, cluster: Cluster, wake: Callable[[], None]) -> None:
        self._reset_timestamp = reset_timestamp
        self._cluster = cluster
        self._wake = wake
        self._leaders_until = 0.0

    def take(
        self,
        session: FetchSession,
        response: FetchResponse,
        wanted: Iterable[tuple[PartitionReader, int, int, int]],
    ) -> Verdict:
        """Give the answer to the readers. `wanted` has each reader with its generation, offset and leader
        epoch at the request.

        Raises BrokerError if the whole answer is an error.
        """
        was_incremental = session.is_incremental
        if not session.answered(response) and was_incremental:
            return Verdict.ASK_ANEW
        if response.error_code:
            raise broker_error(error_code(response.error_code), "fetch")
        asked = {each[0].key: each for each in wanted}
        has_failed = False
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        for topic, results in response.topics:
            for result in results:
                key = TopicPartition(str(topic), result.partition_index)
                if result.current_leader != NO_LEADER:
                    leaders[key] = result.current_leader
                if key not in asked:
                    continue
                reader, *at_request = asked[key]
                # If the position is in doubt, more records would change what is being validated.
                is_valid = reader.is_valid_in(self._cluster.image.leader_epoch(key))
                if is_valid and [reader.generation, reader.fetch_offset, reader.valid_in] == at_request:
                    has_failed |= self._take_one(reader, result)
        if leaders:
            self._cluster.leaders_named(leaders, response.node_endpoints)
        return Verdict.PAUSE if has_failed else Verdict.GO_ON

    def _take_one(self, reader: PartitionReader, result: FetchPartitionResult) -> bool:
        """Whether a pause is needed."""
        code = error_code(result.error_code)
        if result.preferred_read_replica >= 0:
            reader.read_replica = result.preferred_read_replica
            # When the leader is asked again which replica to read.
            now = asyncio.get_running_loop().time()
            reader.read_replica_until = now + self._cluster.config.metadata_max_age_ms / 1000
            if reader.read_replica not in self._cluster.image.nodes:
                # It is newer than the metadata. The leader would name it again at once.
                self.leave_read_replica(reader)
                self._cluster.request_refresh()
            self._wake()
            return False
        if code is not ErrorCode.NONE and self.leave_read_replica(reader):
            # Only the leader knows what has become of the records.
            return False
        what = f"{reader.key.topic}-{reader.key.partition}"
        if code is ErrorCode.NONE:
            reader.high_watermark = result.high_watermark
            try:
                if result.records:
                    aborted = result.aborted_transactions
                    hidden = AbortedTransactions(aborted) if aborted else None
                    reader.add(result.records, hidden)  # type: ignore[arg-type]
            except CorruptRecordError as error:
                reader.fail(error)
            return False
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            reader.lost = f"the log does not hold offset {reader.fetch_offset}"
            if self._reset_timestamp is None or not reader.has_unread:
                self.lose_position(reader, reader.lost)
            return False
        refusal = read_error(code, f"records of {what} from offset {reader.fetch_offset} on")
        if refusal.retriable:
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # A fetch names no topic id, and soon there may be another topic of this name.
                reader.doubted_image = self._cluster.image
            self._cluster.request_refresh()
            return True
        reader.fail(refusal)
        return False

    def rack(self, own: str | None) -> str:
        """The rack that requests say, or "" to read from leaders."""
        return own if own and asyncio.get_running_loop().time() >= self._leaders_until else ""

    def leave_read_replica(self, reader: PartitionReader) -> bool:
        """Read from the leader again, which is asked to name no other node for a while. Returns whether
        another node was read."""
        if reader.read_replica is None:
            return False
        logger.info(
            "read_replica_left",
            partition=f"{reader.key.topic}-{reader.key.partition}",
            node_id=reader.read_replica,
        )
        reader.read_replica = None
        pause_s = self._cluster.config.retry_backoff_max_ms / 1000
        self._leaders_until = asyncio.get_running_loop().time() + pause_s
        self._wake()
        return True

    def lose_position(self, reader: PartitionReader, reason: str) -> None:
        """The reset policy decides where the reader continues, or the read fails."""
        what = f"{reader.key.topic}-{reader.key.partition}"
        if self._reset_timestamp is None:
            lost = {reader.key: reader.fetch_offset}
            reader.fail(OffsetOutOfRangeError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{what}: {reason}", lost))
        else:
            logger.warning("offset_out_of_range", partition=what, offset=reader.fetch_offset, reason=reason)
            lost_at = reader.fetch_offset
            reader.reset(self._reset_timestamp)
            reader.lost_at = lost_at
            self._wake()
