"""Producers: what partitions remember of them, what was recognised or refused, and one producer's history.

Owns the routes and pages, the rows and their order: by topic and partition; in a partition first the
producers that it does not know, whose batches it refused, then those it knows, the latest first. Invariant: a
row is made only for the page that is asked for, however many producers there are.

Source: DescribeProducers (KIP-664), with the batches that the broker recognises.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Annotated, Final, TypedDict

from msgspec import Meta

from tidelog.broker.cluster.catalog import NO_LEADER
from tidelog.broker.console.api.topics import one_topic
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import EVENT_STREAM, Console, Listing, Page, Parameters, page, route
from tidelog.broker.console.spread import OF_LEADER, listing
from tidelog.broker.console.views.of_cluster import Listed, OfCluster
from tidelog.broker.console.views.producer_history import HistoryPiece, history
from tidelog.broker.observability.producer_outcomes import Place, ProducerOutcome
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.security.required_access import READ_TOPIC, whole
from tidelog.broker.services import Services
from tidelog.broker.storage import producer_table as table
from tidelog.broker.storage.producer_table import ProducerEntry, latest_of
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.sequences import decrement_sequence, increment_sequence
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps
from tidelog.protocol.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

_READ: Final = whole(READ_TOPIC, field="topic")
_Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_ProducerId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_MOST_PROBLEMS: Final = 100
_NOTHING: Final = ProducerOutcome()
_NO_COORDINATOR_EPOCH: Final = -1


class CachedBatch(TypedDict):
    """A batch that would be recognised if it were sent again. Offsets of -1: the log does not hold it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Refused(TypedDict):
    """Batches that were refused with one code since the start; the rest is of the last one."""

    code: str
    error_code: int
    batches: int
    producer_epoch: int
    last_ms: int
    message: str


class Producer(TypedDict):
    """A producer on a partition. Times are milliseconds since the epoch, -1 for none."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    next_sequence: int
    """-1 where the partition has no batch of its epoch."""
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    is_known: bool
    """False: the partition does not know it, and refused its batches."""
    last_append_ms: int
    """When it last wrote, by the broker's clock."""
    batches: list[CachedBatch]
    """At most five, the oldest first."""
    duplicates_in_window: int
    duplicates_below_window: int
    last_duplicate_ms: int
    refused: list[Refused]


class PartitionProblem(TypedDict):
    """Why a partition shows no producers."""

    topic: str
    partition: int
    code: str
    message: str


class Producers(OfCluster, Listed):
    """A page of producers."""

    cluster_id: str
    node_id: int
    rows: list[Producer]
    problems: list[PartitionProblem]


class ProducersAsked(Listing, frozen=True, kw_only=True):
    """Which producers are shown."""

    topic: Annotated[str | None, Meta(description="Only of this topic.")] = None
    partition: Annotated[_Partition | None, Meta(description="Only of this partition.")] = None
    producer_id: Annotated[_ProducerId | None, Meta(description="Only this producer.")] = None
    is_troubled: Annotated[bool, Meta(description="Only those with duplicates or refusals.")] = False


def listed(services: Services, may_read: Callable[[str], bool], asked: ProducersAsked) -> Steps[Producers]:
    """The producers of the topics that the caller may read, from number `offset` on.

    Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) for a topic or a partition that does not exist.
    """
    pace = Pace()
    noted: dict[Place, dict[int, ProducerOutcome]] = {}
    for place, producer_id, outcome in services.producer_outcomes.latest():
        noted.setdefault(place, {})[producer_id] = outcome
    rows: list[Producer] = []
    problems: list[PartitionProblem] = []
    total = 0
    for topic, index in (yield from _partitions(services, may_read, asked, noted)):
        if _is_elsewhere(services, topic, index):
            continue
        try:
            replica = services.replica(topic, index)
        except ApiError as error:
            problems.append(
                {"topic": topic, "partition": index, "code": error.code.name, "message": error.message}
            )
        else:
            outcomes = noted.get(Place(replica.topic_id, index), {})
            skipped, room = max(asked.offset - total, 0), asked.limit - len(rows)
            count, found = yield from _of_partition(services, replica, outcomes, asked, skipped, room)
            total += count
            rows += found
        if pace.spent():
            yield
    return {
        "cluster_id": services.catalog.cluster_id,
        "node_id": services.node_id,
        "total": total,
        "offset": asked.offset,
        "limit": asked.limit,
        "rows": rows,
        "problems": problems[:_MOST_PROBLEMS],
    }


def _is_elsewhere(services: Services, topic: str, index: int) -> bool:
    """Whether another broker leads a partition, and shows its producers."""
    known = services.catalog.topic(topic)
    if known is None or not known.has_partition(index):
        return False
    return known.partitions[index].leader_id not in (services.node_id, NO_LEADER)


