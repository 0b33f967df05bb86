"""What an answer to Fetch means for the partitions that it was asked for.

Owns: the step from a decoded answer to the readers: bytes, errors, positions that the log no longer holds.
Invariants: an answer is dropped for a reader that was sought elsewhere since it was asked, or that a new
leader gave the same bytes meanwhile; it is taken while the bytes lie in the connection's buffer, and nothing
here keeps a view of them.
"""

from collections.abc import Callable, Iterable
from enum import Enum

from tidelog.client.errors import CorruptRecordError, OffsetOutOfRangeError, broker_error, read_error
from tidelog.client.events import logger
from tidelog.client.fetch_session import FetchSession
from tidelog.client.partition_reader import PartitionReader
from tidelog.client.types import TopicPartition
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.hot import FetchPartitionResult, FetchResponse

__all__ = ["FetchAnswers", "Verdict"]


class Verdict(Enum):
    """How the next poll follows an answer."""

    GO_ON = "at once"
    PAUSE = "after a pause, for something in it may pass"
    ASK_ANEW = "at once and in full, for the session was lost"


class FetchAnswers:
    """`reset_timestamp` is for positions that the log does not hold, None where that is an error. The other
    two are called when metadata turned out to be old, and when a position has to be found."""

    def __init__(
        self, reset_timestamp: int | None, request_refresh: Callable[[], None], wake: Callable[[], None]
    ) -> None:
        self._reset_timestamp = reset_timestamp
        self._request_refresh = request_refresh
        self._wake = wake

    def take(
        self,
        session: FetchSession,
        response: FetchResponse,
        wanted: Iterable[tuple[PartitionReader, int, int]],
    ) -> Verdict:
        """Hand the answer to the readers, each with its generation when it was asked for, and the offset.

        Raises BrokerError for an answer that is an error as a whole.
        """
        was_incremental = session.is_incremental
        if not session.answered(response) and was_incremental:
            return Verdict.ASK_ANEW
        if response.error_code:
            raise broker_error(error_code(response.error_code), "fetch")
        asked = {each[0].key: each for each in wanted}
        is_troubled = False
        for topic, results in response.topics:
            for result in results:
                key = TopicPartition(topic, result.partition_index)
                reader, generation, offset = asked.get(key, (None, 0, 0))
                if reader is not None and (reader.generation, reader.fetch_offset) == (generation, offset):
                    is_troubled |= self._take_one(reader, result)
        return Verdict.PAUSE if is_troubled else Verdict.GO_ON

    def _take_one(self, reader: PartitionReader, result: FetchPartitionResult) -> bool:
        """Whether it calls for a pause."""
        code = error_code(result.error_code)
        what = f"{reader.key.topic}-{reader.key.partition}"
        if code is ErrorCode.NONE:
            reader.high_watermark = result.high_watermark
            try:
                if result.records:
                    reader.add(result.records)  # type: ignore[arg-type]
            except CorruptRecordError as error:
                reader.fail(error)
            return False
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._reset_timestamp is None:
                text = f"{what}: the log does not hold offset {reader.fetch_offset}"
                reader.fail(OffsetOutOfRangeError(code, text))
            elif reader.has_unread:
                # What was fetched before is still to be read; then the offset is asked for again.
                return True
            else:
                logger.warning("offset_out_of_range", partition=what, offset=reader.fetch_offset)
                reader.reset(self._reset_timestamp)
                self._wake()
            return False
        refusal = read_error(code, f"records of {what} from offset {reader.fetch_offset} on")
        if refusal.retriable:
            self._request_refresh()
            return True
        reader.fail(refusal)
        return False
