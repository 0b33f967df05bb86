"""The partitions of an internal topic as coordinators: one machine over the log of each.

Owns when the topic is created, when its partitions are replayed, and what clients are answered meanwhile.

Invariants:
- an operation runs after its whole partition was replayed. While that takes longer than `LOAD_WAIT_SECONDS`,
  clients get a retriable error;
- a partition that cannot be read or written fails for its own keys alone; its replay is tried again, at most
  once per `RELOAD_AFTER_MS`;
- a partition has a machine only if this broker leads it. It is replayed again when this broker leads it
  again: another broker may have led in between. When it stops leading, nothing continues, also no timer;
- errors of the log are answered as those of a coordinator, after which clients look for it again;
- nothing is answered while another broker may coordinate, however long ago it was asked.

On the event loop. Source: Kafka's CoordinatorRuntime and CoordinatorOperationExceptionHelper.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import structlog

from tidelog.broker.cluster.catalog import NO_LEADER, Catalog, Change
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.coordinator.decision import Operation, ResponseT
from tidelog.broker.coordinator.log_journal import LogJournal
from tidelog.broker.coordinator.record_formats import RecordFormats
from tidelog.broker.coordinator.runtime import CoordinatorRuntime, Machine
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import Topics
from tidelog.broker.tasks import Tasks
from tidelog.protocol.errors import ApiError, ErrorCode, again

LOAD_WAIT_SECONDS = 5.0
"""librdkafka asks three times, and its application gets the third refusal of a commit."""
RELOAD_AFTER_MS = 10_000
KEYS_AT_ONCE = 100
"""How many groups or ids one operation over all of them handles at a time."""
_INT32 = 0xFFFFFFFF
_LOWEST_INT32 = 0x80000000
MachineT = TypeVar("MachineT", bound=Machine[Any])
_AnswerT = TypeVar("_AnswerT")
_CODES = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.CORRUPT_MESSAGE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_COORDINATOR)
"""Why a replay ends where another broker leads, the topic is deleted or this broker stops: no disk failed."""
logger = structlog.get_logger(__name__)


class ShardKind(NamedTuple, Generic[MachineT]):
    """What the partitions of one topic hold."""

    topic: str
    formats: RecordFormats
    make_machine: Callable[[], MachineT]
    begin: Callable[[Shard[MachineT]], Awaitable[None]]
    """Called once the partition is replayed, before any operation."""
    code_of_too_large: ErrorCode
    """The answer to an operation whose records do not fit into one batch."""
    advice: str
    """What to do where a partition cannot be replayed."""
    may_wait: Callable[[Any], bool] = lambda _: False
    """Whether no answer depends on a record, so that the flush of a later one may make it durable."""
    may_grow: Callable[[Any], bool] | None = None
    """Whether the record must leave space in a batch for what follows it: see `LogJournal`."""

    def as_coordinator(self, code: ErrorCode) -> ErrorCode:
        """What a client is answered for an error of the log."""
        if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            return self.code_of_too_large
        return _CODES.get(code, code)


class CoordinatorParts(NamedTuple):
    """The parts of a broker that each coordinator uses."""

    settings: BrokerSettings
    catalog: Catalog
    topics: Topics
    replicas: Mapping[tuple[str, int], Replica]
    clock_ms: Callable[[], int]
    steady_ms: Callable[[], int]


class Shards(Generic[MachineT]):
    """The partitions of one internal topic."""

    def __init__(self, kind: ShardKind[MachineT], parts: CoordinatorParts) -> None:
        self._kind = kind
        self._parts = parts
        self._catalog, self._replicas = parts.catalog, parts.replicas
        self._shards: dict[int, Shard[MachineT]] = {}
        self._tasks = Tasks()
        self._is_closed = False
        self._is_cut_off: Callable[[], bool] = bool

    def refuse_while(self, is_cut_off: Callable[[], bool]) -> None:
        """Answer NOT_COORDINATOR while this holds, also to what was asked before."""
        self._is_cut_off = is_cut_off

    def start(self) -> None:
        """Begin to replay the partitions that this broker leads, and drop those that it leads no longer."""
        for partition in range(self.partition_count):
            with suppress(ApiError):  # Its clients get the error with their next request.
                self.of_partition(partition)
        for partition, shard in list(self._shards.items()):
            if not shard.is_led(self._replicas.get((self._kind.topic, partition))):
                del self._shards[partition]
                self._tasks.begin(shard.close())

    def follow(self, change: Change) -> None:
        """Replay partitions that this broker leads from now on, and drop others, soon after this."""
        topic = change.after or change.before
        if topic is not None and topic.name == self._kind.topic:
            self._tasks.begin(self._follow())

    async def _follow(self) -> None:
        await self._parts.topics.settled()
        if not self._is_closed:
            self.start()

    @property
    def partition_count(self) -> int:
        topic = self._catalog.topic(self._kind.topic)
        return 0 if topic is None else len(topic.partitions)

    async def make_topic(self) -> None:
        """Create the topic unless it exists. Raises ApiError(COORDINATOR_NOT_AVAILABLE)."""
        if self.partition_count:
            return
        self._refuse_if_cut_off()
        try:
            await self._parts.topics.create(self._kind.topic)
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                message = f"{self._kind.topic} cannot be created: {error.message}"
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message) from error

    def check(self, key: str) -> None:
        """Raise ApiError(COORDINATOR_NOT_AVAILABLE) if this broker does not serve the key's partition."""
        self._refuse_if_cut_off()
        try:
            shard = self.of(key)
        except ApiError as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        if shard.failure is not None:
            raise again(shard.failure)

    def _refuse_if_cut_off(self) -> None:
        if self._is_cut_off():
            message = "this broker cannot reach the cluster's store"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)

    def of(self, key: str) -> Shard[MachineT]:
        """The shard of a group or a transactional id. Raises ApiError."""
        return self.of_partition(self.partition_of(key))

    def partition_of(self, key: str) -> int:
        """The partition of a key, whichever broker leads it. Raises ApiError if there is no topic."""
        count = self.partition_count
        if not count:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self._kind.topic} does not exist")
        return partition_of(key, count)

    def leader_of(self, key: str) -> int:
        """The broker that leads a key's partition; -1 where it has no leader, or there is no topic."""
        topic = self._catalog.topic(self._kind.topic)
        if topic is None:
            return NO_LEADER
        return topic.partitions[partition_of(key, len(topic.partitions))].leader_id

    def led(self) -> Iterator[int]:
        """The partitions that this broker leads, also those that it cannot serve now."""
        topic = self._catalog.topic(self._kind.topic)
        for index, assigned in enumerate(() if topic is None else topic.partitions):
            if assigned.leader_id == self._parts.settings.config.node_id:
                yield index

    def of_partition(self, partition: int) -> Shard[MachineT]:
        """The present shard of a partition: the topic may have been deleted and created again.

        Raises ApiError.
        """
        replica = self._replicas.get((self._kind.topic, partition))
        if replica is None or replica.stopped is not None or replica.is_given_up:
            raise ApiError(
                ErrorCode.NOT_COORDINATOR, f"this broker does not serve {self._kind.topic}-{partition}"
            )
        shard = self._shards.get(partition)
        if shard is None or not shard.is_of(replica) or shard.is_to_be_replaced(self._parts.steady_ms()):
            if shard is not None:
                self._tasks.begin(shard.close())
            shard = Shard(replica, self._kind, self._parts, lambda: self._is_cut_off())
            self._shards[partition] = shard
        return shard

    async def led_and_ready(self) -> list[Shard[MachineT] | ApiError]:
        """Each partition that this broker leads, or why it cannot be read. They are awaited together."""

        async def ready(partition: int) -> Shard[MachineT] | ApiError:
            try:
                shard = self.of_partition(partition)
                await shard.ready_to_read()
            except ApiError as error:
                return error
            return shard

        return await asyncio.gather(*map(ready, self.led()))

    def machines(self) -> list[MachineT]:
        """The machines of all partitions, also of those that are being replayed."""
        return [shard.machine for shard in self._shards.values()]

    def loaded(self) -> list[Shard[MachineT]]:
        """Those that are replayed."""
        return [shard for shard in self._shards.values() if shard.is_loaded]

    async def for_each(
        self, part: Callable[[Shard[MachineT]], Awaitable[None]], event: str, advice: str
    ) -> None:
        """Run `part` on each replayed partition. One that fails is logged as `event`."""
        for shard in self.loaded():
            try:
                await part(shard)
            except ApiError as error:
                where = shard.replica
                logger.warning(
                    event, topic=where.topic, partition=where.partition, error=str(error), advice=advice
                )

    async def close(self) -> None:
        """Wait until the operations that began are done."""
        self._is_closed = True
        for shard in self._shards.values():
            await shard.close()
        await self._tasks.ended()