def _partitions(
    services: Services, may_read: Callable[[str], bool], wanted: ProducersAsked, noted: Collection[Place]
) -> Steps[list[tuple[str, int]]]:
    """Those that are asked for; of all topics, those that have producers, or are offline."""
    pace = Pace(CHECKS_PER_STEP)
    if wanted.topic is None:
        found: dict[str, list[int]] = {}
        for (topic, index), replica in list(services.replicas.items()):
            if (
                len(replica.log.producers)
                or not replica.is_running
                or (noted and Place(replica.topic_id, index) in noted)
            ):
                found.setdefault(topic, []).append(index)
            if pace.spent():
                yield
    else:
        known = services.catalog.topic(wanted.topic)
        if known is None:
            message = f"there is no topic {wanted.topic!r}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        found = {known.name: list(range(len(known.partitions)))}
        if wanted.partition is not None and not known.has_partition(wanted.partition):
            message = f"topic {wanted.topic!r} has partitions 0 to {len(known.partitions) - 1}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return [
        (topic, index)
        for topic in sorted(found)
        if may_read(topic)
        for index in sorted(found[topic])
        if wanted.partition in (None, index)
    ]


def _of_partition(
    services: Services,
    replica: Replica,
    outcomes: Mapping[int, ProducerOutcome],
    wanted: ProducersAsked,
    skipped: int,
    room: int,
) -> Steps[tuple[int, list[Producer]]]:
    """How many rows a partition has, and at most `room` of them, after `skipped`."""
    states = replica.log.producers
    has_all = False
    if wanted.producer_id is not None:
        is_known = states.entry(wanted.producer_id) is not None and not wanted.is_troubled
        ids = [wanted.producer_id] if is_known or wanted.producer_id in outcomes else []
    elif wanted.is_troubled:
        ids = list(outcomes)
    else:
        ids = [producer_id for producer_id in outcomes if states.entry(producer_id) is None]
        has_all = True
    shown = [(each, states.entry(each)) for each in ids[skipped : skipped + room]]
    if has_all and room > len(shown) and skipped < len(ids) + len(states):
        frozen = states.freeze()
        try:
            known = yield from latest_of(frozen, max(skipped - len(ids), 0), room - len(shown))
        finally:
            states.thaw()
        shown += [(entry.producer_id, entry) for entry in known]
    rows = [_row(services, replica, *each, outcomes.get(each[0], _NOTHING)) for each in shown]
    return len(ids) + has_all * len(states), rows


def _row(
    services: Services,
    replica: Replica,
    producer_id: int,
    entry: ProducerEntry | None,
    outcome: ProducerOutcome,
) -> Producer:
    is_known = entry is not None
    if entry is None:
        epoch = max((each.producer_epoch for each in outcome.refused.values()), default=NO_PRODUCER_EPOCH)
        entry = ProducerEntry(producer_id, epoch, _NO_COORDINATOR_EPOCH, NO_OFFSET, NO_TIMESTAMP, ())
    now_ms = services.clock_ms()
    return {
        "topic": replica.topic,
        "partition": replica.partition,
        "producer_id": producer_id,
        "producer_epoch": entry.producer_epoch,
        "last_sequence": entry.last_sequence,
        "next_sequence": increment_sequence(entry.last_sequence, 1) if entry.batches else NO_SEQUENCE,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": entry.current_txn_start_offset,
        "is_known": is_known,
        "last_append_ms": now_ms - replica.log.idle_ms(entry, now_ms) if is_known else NO_TIMESTAMP,
        "batches": [_batch(batch) for batch in entry.batches],
        "duplicates_in_window": outcome.in_window,
        "duplicates_below_window": outcome.below_window,
        "last_duplicate_ms": outcome.last_duplicate_ms,
        "refused": [
            {
                "code": code.name,
                "error_code": int(code),
                "batches": refused.batches,
                "producer_epoch": refused.producer_epoch,
                "last_ms": refused.last_ms,
                "message": refused.message,
            }
            for code, refused in outcome.refused.items()
        ],
    }


def _batch(batch: table.CachedBatch) -> CachedBatch:
    return {
        "base_sequence": decrement_sequence(batch.last_sequence, batch.offset_delta),
        "last_sequence": batch.last_sequence,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "timestamp": batch.timestamp,
    }


class HistoryAsked(Parameters, frozen=True, kw_only=True):
    """Which producer's history is shown, in which partition."""

    topic: str
    partition: _Partition
    producer_id: _ProducerId


@route("GET", "/producers", needs=_READ, spread=listing(itemgetter("topic", "partition"), "problems"))
def _producers(console: Console, caller: Caller, asked: ProducersAsked) -> Steps[Producers]:
    """The producers of partitions, with their cached batches, duplicates and refusals."""
    return listed(console.services, partial(caller.may, READ_TOPIC), asked)


@route(
    "GET",
    "/topics/{topic}/partitions/{partition}/producers/{producer_id}/history",
    needs=_READ,
    stream=EVENT_STREAM,
    spread=OF_LEADER,
)
async def _history(
    console: Console, caller: Caller, asked: HistoryAsked
) -> AsyncGenerator[HistoryPiece, None]:
    """The history of a producer in a partition, checked by the rules of log verification, in pieces."""
    services = console.services
    replica = services.replica(asked.topic, asked.partition)
    return history(console.records.reader, replica, asked.producer_id, services.catalog.next_producer_id)


PAGES: Final[Sequence[Page]] = (
    page(
        "/topics/{topic}/producers",
        "Producers of a topic",
        "producers",
        topic=one_topic,
        producers=_producers,
    ),
    page("/producers", "Producers", "producers", producers=_producers),
    page("/producers/{topic}/{partition}/{producer_id}", "Producer", "producer", producers=_producers),
)
