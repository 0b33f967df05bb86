"""Whether the records in a client's batch match its header, checked with bounded memory and time.

Owns the cost of reading the records. Records are decompressed no further than consumers do. A caller that
must not take long gives an `Effort`. If that is not enough, make the same call in a thread without one.

Invariants: every client can decode a batch that passes, whatever its codec (`records.inspection` has the
rules). `batch_rules` judges what the header alone shows. Pure; safe in any thread.
"""

from tidelog.protocol.compression import Compression, TooLargeError, decompress
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    SMALLEST_RECORD_BYTES,
    BatchHeader,
    Inspection,
    inspect_in_lanes,
    inspect_one_by_one,
    inspect_single_record,
    inspect_uniform,
    inspectable,
    largest_record_bytes,
)
from tidelog.protocol.types import Buffer


class TooMuchError(Exception):
    """The effort does not suffice: inspect the batch in a thread."""


class Effort:
    """The work that a step of the loop may do for the records of one request: some milliseconds at most."""

    # Class attributes until some is spent, so that most requests need no initialiser.
    records: int = 8192
    """Records that are read one by one; in lanes two count as one."""
    output_bytes: int = 1 << 20
    """Bytes that may be decompressed."""

    def spend(self, records: int) -> None:
        """Raises TooMuchError."""
        self.records -= records
        if self.records < 0:
            raise TooMuchError

    def decompress(self, codec: Compression, data: memoryview) -> bytes:
        """The decompressed data. Raises ProtocolError, TooMuchError."""
        try:
            output = decompress(codec, data, self.output_bytes)
        except TooLargeError:
            raise TooMuchError from None
        self.output_bytes -= len(output)
        return output


class ThreadEffort(Effort):
    """The work for one request in a thread: as many records as it has, and at most `most_bytes` at once."""

    def __init__(self, most_bytes: int) -> None:
        self.output_bytes = self._left_bytes = most_bytes
        self._kept_bytes = 0

    def spend(self, records: int) -> None:
        return

    def decompress(self, codec: Compression, data: memoryview) -> bytes:
        """As `Effort.decompress`, but raises TooLargeError instead of TooMuchError."""
        output = decompress(codec, data, self.output_bytes)
        self.output_bytes -= len(output)
        return output

    def inspected(self, kept_bytes: int) -> None:
        """A batch is inspected; of what it yielded `kept_bytes` stay."""
        self._kept_bytes += kept_bytes
        self._left_bytes = self.output_bytes = max(0, self._left_bytes - kept_bytes)

    def held_bytes(self) -> int:
        """What stays, and what the batch that is inspected holds now: its data, and a copy of it to read."""
        return self._kept_bytes + 2 * (self._left_bytes - self.output_bytes)


def inspect_batch(
    batch: Buffer, header: BatchHeader, effort: Effort | None = None, most_record_bytes: int | None = None
) -> Inspection:
    """The timestamps of the whole batch in `batch`, whose records are what `header` says.

    Raises ApiError (INVALID_RECORD, also for a record larger than `most_record_bytes`; MESSAGE_TOO_LARGE),
    and with an effort TooMuchError.
    """
    if most_record_bytes is None or most_record_bytes >= len(batch):
        found = inspect_single_record(batch, header)
        if found is not None:
            return found
    try:
        records, codec = memoryview(batch)[BATCH_HEADER_SIZE:], header.compression
        data = inspectable(records if codec is Compression.NONE else decompressed(codec, records, effort))
        found = _inspected(data, header, effort)
    except ProtocolError as error:
        raise refusal(error) from None
    if most_record_bytes is not None and most_record_bytes < len(data):
        if effort is not None:
            effort.spend(header.record_count)
        largest = largest_record_bytes(data, header.record_count)
        if largest > most_record_bytes:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"expected records of at most {most_record_bytes} bytes, got one of {largest}: send smaller"
                " records, or raise max.decompressed.message.bytes of the topic",
            )
    return found


def _inspected(data: bytes, header: BatchHeader, effort: Effort | None) -> Inspection:
    """Raises ProtocolError, TooMuchError."""
    found = inspect_uniform(data, header)
    if found is not None:
        return found
    records = min(header.record_count, len(data) // SMALLEST_RECORD_BYTES)
    if effort is not None:
        effort.spend(records // 2)
    found = inspect_in_lanes(data, header)
    if found is not None:
        return found
    if effort is not None:
        effort.spend(records)
    return inspect_one_by_one(data, header)


def refusal(error: ProtocolError) -> ApiError:
    """The answer to a client whose records cannot be read."""
    if isinstance(error, TooLargeError):
        return ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{error}; send smaller batches")
    return ApiError(
        ErrorCode.INVALID_RECORD,
        f"the records of the batch are not what its header says: {error}; no consumer could decode them",
    )


def decompressed(codec: Compression, records: memoryview, effort: Effort | None) -> bytes:
    """The records of a compressed batch. Raises ProtocolError, and with an effort TooMuchError."""
    if effort is None:
        return decompress(codec, records, DEFAULT_MAX_DECOMPRESSED_BYTES)
    return effort.decompress(codec, records)
