"""The records that a consumer may see, one bounded step of reading at a time.

Owns `StepwiseReader`: a step reads whole batches of one partition in a thread, decompresses and decodes them
there, and gives the records that match a filter. Remote segments are read by `RemoteFetches` before. What it
reads is what Fetch would give: nothing from the high watermark on, or from the last stable offset on, and
then no aborted records.

Invariants:
- at most one step runs at a time, of all visitors of a broker, so what is decompressed stays within
  `MOST_DECOMPRESSED_BYTES`; a step reads at most `STEP_BYTES`, but at least one batch;
- a step makes records one by one, and only those that may match: no list of a million records, and the
  interpreter's lock is free between two of them;
- a batch that cannot be decoded is one `Unreadable`, and reading continues after it.

Methods are for the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

from tidelog.broker.console.records.filters import Filter, find
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.log_types import READ_COMMITTED, Read, TimestampedOffset
from tidelog.broker.storage.readable_log import RemoteFound, RemoteRead
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError, again
from tidelog.protocol.records import (
    AbortedTransactions,
    BatchHeader,
    Headers,
    TimestampType,
    iter_batches,
    read_marker,
    record_bytes,
)
from tidelog.protocol.records.columns import Lists, decode_record
from tidelog.protocol.records.varints import decode_varint
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.tiering.fetches import RemoteFetches

P = ParamSpec("P")
T = TypeVar("T")
STEP_BYTES: Final = 256 * 1024
MOST_DECOMPRESSED_BYTES: Final = 32 << 20
REMOTE_SECONDS = 10.0
"""How long a visitor waits for remote storage."""
EVERYTHING: Final = Filter()


class Seen(NamedTuple):
    """A record, with the fields of `Record`, and the id of its producer: -1 for none."""

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers
    producer_id: int


class Unreadable(NamedTuple):
    """A batch whose records cannot be given, and why."""

    offset: int
    last_offset: int
    reason: str


class Step(NamedTuple):
    """What one step found: records and batches that it could not read, in order; where the next begins."""

    found: Sequence[Seen | Unreadable]
    next_offset: int
    size_bytes: int
    """How many bytes of the log it went through."""


class Limits(NamedTuple):
    """The most that one step gives: records, and bytes of them. It gives at least one record."""

    records: int
    size_bytes: int


class Batch(NamedTuple):
    """A batch without its records. `control`: the kind of a control batch, empty for any other."""

    header: BatchHeader
    is_aborted: bool
    control: str


def size_of(found: Seen | Unreadable) -> int:
    """Bytes of the key, the value and the headers."""
    if isinstance(found, Unreadable):
        return 0
    of_headers = sum(len(name) + len(value or b"") for name, value in found.headers)
    return len(found.key or b"") + len(found.value or b"") + of_headers


def start_of(replica: Replica) -> int:
    """Where the log begins, remote segments included; 0 while that is not known."""
    return max(replica.log.log_start_offset, 0)


class StepwiseReader:
    """The reading for all visitors of one broker's console."""

    def __init__(self, fetches: RemoteFetches | None) -> None:
        self._fetches = fetches
        self._turn = asyncio.Semaphore(1)

    async def in_turn(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What `work` returns, in a thread, while nothing else of the console runs in one."""
        async with self._turn:
            done = asyncio.get_running_loop().run_in_executor(None, partial(work, *arguments, **named))
            try:
                return await asyncio.shield(done)
            except asyncio.CancelledError:
                # The visitor went. The next one still waits for the thread.
                await asyncio.gather(done, return_exceptions=True)
                raise

    async def step(
        self,
        replica: Replica,
        offset: int,
        end_offset: int,
        isolation_level: int,
        limits: Limits,
        wanted: Filter = EVERYTHING,
    ) -> Step:
        """The records from `offset` on and before `end_offset`, a visible end of the replica's log.

        Raises ApiError as `Replica.read`.
        """
        read = Read(offset, STEP_BYTES, end_offset)
        work = partial(_step, replica, read, isolation_level, limits, wanted)
        return await self._read(work, replica, read, isolation_level)

    async def batches(self, replica: Replica, offset: int, end_offset: int) -> tuple[Sequence[Batch], int]:
        """The next batches from the one that holds `offset`, and where those after them begin. Raises
        ApiError as `Replica.read`."""
        read = Read(offset, STEP_BYTES, end_offset)
        return await self._read(partial(_batches, replica, read), replica, read, READ_COMMITTED)

    async def _read(
        self, work: Callable[[RemoteFound | None], T], replica: Replica, read: Read, isolation_level: int
    ) -> T:
        """What `work` makes of the local log, else of what remote storage has."""
        try:
            return await self.in_turn(work, None)
        except ApiError as error:
            found = await self._remote(replica, read, isolation_level, error)
        return await self.in_turn(work, found)

    async def _remote(
        self, replica: Replica, read: Read, isolation_level: int, refusal: ApiError
    ) -> RemoteFound:
        """What remote storage has, if `refusal` of the local read says so. Other reads go on meanwhile.

        Raises ApiError: `refusal`, or KAFKA_STORAGE_ERROR without an answer in REMOTE_SECONDS.
        """
        if self._fetches is None or refusal.code != ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            raise again(refusal)
        wanted = RemoteRead(replica.log, read, isolation_level == READ_COMMITTED)
        found = (await self._fetches.fetch([wanted], round(REMOTE_SECONDS * 1000))).get(wanted.place)
        if found is None:
            raise _unanswered()
        if isinstance(found, ApiError):
            raise again(found)
        return found

    async def offset_for_timestamp(self, replica: Replica, timestamp_ms: int) -> TimestampedOffset | None:
        """As `ReadableLog.offset_for_timestamp`. Raises ApiError, also as `step` for remote storage."""
        look_up = partial(replica.log.offset_for_timestamp, timestamp_ms)
        if self._fetches is None or replica.log.remote is None:
            return await self.in_turn(look_up)
        try:
            async with asyncio.timeout(REMOTE_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._fetches.threads, look_up)
        except TimeoutError:
            raise _unanswered() from None


def _read(replica: Replica, read: Read, isolation_level: int, remote: RemoteFound | None) -> RemoteFound:
    """Batches, `remote` if that is given, and the aborted transactions among them for who reads committed
    records. Raises ApiError."""
    if remote is not None:
        return remote
    found = replica.read(read)
    return found, replica.aborted_transactions(read, found) if isolation_level == READ_COMMITTED else []


def _unanswered() -> ApiError:
    return ApiError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"remote storage gave no answer within {REMOTE_SECONDS:g} seconds: check the store, and try again",
    )


def _batches(replica: Replica, read: Read, remote: RemoteFound | None) -> tuple[Sequence[Batch], int]:
    result, aborted = _read(replica, read, READ_COMMITTED, remote)
    hidden = AbortedTransactions(aborted)
    batches = []
    for data in result.records:
        for position, header in iter_batches(data):
            is_aborted = hidden.hides(data, position, header)
            batches.append(Batch(header, is_aborted, _control(data, position, header)))
    return batches, result.next_offset


def _control(data: Buffer, position: int, header: BatchHeader) -> str:
    if not header.is_control:
        return ""
    try:
        return "commit" if read_marker(data, position).is_commit else "abort"
    except ProtocolError:
        return "unknown"


def _step(
    replica: Replica,
    read: Read,
    isolation_level: int,
    limits: Limits,
    wanted: Filter,
    remote: RemoteFound | None,
) -> Step:
    offset = read.offset
    result, aborted = _read(replica, read, isolation_level, remote)
    hidden = AbortedTransactions(aborted)
    found: list[Seen | Unreadable] = []
    size_bytes = held_bytes = 0
    for data in result.records:
        for position, header in iter_batches(data):
            size_bytes += header.size_bytes
            if hidden.hides(data, position, header) or header.is_control or header.last_offset < offset:
                continue
            try:
                for record in _matching(data, position, header, offset, wanted):
                    found.append(record)
                    held_bytes += size_of(record)
                    if len(found) >= limits.records or held_bytes >= limits.size_bytes:
                        return Step(found, record.offset + 1, size_bytes)
            except ProtocolError as error:
                found.append(Unreadable(max(header.base_offset, offset), header.last_offset, str(error)))
    return Step(found, result.next_offset, size_bytes)


def _matching(
    data: Buffer, position: int, header: BatchHeader, offset: int, wanted: Filter
) -> Iterator[Seen]:
    """The records of a batch that match. Raises ProtocolError."""
    records, start = record_bytes(data, position, header, MOST_DECOMPRESSED_BYTES, check_crc=True)
    needles = wanted.needles
    if any(find(needle, records, start) < 0 for needle in needles):
        return
    hit = find(needles[0], records, start) if needles else start
    lists = Lists(header)  # For one record at a time: lists of its own would keep the collector busy.
    for _ in range(header.record_count):
        length, after = decode_varint(records, start)
        if hit >= after + length >= after:
            start = after + length  # The match is in a later record.
            continue
        start = decode_record(records, start, header, lists)
        key, value, headers = lists.keys.pop(), lists.values.pop(), lists.headers.pop()
        at, timestamp = lists.offsets.pop(), lists.timestamps.pop()
        if at >= offset and wanted.matches(key, value, headers):
            kind = header.timestamp_type
            timestamp = header.max_timestamp if kind else timestamp
            yield Seen(at, timestamp, kind, key, value, headers, header.producer_id)
        if needles and hit < start and (hit := find(needles[0], records, start)) < 0:
            return
