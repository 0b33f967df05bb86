"""The assigned partitions, and which of them is read next.

Owns: one reader per partition, in the order of their turns, and which of their errors were raised. Pure.
Invariants: partitions take turns. If records are read one by one, a turn is the batches that were opened
together; else it is all wanted or available records.
"""

from collections.abc import Iterable

from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.client.types import ConsumerRecord, RecordColumns, no_partition, topic_partition
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import ClientError

_MOST_RAISED = 100


class Assignment:
    """`readers` is always the same dictionary, in the order of the partitions' turns. `current` is the reader
    in the middle of a turn when records are read one by one."""

    def __init__(self) -> None:
        self.readers: dict[TopicPartition, PartitionReader] = {}
        self.current: PartitionReader | None = None
        self._raised: list[ClientError] = []
        self.refusal: ClientError | None = None
        """Why no partition of a topic can be read. It is raised when no other partition has records."""

    def replace(self, readers: Iterable[PartitionReader]) -> None:
        """Read these from now on."""
        self.refusal = None
        kept = list(readers)
        self.readers.clear()
        self.readers.update((reader.key, reader) for reader in kept)
        self.current = None

    def reader(self, partition: TopicPartition) -> PartitionReader:
        """Raises ValueError for a partition that is not assigned, TypeError for what is no partition."""
        try:
            reader = self.readers.get(partition)
        except TypeError:
            raise no_partition(partition) from None
        if reader is None:
            raise ValueError(
                f"{topic_partition(partition)} is not assigned to this consumer, which reads what assign()"
                " names or what its group assigns to it"
            )
        return reader

    def take(
        self, limit: int, partitions: tuple[TopicPartition, ...]
    ) -> tuple[PartitionReader, list[ConsumerRecord]] | None:
        """Up to `limit` records of the next partition; moves its position past them. None if there are
        none."""
        while (reader := self._next_reader(partitions)) is not None:
            records = reader.take(limit)
            if limit > 1 or reader.is_between_batches:
                self._end_turn(reader)
            else:
                self.current = reader
            if records:
                return reader, records
        return None

    def take_columns(
        self, limit: int, partitions: tuple[TopicPartition, ...]
    ) -> tuple[PartitionReader, list[RecordColumns]] | None:
        """As `take`, but as columns."""
        while (reader := self._next_reader(partitions)) is not None:
            columns = reader.take_columns(limit)
            self._end_turn(reader)
            if columns:
                return reader, columns
        return None

    def _next_reader(self, partitions: tuple[TopicPartition, ...]) -> PartitionReader | None:
        current = self.current
        if current is not None and current.has_data and (not partitions or current.key in partitions):
            return current
        for key in partitions:
            self.reader(key)
        for key, reader in self.readers.items():
            if reader.has_data and (not partitions or key in partitions):
                return reader
        return None

    def _end_turn(self, reader: PartitionReader) -> None:
        """Put this reader after the others."""
        self.current = None
        if self.readers.pop(reader.key, None) is not None:
            self.readers[reader.key] = reader

    def raise_error(self, partitions: tuple[TopicPartition, ...], *, only_new: bool) -> None:
        """Raise the error of a partition that has no more records before it, or why none is read."""
        if self.refusal is not None and not only_new:
            raise self.refusal.with_traceback(None)
        for key, reader in self.readers.items():
            error = reader.error
            if (
                error is None
                or reader.is_stopped
                or reader.has_unread
                or (only_new and error in self._raised)
            ):
                continue
            if not partitions or key in partitions:
                self._raised = [*(known for known in self._raised if known is not error), error][
                    -_MOST_RAISED:
                ]
                raise error.with_traceback(None)