class Shard(Generic[MachineT]):
    """One partition's machine, its runtime, and the state of its replay."""

    def __init__(
        self,
        replica: Replica,
        kind: ShardKind[MachineT],
        parts: CoordinatorParts,
        is_cut_off: Callable[[], bool],
    ) -> None:
        self.replica = replica
        self.machine = kind.make_machine()
        self.failure: ApiError | None = None
        self.is_loaded = False
        self.is_closed = False
        """Whether its broker leads the partition no longer, or stops."""
        self._kind = kind
        self._leader_epoch = replica.leader_epoch
        self._journal: LogJournal[Any] = LogJournal(
            replica, kind.formats, parts.clock_ms, kind.may_wait, kind.may_grow
        )
        self.runtime: CoordinatorRuntime[Any] = CoordinatorRuntime(
            self.machine, self._journal, parts.steady_ms
        )
        self._steady_ms = parts.steady_ms
        self._is_cut_off = is_cut_off
        self._failed_at_ms = 0
        self._loading = asyncio.get_running_loop().create_task(self._load())

    def is_of(self, replica: Replica) -> bool:
        """Whether it was replayed in the present leader epoch."""
        return self.replica is replica and self._leader_epoch == replica.leader_epoch

    def is_led(self, present: Replica | None) -> bool:
        """Whether this broker leads the partition still, in the epoch of the replay. One whose disk failed it
        leads."""
        return present is not None and self.is_of(present) and not present.is_follower

    async def _load(self) -> None:
        try:
            await self.runtime.start()
            await self._kind.begin(self)
        except Exception as error:
            known = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, repr(error))
            if isinstance(error, ApiError):
                known = error
            self._failed_at_ms = self._steady_ms()
            self.failure = ApiError(self._kind.as_coordinator(known.code), known.message)
            if known.code not in _MOVED:
                logger.error(
                    "coordinator_not_loaded",
                    topic=self.replica.topic,
                    partition=self.replica.partition,
                    error=str(known),
                    exc_info=None if known is error else error,
                    advice=self._kind.advice,
                )
        else:
            self.is_loaded = True

    def is_to_be_replaced(self, now_ms: int) -> bool:
        return self.failure is not None and now_ms - self._failed_at_ms >= RELOAD_AFTER_MS

    async def ready(self) -> None:
        """Return once operations may run. Raises ApiError."""
        if not self.is_loaded and self.failure is None:
            await asyncio.wait([self._loading], timeout=LOAD_WAIT_SECONDS)
        if self.failure is not None:
            raise again(self.failure)
        if not self.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def ready_to_read(self) -> None:
        """As `ready`, at once while the replay waits for replicas: only what a follower confirms of the log
        is certain to be committed, and may be shown. Raises ApiError."""
        if not self.is_loaded and self.replica.in_sync_count < self.replica.least_in_sync:
            message = f"too few replicas of {self.replica.topic}-{self.replica.partition} are in sync"
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
        await self.ready()

    async def run(self, operation: Callable[[int], Any]) -> Any:
        """Run an operation of the machine once it is replayed. Raises ApiError, as of a coordinator."""
        await self.ready()
        with self._as_coordinator():
            answer = await self.runtime.run(operation)
            self._refuse_if_cut_off()  # The answer may have waited for other members of the group meanwhile.
        return answer

    def read(self, query: Callable[[], _AnswerT]) -> _AnswerT:
        """What a query of the machine finds, once that is ready to be read. Raises ApiError, as of a
        coordinator."""
        with self._as_coordinator():
            if self.is_closed:
                raise ApiError(ErrorCode.NOT_COORDINATOR, "this broker coordinates it no longer")
            self._refuse_if_cut_off()
            return self.runtime.read(query)

    @contextmanager
    def _as_coordinator(self) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            code = self._kind.as_coordinator(error.code)
            if code is error.code:
                raise
            raise ApiError(code, error.message) from error

    def _refuse_if_cut_off(self) -> None:
        if self._is_cut_off():
            raise ApiError(ErrorCode.NOT_COORDINATOR, "this broker cannot reach the cluster's store")

    async def close(self) -> None:
        self.is_closed = True
        self._journal.stop_reading()
        await asyncio.wait([self._loading])
        await self.runtime.close()


