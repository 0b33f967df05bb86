"""A batch that the application fills and sends as one batch.

Owns: `BatchBuilder`, with aiokafka's methods. Pure, except that it reads the clock for a record without a
timestamp. Invariants: it never exceeds its maximum size, unless its only record does; it is sent once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time
from typing import Any, TypeAlias, TypeVar

from tidelog.client.arguments import whole_number
from tidelog.client.types import AppendedRecord
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import RecordBatchBuilder, decode_batch
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

_T = TypeVar("_T")
Serializer: TypeAlias = Callable[[_T], bytes | None]
RecordFields = tuple[bytes | None, bytes | None, int, Sequence[tuple[str, bytes | None]]]


class BatchBuilder:
    """Made by `Producer.create_batch`. `max_size_bytes` is before compression."""

    def __init__(
        self,
        max_size_bytes: int,
        key_serializer: Serializer[Any] | None = None,
        value_serializer: Serializer[Any] | None = None,
    ) -> None:
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._builder = RecordBatchBuilder(max_size_bytes)
        self._is_closed = False
        self._is_sent = False

    @classmethod
    def of(cls, builder: RecordBatchBuilder) -> "BatchBuilder":
        """A closed batch of the records in `builder`. The caller must not use `builder` any more."""
        batch = cls(0)
        batch._builder = builder
        batch._is_closed = True
        return batch

    @property
    def first_timestamp_ms(self) -> int:
        return self._builder.base_timestamp

    def append(
        self,
        *,
        key: Any = None,
        value: Any = None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> AppendedRecord | None:
        """Add a record, and return its place in the batch. None if it was not added: it does not fit, which
        closes the batch, or the batch is closed.

        `key` and `value` are bytes or None, after the producer's serializers. `timestamp` is in milliseconds
        and defaults to now. Raises ValueError or TypeError.
        """
        if self._is_closed:
            return None
        given = int_or_none(timestamp, "timestamp")
        stamp = int(time() * 1000) if given is None else given
        key = key if self._key_serializer is None else self._key_serializer(key)
        value = value if self._value_serializer is None else self._value_serializer(value)
        size_before = self._builder.size_bytes
        try:
            count = self._builder.append(stamp, key, value, headers or ())
        except (TypeError, ValueError, AttributeError):
            for data, what in ((key, "key"), (value, "value")):
                bytes_or_none(data, what)
            checked_headers(headers or ())
            raise
        if not count:
            self.close()
            return None
        return AppendedRecord(count - 1, self._builder.size_bytes - size_before, stamp)

    def close(self) -> None:
        """Take no more records."""
        self._is_closed = True

    def closed(self) -> bool:
        return self._is_closed

    def record_count(self) -> int:
        return self._builder.record_count

    def size(self) -> int:
        """Bytes before compression, header included."""
        return self._builder.size_bytes

    def take(self) -> RecordBatchBuilder:
        """For the producer, once. Raises ValueError when the batch is empty or was sent before."""
        if self._is_sent or not self._builder.record_count:
            raise ValueError("the batch was sent before" if self._is_sent else "the batch has no records")
        self._is_closed = self._is_sent = True
        return self._builder

    def take_records(self) -> list[RecordFields]:
        """As `take`, but as a list of records: (value, key, timestamp in milliseconds, headers)."""
        encoded = self.take().build(Compression.NONE, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
        return [
            (record.value, record.key, record.timestamp, record.headers)
            for record in decode_batch(encoded, check_crc=False)
        ]


def checked_headers(headers: object) -> Sequence[tuple[str, bytes | None]]:
    """The headers of a record. Raises TypeError for other types."""
    if isinstance(headers, Mapping) or not isinstance(headers, Iterable):
        raise TypeError(f"headers: expected a list of (name, value), got {type(headers).__name__}")
    taken = tuple(headers)
    for each in taken:
        match each:
            case (str(), bytes() | bytearray() | memoryview() | None):
                continue
        raise TypeError(f"expected (str, bytes or None) as header, got {each!r:.200}")
    return taken


def int_or_none(number: object, what: str) -> int | None:
    """A partition or a timestamp. Raises TypeError for other types than whole numbers."""
    return None if number is None else whole_number(number, what, low=None)


def bytes_or_none(data: object, what: str) -> bytes | None:
    """A key or a value as bytes or None. Raises TypeError for other types and says what to do."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    advice = f"give a {what}_serializer that returns bytes"
    raise TypeError(f"{what}: expected bytes or None, got {type(data).__name__}; {advice}")
