"""Records of transactions that are open: they count once their transaction commits.

Owns which records wait for which producer's transaction, and which of two writes to a key counts: the later
one in the log, also if the transaction of the earlier one ends later.

Pure. Source: Kafka's OffsetMetadataManager (pending transactional offsets), KIP-447.
"""

from collections.abc import Collection, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class InTransaction(NamedTuple):
    """A record that counts once the producer's transaction commits."""

    producer_id: int
    producer_epoch: int
    record: Any


class PendingRecord(NamedTuple, Generic[KeyT, ValueT]):
    producer_id: int
    producer_epoch: int
    key: KeyT
    value: ValueT


class _Waiting(NamedTuple, Generic[ValueT]):
    number: int
    producer_epoch: int
    value: ValueT


class PendingRecords(Generic[KeyT, ValueT]):
    """The records of all open transactions on one partition."""

    def __init__(self) -> None:
        self._of_producer: dict[int, dict[KeyT, _Waiting[ValueT]]] = {}
        self._producers_of: dict[KeyT, dict[int, None]] = {}
        self._written = 0

    def __contains__(self, key: object) -> bool:
        """Whether a transaction that is open has written this key."""
        return key in self._producers_of

    def keys(self) -> Collection[KeyT]:
        """Those that transactions that are open have written."""
        return self._producers_of.keys()

    def __iter__(self) -> Iterator[PendingRecord[KeyT, ValueT]]:
        """In the order of the log."""
        rows = [
            (waiting.number, PendingRecord(producer_id, waiting.producer_epoch, key, waiting.value))
            for producer_id, records in self._of_producer.items()
            for key, waiting in records.items()
        ]
        return (row for _, row in sorted(rows, key=lambda row: row[0]))

    def add(self, producer_id: int, producer_epoch: int, key: KeyT, value: ValueT) -> None:
        """The producer's transaction wrote this."""
        self._written += 1
        waiting = _Waiting(self._written, producer_epoch, value)
        self._of_producer.setdefault(producer_id, {})[key] = waiting
        self._producers_of.setdefault(key, {})[producer_id] = None

    def overwritten(self, key: KeyT) -> None:
        """A record outside of transactions, which is later than all that wait, has this key."""
        for producer_id in list(self._producers_of.get(key, ())):
            self._drop(producer_id, key)

    def end(self, producer_id: int, *, is_commit: bool) -> dict[KeyT, ValueT]:
        """The producer's transaction ended; returns what counts from now on."""
        ended = self._of_producer.get(producer_id, {})
        for key in list(ended):
            number = ended[key].number
            for other in list(self._producers_of[key]) if is_commit else ():
                if self._of_producer[other][key].number < number:
                    self._drop(other, key)
        counting = {key: waiting.value for key, waiting in ended.items()} if is_commit else {}
        for key in list(ended):
            self._drop(producer_id, key)
        return counting

    def _drop(self, producer_id: int, key: KeyT) -> None:
        records = self._of_producer[producer_id]
        del records[key]
        if not records:
            del self._of_producer[producer_id]
        producers = self._producers_of[key]
        del producers[producer_id]
        if not producers:
            del self._producers_of[key]
