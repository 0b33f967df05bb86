"""Reads of remote segments for consumers: in threads of their own, within a time.

Owns the threads, so that a store that hangs does not delay other work of the broker. Invariants: at most
`most_waiting` reads run or wait, others are refused; a read that takes too long continues, and a repeated
request gets its result. Event loop.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from tidelog.broker.observability.remote_counts import RemoteCounts
from tidelog.broker.storage.readable_log import ReadableLog, RemoteFound, RemoteRead
from tidelog.broker.tiering.store_threads import StoreThreads
from tidelog.protocol.errors import ApiError, ErrorCode

TOLD_EVERY_SECONDS = 60.0
_ADVICE = "check the store and its credentials; consumers of old records try again"
_DAMAGE_ADVICE = "an object is damaged or lost: stop the broker, run tidelog log verify with the store's URL"
logger = structlog.get_logger(__name__)


class RemoteFetches:
    """Reads remote segments for the consumers of one broker, in threads of its own."""

    def __init__(self, counts: RemoteCounts, threads: int, most_waiting: int) -> None:
        self.threads = StoreThreads(threads, "remote-read")
        self._counts = counts
        self._most_waiting = most_waiting
        self._tell_again_at: dict[tuple[int, type], float] = {}
        self._reading: dict[tuple[ReadableLog, int, bool], asyncio.Future[RemoteFound | ApiError]] = {}

    async def fetch(
        self, reads: Sequence[RemoteRead], max_wait_ms: int
    ) -> Mapping[tuple[ReadableLog, int], RemoteFound | ApiError]:
        """The results of those that are there in this time, by their places."""
        asked = {read.place: self._begun(read) for read in reads}
        await asyncio.wait(asked.values(), timeout=max_wait_ms / 1000)
        return {place: future.result() for place, future in asked.items() if future.done()}

    def _begun(self, read: RemoteRead) -> asyncio.Future[RemoteFound | ApiError]:
        key = (*read.place, read.with_aborted)
        future = self._reading.get(key)
        if future is not None:
            return future
        loop = asyncio.get_running_loop()
        if len(self._reading) >= self._most_waiting:
            refused = ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self._most_waiting} reads of remote segments wait (remote.log.reader.max.pending.tasks)",
            )
            self._failed(*read.place, refused)
            future = loop.create_future()
            future.set_result(refused)
            return future
        self._counts.fetch_requests += 1
        future = self._reading[key] = loop.run_in_executor(self.threads, _read, read)
        future.add_done_callback(partial(self._ended, key))
        return future

    def _ended(
        self, key: tuple[ReadableLog, int, bool], future: asyncio.Future[RemoteFound | ApiError]
    ) -> None:
        del self._reading[key]
        if not future.cancelled() and isinstance(error := future.result(), ApiError):
            self._failed(*key[:2], error)

    def _failed(self, log: ReadableLog, offset: int, error: ApiError) -> None:
        """Count it, and log it once per cause in a while: clients repeat requests at once."""
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return
        self._counts.fetch_errors += 1
        cause, now = (error.code, type(error.__cause__)), time.monotonic()
        if now >= self._tell_again_at.get(cause, 0.0):
            self._tell_again_at[cause] = now + TOLD_EVERY_SECONDS
            logger.error(
                "remote_read_failed",
                topic=log.topic,
                partition=log.partition,
                offset=offset,
                error=error.message,
                advice=_DAMAGE_ADVICE if error.code == ErrorCode.CORRUPT_MESSAGE else _ADVICE,
            )

    def close(self) -> None:
        self.threads.shutdown()


def _read(read: RemoteRead) -> RemoteFound | ApiError:
    try:
        return read.log.read_remote(read.wanted, with_aborted=read.with_aborted)
    except ApiError as error:
        return error
