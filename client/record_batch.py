"""A batch that the application fills and sends as one batch.

Owns: `BatchBuilder`, with aiokafka's method names. Pure, except that it reads the clock for a record without
a timestamp. Invariants: it never exceeds its maximum size, unless its only record does; it is sent once.
"""

from collections.abc import Iterable, Mapping, Sequence
from time import time

from tidelog.client.arguments import whole_number
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import RecordBatchBuilder, decode_batch
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

__all__ = ["BatchBuilder", "bytes_or_none", "checked_headers", "int_or_none"]

RecordFields = tuple[bytes | None, bytes | None, int, Sequence[tuple[str, bytes | None]]]


class BatchBuilder:
    """Made by `Producer.create_batch`. `max_size_bytes` is before compression."""

    def __init__(self, max_size_bytes: int) -> None:
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
        key: bytes | None = None,
        value: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> bool:
        """Whether the record was added. False if it does not fit, or after `close`. Raises ValueError or
        TypeError."""
        if self._is_closed:
            return False
        given = int_or_none(timestamp_ms, "timestamp_ms")
        stamp = int(time() * 1000) if given is None else given
        try:
            return self._builder.append(stamp, key, value, headers) > 0
        except (TypeError, ValueError, AttributeError):
            for data, what in ((key, "key"), (value, "value")):
                bytes_or_none(data, what, "encode it: a batch has no serializers")
            checked_headers(headers)
            raise

    def close(self) -> None:
        """Take no more records."""
        self._is_closed = True

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
        raise TypeError(f"headers is {type(headers).__name__}, expected a list of (name, value)")
    taken = tuple(headers)
    for each in taken:
        match each:
            case (str(), bytes() | bytearray() | memoryview() | None):
                continue
        raise TypeError(f"a header is {each!r:.200}, expected (str, bytes or None)")
    return taken


def int_or_none(number: object, what: str) -> int | None:
    """A partition or a timestamp. Raises TypeError for other types than whole numbers."""
    return None if number is None else whole_number(number, what, low=None)


def bytes_or_none(data: object, what: str, advice: str = "") -> bytes | None:
    """A key or a value as bytes or None. Raises TypeError for other types and says what to do."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    advice = advice or f"give a {what}_serializer that returns bytes"
    raise TypeError(f"{what} is {type(data).__name__}, expected bytes or None; {advice}")
