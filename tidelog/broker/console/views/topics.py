"""Topics and their partitions.

Owns what the console shows of topics. Numbers of a partition are those of this broker's replica, as
ListOffsets and DescribeLogDirs give them; a partition that another broker leads has none, until the answers
of the brokers are joined.

Invariants: what a caller may not DESCRIBE is left out or does not exist. Long lists are made in steps
(`protocol.steps`), and one answer has a part of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, Protocol, TypedDict

from tidelog.broker.cluster.catalog import NO_LEADER, Topic
from tidelog.broker.console.views.of_cluster import Listed, OfCluster
from tidelog.broker.handlers.metadata import described_partition
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, each

_SUMMED: Final = ("offsets", "size_bytes", "remote_size_bytes", "groups", "bytes_in", "bytes_out")
STEP_COST_PARTITION = 2
"""Describing a partition counts as this many elements (see `protocol.steps`)."""


class TopicRow(OfCluster):
    """A topic in one line. Sums are over the partitions of the brokers that answered."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: int
    replication_factor: int
    without_leader: int
    """Partitions that are not served."""
    under_replicated: int
    """Partitions that lack replicas in sync."""
    offsets: int
    """From the starts to the high watermarks: at least as many as there are records."""
    size_bytes: int
    """Of local segments."""
    remote_size_bytes: int
    """Of segments in remote storage, those included that are local too."""
    groups: int
    """That committed offsets of it."""
    bytes_in: float
    """Per second, at the last look of the brokers' measurements."""
    bytes_out: float
    cleanup_policy: str
    retention_ms: int
    """-1: without an end."""
    retention_bytes: int


class TopicRows(OfCluster, Listed):
    """Topics in the order of their names."""

    rows: list[TopicRow]


class PartitionRow(TypedDict):
    """A partition: who leads it, who holds it, and its numbers, null where its leader did not answer."""

    partition: int
    leader: int
    """-1: nobody."""
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    adding_replicas: list[int]
    """Those of the replicas that a reassignment adds, and those that it removes."""
    removing_replicas: list[int]
    start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    end_offset: int | None
    size_bytes: int | None
    remote_size_bytes: int | None
    segments: int | None
    producers: int | None


class PartitionRows(OfCluster, Listed):
    """A page of the partitions of one topic."""

    rows: list[PartitionRow]


class Asked(Protocol):
    """Which topics are listed."""

    @property
    def order(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def limit(self) -> int: ...


def topic_groups(services: Services, may_describe: Callable[[str], bool]) -> Steps[Counter[str]]:
    """How many groups, of those that this broker coordinates, committed offsets of each topic."""
    pace = Pace(CHECKS_PER_STEP)
    counted: Counter[str] = Counter()
    for machine in services.groups.machines():
        for group_id in machine.all_ids():
            if may_describe(group_id):
                counted.update(topic for topic, _ in machine.offsets.of_group(group_id))
            if pace.spent():
                yield
    return counted


def topic_rows(
    services: Services,
    may_describe: Callable[[str], bool],
    may_describe_group: Callable[[str], bool],
    rates: Mapping[str, tuple[float, float]],
    names: Iterable[str],
    asked: Asked,
) -> Steps[TopicRows]:
    """Topics from number `asked.offset` on; `total` counts all that the caller may describe. `rates` are
    bytes per second, in and out."""
    seen = yield from each(lambda name: name if may_describe(name) else "", names, Pace(CHECKS_PER_STEP))
    shown = sorted(filter(None, seen))
    groups = yield from topic_groups(services, may_describe_group)
    first, last = asked.offset, asked.offset + asked.limit
    pace = Pace()
    rows: list[TopicRow] = []
    for name in shown[first:last] if asked.order == "name" else shown:
        known = services.catalog.topic(name)
        if known is not None:  # It may be deleted between two steps.
            row = yield from topic_row(services, known, pace)
            bytes_in, bytes_out = rates.get(name, (0.0, 0.0))
            rows.append({**row, "groups": groups[name], "bytes_in": bytes_in, "bytes_out": bytes_out})
    if asked.order != "name":
        rows = in_order(rows, asked)[first:last]
    return {"total": len(shown), "offset": first, "limit": asked.limit, "rows": rows}


def in_order(rows: Iterable[TopicRow], asked: Asked) -> list[TopicRow]:
    """With the largest number first, if they are not in the order of names."""
    number: Any = itemgetter(asked.order)
    return sorted(rows, key=lambda row: (0 if asked.order == "name" else -number(row), row["name"]))


def topic_row(services: Services, topic: Topic, pace: Pace) -> Steps[TopicRow]:
    size_bytes = remote_size_bytes = offsets = without_leader = under_replicated = 0
    for index, assigned in enumerate(topic.partitions):
        is_ours = assigned.leader_id == services.node_id
        replica = services.replicas.get((topic.name, index)) if is_ours else None
        if replica is not None and replica.stopped is None:
            size_bytes += replica.log.size_bytes
            remote_size_bytes += _remote_size_bytes(replica)
            offsets += replica.high_watermark - max(replica.log.log_start_offset, 0)
        elif is_ours or assigned.leader_id == NO_LEADER:
            without_leader += 1
        under_replicated += not {*assigned.replicas} <= {*assigned.isr, *assigned.adding}
        if pace.spent(STEP_COST_PARTITION):
            yield
    value = partial(services.topics.settings.value, topic.configs)
    return {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].wanted_replicas),
        "without_leader": without_leader,
        "under_replicated": under_replicated,
        "offsets": offsets,
        "size_bytes": size_bytes,
        "remote_size_bytes": remote_size_bytes,
        "groups": 0,
        "bytes_in": 0.0,
        "bytes_out": 0.0,
        "cleanup_policy": value("cleanup.policy"),
        "retention_ms": int(value("retention.ms")),
        "retention_bytes": int(value("retention.bytes")),
    }


