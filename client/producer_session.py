"""A producer's session: what is saved so that another process can go on without storing anything twice.

Owns: the saved values, their JSON form, and the walk over what a log holds behind them. Pure.
Invariants:
- within a session a sequence number names a record: numbers start at 0 for each partition, go up by one for
  each record sent, and are never given again to another record. So two processes that replay the same input
  send the same record under the same number, and a broker takes one of both;
- a session is saved together with the application's position: everything sent before that is stored.
Source: seeds' proposal on transitivity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidelog.client.errors import SessionError
from tidelog.client.types import TopicPartition
from tidelog.protocol.records import BatchHeader
from tidelog.protocol.sequences import increment_sequence, sequence_distance

__all__ = ["Found", "ProducerSession", "Run", "SessionPartition", "found_in_batches", "found_in_entry"]

_FORMAT: Final = 1
_HALF_RING: Final = 2**30


class SessionPartition(NamedTuple):
    """Where a partition stood: the next record's epoch and number, and an offset at or before its place in
    the log (-1: not known)."""

    producer_epoch: int
    next_sequence: int
    end_offset: int = -1


@dataclass(frozen=True, slots=True)
class ProducerSession:
    """What `Producer.session` gives and `Producer(session=...)` takes.

    `saved_at_ms` is this host's clock, milliseconds since 1970. `topics` holds their numbers of partitions,
    on which the way of keys depends. `cluster_id`: whose producer id it is, None where brokers do not tell;
    in another cluster the same id is somebody else's.
    """

    producer_id: int
    producer_epoch: int
    saved_at_ms: int
    topics: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, SessionPartition] = field(default_factory=dict)
    cluster_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For json.dumps."""
        return {
            "format": _FORMAT,
            "cluster_id": self.cluster_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "saved_at_ms": self.saved_at_ms,
            "topics": dict(self.topics),
            "partitions": [[*key, *stood] for key, stood in sorted(self.partitions.items())],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> ProducerSession:
        """Raises ValueError for what `to_dict` did not make."""
        try:
            if saved["format"] != _FORMAT:
                raise ValueError(f"a session of format {saved['format']}, expected {_FORMAT}")
            return cls(
                int(saved["producer_id"]),
                int(saved["producer_epoch"]),
                int(saved["saved_at_ms"]),
                {str(name): int(count) for name, count in saved["topics"].items()},
                {
                    TopicPartition(str(topic), int(partition)): SessionPartition(
                        int(epoch), int(sequence), int(offset)
                    )
                    for topic, partition, epoch, sequence, offset in saved["partitions"]
                },
                saved.get("cluster_id"),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no saved session ({error!r})") from error


class Run(NamedTuple):
    """Records of the session that the log holds under consecutive numbers."""

    producer_epoch: int
    base_sequence: int
    record_count: int


class Found(NamedTuple):
    """What the log holds beyond the saved place, in order, and under what the next record goes."""

    runs: tuple[Run, ...]
    producer_epoch: int
    next_sequence: int

    @property
    def record_count(self) -> int:
        """Records of a replay that are stored already."""
        return sum(run.record_count for run in self.runs)

    def place(self, skipped: int) -> tuple[int, int]:
        """Epoch and number of the record after the first `skipped` ones."""
        for run in self.runs:
            if skipped < run.record_count:
                return run.producer_epoch, increment_sequence(run.base_sequence, skipped)
            skipped -= run.record_count
        return self.producer_epoch, self.next_sequence


def found_in_entry(key: TopicPartition, saved: SessionPartition, last_sequence: int) -> Found:
    """What a broker's last sequence under the saved epoch tells.

    Raises SessionError when it is behind the saved place: the log lost records, or the position was saved
    before they were stored.
    """
    next_sequence = increment_sequence(last_sequence, 1)
    count = sequence_distance(saved.next_sequence, next_sequence)
    if count >= _HALF_RING:
        raise SessionError(
            f"{key.topic}-{key.partition} ends before sequence {next_sequence}, but the session was saved at"
            f" {saved.next_sequence}: records are gone that were acknowledged"
        )
    runs = (Run(saved.producer_epoch, saved.next_sequence, count),) if count else ()
    return Found(runs, saved.producer_epoch, next_sequence)


def found_in_batches(
    producer_id: int, saved: SessionPartition, headers: Iterable[BatchHeader], *, starts_anew: bool
) -> Found:
    """What the batches from the saved offset on tell, whether or not the broker remembers the producer.

    With `starts_anew` the next record goes under an epoch of its own, as a broker demands that forgot.
    """
    runs: list[Run] = []
    epoch, next_sequence = saved.producer_epoch, saved.next_sequence
    for header in headers:
        if header.producer_id != producer_id or header.is_control or header.producer_epoch < epoch:
            continue
        # Compaction may have taken records out; their numbers stay.
        count = sequence_distance(header.base_sequence, header.last_sequence) + 1
        first = header.base_sequence
        if header.producer_epoch == epoch:
            known = sequence_distance(first, next_sequence)
            if known < _HALF_RING:
                if known >= count:
                    continue
                first, count = next_sequence, count - known
        epoch, next_sequence = header.producer_epoch, increment_sequence(first, count)
        runs.append(Run(epoch, first, count))
    if starts_anew and (runs or saved.next_sequence):
        epoch, next_sequence = epoch + 1, 0
    return Found(tuple(runs), epoch, next_sequence)
