"""A producer's session: saved values with which another process continues and stores nothing twice.

Owns: the saved values, their JSON form, and the comparison with the batches after them in the log. Pure.
Invariants:
- within a session a sequence number names one record. Sequences start at 0 in each partition, increase by one
  per record, and are never given to another record. So two processes that replay the same input send the same
  record with the same sequence, and a broker stores it once;
- a session is saved together with the application's position. Every record sent before that is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidelog.client.errors import SessionError
from tidelog.protocol.records import BatchHeader
from tidelog.protocol.sequences import increment_sequence, sequence_distance
from tidelog.protocol.types import TopicPartition

_FORMAT: Final = 1
_HALF_RING: Final = 2**30


class SessionPartition(NamedTuple):
    """A partition's saved state: epoch and sequence of the next record, and an offset at or before its offset
    in the log (-1: not known)."""

    producer_epoch: int
    next_sequence: int
    end_offset: int = -1


@dataclass(frozen=True, slots=True)
class ProducerSession:
    """What `Producer.session` returns and `Producer(session=...)` takes.

    `saved_at_ms` is this host's clock, milliseconds since 1970. `topics` maps a topic to its number of
    partitions, which decides the partition of a key. `cluster_id` is the cluster that issued the producer id,
    None if brokers do not say; in another cluster the same id belongs to another producer.
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
        """The session of a `to_dict` result. Raises ValueError for other values."""
        try:
            if saved["format"] != _FORMAT:
                raise ValueError(f"expected a session of format {_FORMAT}, got {saved['format']}")
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
            raise ValueError(f"this is not a saved session ({error!r})") from error


class Run(NamedTuple):
    """Records of the session that the log holds with consecutive sequences."""

    producer_epoch: int
    base_sequence: int
    record_count: int


class Found(NamedTuple):
    """The session's records after the saved state, in log order, and epoch and sequence of the next one."""

    runs: tuple[Run, ...]
    producer_epoch: int
    next_sequence: int

    @property
    def record_count(self) -> int:
        """The number of records of a replay that are stored already."""
        return sum(run.record_count for run in self.runs)

    def place(self, skipped: int) -> tuple[int, int]:
        """Epoch and sequence of the record after the first `skipped` ones."""
        for run in self.runs:
            if skipped < run.record_count:
                return run.producer_epoch, increment_sequence(run.base_sequence, skipped)
            skipped -= run.record_count
        return self.producer_epoch, self.next_sequence


def found_in_entry(key: TopicPartition, saved: SessionPartition, last_sequence: int) -> Found:
    """The stored records by a broker's last sequence under the saved epoch.

    Raises SessionError if that is before the saved sequence: the log lost records, or the position was saved
    before they were stored.
    """
    next_sequence = increment_sequence(last_sequence, 1)
    count = sequence_distance(saved.next_sequence, next_sequence)
    if count >= _HALF_RING:
        raise SessionError(
            f"{key.topic}-{key.partition} ends before sequence {next_sequence}, but the session was saved at"
            f" {saved.next_sequence}: acknowledged records are lost"
        )
    runs = (Run(saved.producer_epoch, saved.next_sequence, count),) if count else ()
    return Found(runs, saved.producer_epoch, next_sequence)


def found_in_batches(
    producer_id: int, saved: SessionPartition, headers: Iterable[BatchHeader], *, starts_anew: bool
) -> Found:
    """The stored records by the batches from the saved offset on. Needs no memory of the broker.

    With `starts_anew` the next record gets a new epoch, as a broker that forgot the producer requires.
    """
    runs: list[Run] = []
    epoch, next_sequence = saved.producer_epoch, saved.next_sequence
    for header in headers:
        if header.producer_id != producer_id or header.is_control or header.producer_epoch < epoch:
            continue
        # Compaction may have removed records; their sequences stay.
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
