"""Reads the partitions of a Fetch, one after the other, under the limits of `fetch_budget`.

Owns what is read of one partition, and for whom: a follower gets what is written, a consumer what is
committed, from the leader or, if it says its rack, from a follower (KIP-392). Invariants: records are never
decoded, and a batch is never cut; a refusal is the result of its partition and of no other.

Source: Kafka's ReplicaManager.readFromLog; KIP-74, KIP-392, KIP-595.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.broker.handlers.fetch_budget import FetchBudget
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.security.required_access import READ_TOPIC
from tidelog.broker.services import Services
from tidelog.broker.storage.disk import in_memory
from tidelog.broker.storage.log_types import READ_COMMITTED, READ_WRITTEN, LogEnds, Read, ReadResult
from tidelog.broker.storage.readable_log import ReadableLog, RemoteFound, RemoteRead
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.hot import FetchPartition, FetchPartitionResult, FetchRequest, TopicKey
from tidelog.protocol.records import BATCH_HEADER_SIZE, read_batch_header
from tidelog.protocol.steps import ELEMENTS_PER_STEP, Steps
from tidelog.protocol.types import NO_LEADER_EPOCH, Buffer

if TYPE_CHECKING:
    from tidelog.broker.handlers.fetch_sessions import FetchContext

_MOST_EMPTY_FILES = 64
"""Read for one partition in one step."""
_STEP_COST = 4
"""Reading one partition counts as this many elements (see `protocol.steps`)."""
_NO_REPLICA: Final = -1
Remote: TypeAlias = Mapping[tuple[ReadableLog, int], RemoteFound | ApiError]
"""What remote storage gave, by log and offset."""


class FetchPass:
    """One pass over the partitions of a request."""

    def __init__(
        self,
        services: Services,
        fetch: FetchContext,
        request: FetchRequest,
        *,
        nowait: bool,
        sends_mapped: bool = False,
        remote: Remote | None = None,
    ) -> None:
        """`remote` is what remote storage gave of what an earlier pass lacked."""
        self._services = services
        self._fetch = fetch
        self._request = request
        self._nowait = nowait
        self._sends_mapped = sends_mapped
        self._remote = remote
        self._level = level_of(request)
        config, memory = services.config, services.memory
        is_follower = request.replica_id >= 0
        selects = bool(config.replica_selector_class)
        self._is_cut_off = not is_follower and services.is_cut_off
        # Only who says its rack is sent to a follower.
        self._may_follow = bool(request.rack_id and selects and not self._is_cut_off)
        # Else what consumers read there would come with the next records only (KIP-392).
        self._tells_marks = is_follower and selects
        self._quota = services.leader_quota if is_follower else None
        # A control group may leave less memory than fetch.max.bytes.
        bound_bytes = memory.share_bytes if memory.is_short else memory.short_bytes
        self._budget = FetchBudget(min(request.max_bytes, config.fetch_max_bytes, bound_bytes))

    def read(self) -> Steps[FetchBudget]:
        """Read every partition in order. Raises ColdRead when `nowait`, and ApiError(KAFKA_STORAGE_ERROR)."""
        left, budget = ELEMENTS_PER_STEP, self._budget
        for topic, wanted in self._fetch.partitions:
            left -= _STEP_COST
            if left <= 0:
                left = ELEMENTS_PER_STEP
                self._map_nothing()
                yield
            try:
                left -= self._read_one(topic, wanted)
            except ApiError as error:
                failed = _failed(wanted.partition, error.code, self._request)
                budget.answer_without_records(topic, failed, comes_again=True)
        if left <= 0:  # To encode it takes more than this step.
            self._map_nothing()
        return budget

    def _map_nothing(self) -> None:
        """The answer is not sent in this step: until then the files may be closed, or others."""
        if not self._sends_mapped:
            return
        self._sends_mapped = False
        results = self._budget.results
        try:
            for at, (topic, result, has_records) in enumerate(results):
                if has_records:
                    records = in_memory(result.records)  # type: ignore[arg-type]
                    results[at] = topic, result._replace(records=records), has_records
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _read_one(self, topic: TopicKey, wanted: FetchPartition) -> int:
        """Read a partition; the number of aborted transactions that are named. Raises ApiError, ColdRead."""
        services, request, budget, level = self._services, self._request, self._budget, self._level
        replica = replica_of(services, self._fetch, topic, wanted.partition)
        if self._is_cut_off or (replica.is_given_up and request.replica_id < 0):
            services.check_not_replaced(replica)
        result = diverging(replica, wanted, request)
        if result is not None:
            budget.answer_without_records(topic, result, comes_again=True)
            return 0
        ends = replica.ends
        if self._tells_marks and self._fetch.is_behind(topic, wanted.partition, ends.high_watermark):
            budget.must_answer = True
        preferred = self._preferred_replica(replica, wanted) if self._may_follow else None
        if preferred is not None:
            result = _found(replica, ends, level, (), None)._replace(preferred_read_replica=preferred)
            budget.answer_without_records(topic, result, comes_again=False)
            return 0
        quota = self._quota
        is_throttled = quota is not None and quota.holds_for(
            replica.log.config.leader_replication_throttled_replicas, replica.partition
        )
        is_exceeded = quota is not None and is_throttled and quota.delay_seconds(budget.throttled_bytes) > 0
        if is_exceeded and not replica.has_in_sync(request.replica_id):
            result = _found(replica, ends, level, (), None)
            budget.answer_without_records(topic, result, comes_again=True, at_once=False)
            return 0
        read = Read(
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, budget.left_bytes),
            ends.visible(level),
            not budget.size_bytes,
            self._nowait,
            self._sends_mapped,
        )
        found, aborted = self._read_replica(replica, read)
        result = _found(replica, ends, level, found.records, aborted)
        # As in Kafka, copies are not what clients read.
        counted_as = None if level == READ_WRITTEN else replica.topic
        budget.took(topic, result, found, read, counted_as, is_throttled=is_throttled)
        return len(aborted or ())

    def _read_replica(self, replica: Replica, read: Read) -> tuple[ReadResult, list[tuple[int, int]] | None]:
        """The batches, and the aborted transactions among them, None if these are not asked for. Nothing yet
        of what is in remote storage. Raises ApiError, ColdRead."""
        try:
            if self._level != READ_WRITTEN:
                found = replica.read(read, may_follow=self._may_follow)
                found = _past_empty_files(replica, read, found)
            elif read.offset < replica.log.start_offset:
                found = _read_over_start(replica, read)
            else:
                found = replica.read(read)
            if self._request.isolation_level == READ_COMMITTED:
                return found, replica.aborted_transactions(read, found)
            return found, None
        except ApiError as error:
            if error.code != ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                raise
        budget, remote = self._budget, self._remote
        if remote is None and (read.max_bytes or not budget.remote):
            budget.read_remotely(_remote_read(replica, read, self._request, is_first=not budget.remote))
        return _remote_found(replica.log, read, remote)

    def _preferred_replica(self, replica: Replica, wanted: FetchPartition) -> int | None:
        """The broker that a consumer is to read instead of this leader (KIP-392)."""
        request, services = self._request, self._services
        if replica.leadership is None or request.replica_id >= 0:
            return None
        racks = services.catalog.racks()
        return replica.leadership.preferred_replica(
            request.rack_id, racks, services.is_live, wanted.fetch_offset
        )


def replica_of(services: Services, fetch: FetchContext, topic: TopicKey, partition: int) -> Replica:
    """The replica to read. Raises ApiError."""
    name = name_of(topic, fetch)
    if name in fetch.refused:
        raise ApiError(READ_TOPIC.refusal)
    if name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    replica = services.replicas.get((name, partition))
    if replica is None:
        raise services.missing(name, partition)
    if topic is not name and replica.topic_id != topic:
        raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
    return replica


def level_of(request: FetchRequest) -> int:
    """What the reader may see."""
    return READ_WRITTEN if request.replica_id >= 0 else request.isolation_level


def name_of(topic: TopicKey, fetch: FetchContext) -> str | None:
    """The name of a requested topic, if it is known."""
    return topic if isinstance(topic, str) else fetch.names.get(topic)


def _remote_read(replica: Replica, wanted: Read, request: FetchRequest, *, is_first: bool) -> RemoteRead:
    wanted = wanted._replace(nowait=False, at_least_one=wanted.at_least_one and is_first)
    return RemoteRead(replica.log, wanted, request.isolation_level == READ_COMMITTED)


def _remote_found(log: ReadableLog, wanted: Read, remote: Remote | None) -> RemoteFound:
    """Nothing, while remote storage has not given it. Raises ApiError."""
    found = None if remote is None else remote.get((log, wanted.offset))
    if isinstance(found, ApiError):
        raise again(found)
    return found or (ReadResult([], wanted.offset), [])


def _read_over_start(replica: Replica, wanted: Read) -> ReadResult:
    """For a follower that ends before the log's start, within which DeleteRecords put that, the batch that it
    needs next. Raises ApiError (OFFSET_OUT_OF_RANGE where that batch is not here)."""
    found = replica.read(wanted._replace(offset=replica.log.start_offset, is_sent=False))
    if not found.records or read_batch_header(found.records[0]).base_offset != wanted.offset:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return found


def _past_empty_files(replica: Replica, wanted: Read, found: ReadResult) -> ReadResult:
    """What was found for a consumer, or the batches after it if it is one batch without records: all that
    compaction left of a file. kafka-go reads the topic again from offset 1 after such an answer."""
    for _ in range(_MOST_EMPTY_FILES):
        if found.next_offset >= wanted.upper_offset or sum(map(len, found.records)) != BATCH_HEADER_SIZE:
            break
        found = replica.read(wanted._replace(offset=found.next_offset), may_follow=True)
    return found


def diverging(replica: Replica, wanted: FetchPartition, request: FetchRequest) -> FetchPartitionResult | None:
    """Where the reader's log diverges from this one, if it does (KIP-595), so that it can truncate there.

    Raises ApiError if this replica does not serve that reader.
    """
    replica.check_leader_epoch(wanted.current_leader_epoch)
    if request.replica_id >= 0:
        replica.check_follower(request.replica_id)
    if wanted.last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    epoch, end_offset = replica.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    if epoch == NO_LEADER_EPOCH:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"leader epoch {wanted.last_fetched_epoch} is not known here"
        )
    ends = replica.ends
    return FetchPartitionResult(
        wanted.partition,
        ErrorCode.NONE,
        ends.high_watermark,
        ends.last_stable,
        replica.log.start_offset,
        records=(),
        diverging_epoch=(epoch, end_offset),
    )


def _found(
    replica: Replica,
    ends: LogEnds,
    level: int,
    records: Sequence[Buffer],
    aborted: Sequence[tuple[int, int]] | None,
) -> FetchPartitionResult:
    log = replica.log
    return FetchPartitionResult(
        replica.partition,
        ErrorCode.NONE,
        ends.high_watermark,
        ends.last_stable,
        log.start_offset if log.remote is None or level == READ_WRITTEN else log.log_start_offset,
        aborted,
        _NO_REPLICA,
        records,
    )


def _failed(index: int, code: int, request: FetchRequest) -> FetchPartitionResult:
    return FetchPartitionResult(
        index,
        code,
        aborted_transactions=[] if request.isolation_level == READ_COMMITTED else None,
        records=(),
    )
