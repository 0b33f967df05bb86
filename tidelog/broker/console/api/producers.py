"""Producers: what partitions remember of them, and what was recognised or refused.

Owns the route, the rows and their order: by topic and partition; in a partition first the
producers that it does not know, whose batches it refused, then those it knows, the latest first. Invariant: a
row is made only for the page that is asked for, however many producers there are.

Source: DescribeProducers (KIP-664), with the batches that the broker recognises.
"""

from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import Annotated, Final, TypedDict

from msgspec import Meta

from tidelog.broker.cluster.catalog import NO_LEADER
from tidelog.broker.console.api.topics import existing_topic
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, listing, route
from tidelog.broker.console.shapes import From, Listed, Listing, PartitionNumber, ProducerId, row_of
from tidelog.broker.observability.producer_outcomes import Place, ProducerOutcome
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.security.required_access import READ_TOPIC
from tidelog.broker.services import Services
from tidelog.broker.storage import producer_table as table
from tidelog.broker.storage.producer_table import ProducerEntry, latest_of
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.sequences import decrement_sequence, increment_sequence
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps
from tidelog.protocol.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

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
    duplicates_in_window: Annotated[int, From("in_window")]
    duplicates_below_window: Annotated[int, From("below_window")]
    last_duplicate_ms: int
    refused: list[Refused]


class PartitionProblem(TypedDict):
    """Why a partition shows no producers."""

    topic: str
    partition: int
    code: str
    message: str


class Producers(Listed):
    cluster_id: str
    node_id: int
    rows: list[Producer]
    problems: list[PartitionProblem]


class ProducersAsked(Listing, frozen=True, kw_only=True):
    topic: Annotated[str | None, Meta(description="Only of this topic.")] = None
    partition: Annotated[PartitionNumber | None, Meta(description="Only of this partition.")] = None
    producer_id: Annotated[ProducerId | None, Meta(description="Only this producer.")] = None
    is_troubled: Annotated[bool, Meta(description="Only those with duplicates or refusals.")] = False


@route("GET", "/producers", needs=READ_TOPIC, spread=listing(itemgetter("topic", "partition"), "problems"))
def producers(console: Console, caller: Caller, asked: ProducersAsked) -> Steps[Producers]:
    """The producers of partitions, with their cached batches, duplicates and refusals."""
    services, pace = console.services, Pace()
    noted: dict[Place, dict[int, ProducerOutcome]] = {}
    for place, producer_id, outcome in services.producer_outcomes.latest():
        noted.setdefault(place, {})[producer_id] = outcome
    rows: list[Producer] = []
    problems: list[PartitionProblem] = []
    total = 0
    for topic, index in (yield from _partitions(services, caller, asked, noted)):
        try:
            replica = services.replica(topic, index)
        except ApiError as error:
            known = {"topic": topic, "partition": index}
            problems.append(row_of(PartitionProblem, known, error))
        else:
            outcomes = noted.get(Place(replica.topic_id, index), {})
            skipped, room = max(asked.offset - total, 0), asked.limit - len(rows)
            count, found = yield from _of_partition(services, replica, outcomes, asked, skipped, room)
            total += count
            rows += found
        if pace.spent():
            yield
    listed = {"total": total, "rows": rows, "problems": problems[:_MOST_PROBLEMS]}
    return row_of(Producers, listed, asked, services, services.catalog)


def _partitions(
    services: Services, caller: Caller, wanted: ProducersAsked, noted: Collection[Place]
) -> Steps[list[tuple[str, int]]]:
    """Those that are asked for and that no other broker leads; of all topics, those that have producers, or
    are offline. Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) for one that does not exist."""
    pace = Pace(CHECKS_PER_STEP)
    if wanted.topic is None:
        found = []
        for place, replica in list(services.replicas.items()):
            is_noted = noted and Place(replica.topic_id, replica.partition) in noted
            if len(replica.log.producers) or not replica.is_running or is_noted:
                found.append(place)
            if pace.spent():
                yield
    else:
        known = existing_topic(services, wanted.topic)
        if wanted.partition is not None and not known.has_partition(wanted.partition):
            message = f"topic {wanted.topic!r} has partitions 0 to {len(known.partitions) - 1}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        found = [(known.name, index) for index in range(len(known.partitions))]

    def is_shown(topic: str, index: int) -> bool:
        assigned = services.catalog.assigned(topic, index)
        is_here = assigned is None or assigned.leader_id in (services.node_id, NO_LEADER)
        return is_here and wanted.partition in (None, index) and caller.may(READ_TOPIC, topic)

    return [place for place in sorted(found) if is_shown(*place)]


def _of_partition(
    services: Services,
    replica: Replica,
    outcomes: Mapping[int, ProducerOutcome],
    wanted: ProducersAsked,
    skipped: int,
    room: int,
) -> Steps[tuple[int, list[Producer]]]:
    """How many rows a partition has, and at most `room` of them, after `skipped`."""
    states, now_ms = replica.log.producers, services.clock_ms()

    def batch(held: table.CachedBatch) -> CachedBatch:
        base_sequence = decrement_sequence(held.last_sequence, held.offset_delta)
        return row_of(CachedBatch, held, base_sequence=base_sequence)

    def row(producer_id: int, entry: ProducerEntry | None) -> Producer:
        is_known, outcome = entry is not None, outcomes.get(producer_id, _NOTHING)
        if entry is None:
            epochs = (each.producer_epoch for each in outcome.refused.values())
            epoch = max(epochs, default=NO_PRODUCER_EPOCH)
            entry = ProducerEntry(producer_id, epoch, _NO_COORDINATOR_EPOCH, NO_OFFSET, NO_TIMESTAMP, ())
        refused = outcome.refused.items()
        return row_of(
            *(Producer, entry, replica, outcome),
            next_sequence=increment_sequence(entry.last_sequence, 1) if entry.batches else NO_SEQUENCE,
            is_known=is_known,
            last_append_ms=now_ms - replica.log.idle_ms(entry, now_ms) if is_known else NO_TIMESTAMP,
            batches=[batch(each) for each in entry.batches],
            refused=[
                row_of(Refused, {"code": code, "error_code": int(code)}, each) for code, each in refused
            ],
        )

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
    return len(ids) + has_all * len(states), [row(*each) for each in shown]