class Coordinator(Generic[MachineT]):
    """What coordinators have in common, whatever they coordinate."""

    def __init__(self, kind: ShardKind[MachineT], parts: CoordinatorParts) -> None:
        self._settings = parts.settings
        self._shards = Shards(kind, parts)
        self.make_topic = self._shards.make_topic
        self.check = self._shards.check
        self.leader_of = self._shards.leader_of
        self.refuse_while = self._shards.refuse_while
        self._tasks = Tasks()

    async def run(self, key: str, operation: Callable[[MachineT], Operation[ResponseT]]) -> ResponseT:
        """Run an operation on the machine of the key's partition.

        Raises ApiError: what the operation raises, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR, or the kind's code for more records than a batch holds.
        """
        shard = self._shards.of(key)
        answer: ResponseT = await shard.run(operation(shard.machine))
        return answer

    async def read(self, key: str, query: Callable[[MachineT], _AnswerT]) -> _AnswerT | None:
        """What a query of the key's machine finds, which shows what is committed; None if the topic does not
        exist. Raises ApiError."""
        if not self._shards.partition_count:
            return None
        shard = self._shards.of(key)
        await shard.ready_to_read()
        return shard.read(partial(query, shard.machine))

    async def _listed(
        self,
        keys_of: Callable[[MachineT], Iterable[str]],
        listed: Callable[[MachineT, Sequence[str]], Iterable[_AnswerT]],
    ) -> AsyncIterator[_AnswerT | ApiError]:
        """What `listed` finds of all keys, and the error of each partition that cannot say."""
        for shard in await self._shards.led_and_ready():
            if isinstance(shard, ApiError):
                yield shard
                continue
            try:
                for some in some_at_once(list(keys_of(shard.machine))):
                    for found in shard.read(partial(listed, shard.machine, some)):
                        yield found
            except ApiError as error:
                yield error

    def follow(self, change: Change) -> None:
        """See `Shards.follow`."""
        self._shards.follow(change)

    async def close(self) -> None:
        """Wait until the operations that began are done."""
        await self._tasks.cancel()
        await self._shards.close()


def some_at_once(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(keys), KEYS_AT_ONCE):
        yield keys[first : first + KEYS_AT_ONCE]


@lru_cache(maxsize=10_000)
def partition_of(key: str, partition_count: int) -> int:
    """The partition of a group or a transactional id, by the hash that Kafka uses: that of Java's String."""
    hashed = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        hashed = (31 * hashed + (units[position] << 8 | units[position + 1])) & _INT32
    if hashed >= _LOWEST_INT32:
        hashed = 0 if hashed == _LOWEST_INT32 else _INT32 + 1 - hashed
    return hashed % partition_count