def joined_topic(services: Services, rows: Sequence[TopicRow]) -> TopicRow:
    """One topic as some brokers know it; the first of them is this one."""
    known = services.catalog.topic(rows[0]["name"])
    partitions = () if known is None else known.partitions
    # Each broker counts those without a leader.
    counted = sum(each.leader_id == NO_LEADER for each in partitions) * (len(rows) - 1)
    return {
        **rows[0],
        "without_leader": max(0, sum(row["without_leader"] for row in rows) - counted),
        **{name: sum(row[name] for row in rows) for name in _SUMMED},  # type: ignore[typeddict-item]
    }


def joined_topics(services: Services, answers: Sequence[TopicRows], asked: Asked) -> TopicRows:
    """A listing of topics as some brokers know them; the first of them is this one."""
    by_name: dict[str, list[TopicRow]] = {}
    for row in (row for answer in answers for row in answer["rows"]):
        by_name.setdefault(row["name"], []).append(row)
    rows = in_order((joined_topic(services, rows) for rows in by_name.values()), asked)
    if asked.order != "name":
        rows = rows[asked.offset : asked.offset + asked.limit]
    return {**answers[0], "offset": asked.offset, "limit": asked.limit, "rows": rows}


def joined_partitions(answers: Sequence[PartitionRows]) -> PartitionRows:
    """Partitions as some brokers know them, each as its leader does; the first of them is this one."""
    led = {
        row["partition"]: row for answer in answers for row in answer["rows"] if row["end_offset"] is not None
    }
    return {**answers[0], "rows": [led.get(row["partition"], row) for row in answers[0]["rows"]]}


def partition_rows(services: Services, topic: Topic, offset: int, limit: int) -> Steps[PartitionRows]:
    """Partitions of a topic from number `offset` on."""
    indexes: Iterable[int] = range(len(topic.partitions))[offset : offset + limit]
    rows = yield from each(partial(partition_row, services, topic), indexes, Pace(), STEP_COST_PARTITION)
    return {"total": len(topic.partitions), "offset": offset, "limit": limit, "rows": rows}


def partition_row(services: Services, topic: Topic, index: int) -> PartitionRow:
    described, assigned = described_partition(services, topic, index), topic.partitions[index]
    row: PartitionRow = {
        "partition": index,
        "leader": described["leader_id"],
        "leader_epoch": described["leader_epoch"],
        "replicas": list(described["replica_nodes"]),
        "in_sync_replicas": list(described["isr_nodes"]),
        "adding_replicas": [each for each in assigned.adding if each not in assigned.removing],
        "removing_replicas": list(assigned.removing),
        "start_offset": None,
        "last_stable_offset": None,
        "high_watermark": None,
        "end_offset": None,
        "size_bytes": None,
        "remote_size_bytes": None,
        "segments": None,
        "producers": None,
    }
    replica = services.replicas.get((topic.name, index))
    if replica is not None and replica.stopped is None:
        ends, log = replica.ends, replica.log
        row["start_offset"] = log.log_start_offset
        row["last_stable_offset"] = ends.last_stable
        row["high_watermark"] = ends.high_watermark
        row["end_offset"] = ends.end
        row["size_bytes"] = log.size_bytes
        row["remote_size_bytes"] = _remote_size_bytes(replica)
        row["segments"] = log.segment_count
        row["producers"] = len(log.producers)
    return row


def _remote_size_bytes(replica: Replica) -> int:
    remote = replica.log.remote
    return 0 if remote is None else remote.size_bytes


def existing_topic(services: Services, name: str) -> Topic:
    """Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION)."""
    topic = services.catalog.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!a}")
    return topic
