"""Many batches at once: their headers as columns of numbers.

Owns the search for batches in the bytes of a Fetch or a segment file, and the check of their CRC-32C.

Invariants: only whole batches are returned, in log order. A truncated tail is left out, and bytes after the
end offset of a read are not read. Malformed headers raise ProtocolError, as in `protocol.records`.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Self

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tidelog.pipeline.arrow.vectors import Flags, Integers
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BATCH_HEADER_SIZE, CURRENT_MAGIC, LOG_OVERHEAD, read_batch_header
from tidelog.protocol.types import Buffer

NO_END = 2**63 - 1
# Base offset and batch length, the magic, the delta of the last offset.
_PLACE = Struct(">qi4xb6xi")
_CRC_COVERS_FROM = 21
_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)


def batch_positions(data: Buffer, end_offset: int = NO_END) -> list[int]:
    """Where each whole batch starts, up to the one that holds `end_offset` - 1.

    CRCs are not checked. Raises ProtocolError for a length that is too small or a magic other than 2.
    """
    positions = []
    position, size, place = 0, len(data), _PLACE.unpack_from
    while size - position >= BATCH_HEADER_SIZE:
        base_offset, length, magic, last_offset_delta = place(data, position)
        if base_offset >= end_offset:
            break
        if length < BATCH_HEADER_SIZE - LOG_OVERHEAD:
            # Raises, with the usual message.
            read_batch_header(data, position)
        if magic != CURRENT_MAGIC:
            raise ProtocolError(f"batch at byte {position}: expected magic {CURRENT_MAGIC}, got {magic}")
        end = position + LOG_OVERHEAD + length
        if end > size:
            break
        positions.append(position)
        if base_offset + last_offset_delta >= end_offset - 1:
            break
        position = end
    return positions


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches in `data`: their start positions, and the fields of their headers by name."""

    data: Buffer
    positions: Integers
    headers: npt.NDArray[np.void]

    @classmethod
    def at(cls, data: Buffer, positions: list[int]) -> Self:
        """The batches at these positions; each must lie in `data` as a whole."""
        starts = np.array(positions, np.int64)
        octets = np.frombuffer(data, np.uint8)[starts[:, None] + np.arange(BATCH_HEADER_SIZE)]
        return cls(data, starts, octets.view(_HEADER)[:, 0])

    def __len__(self) -> int:
        return len(self.positions)

    def field(self, name: str) -> Integers:
        """A field of all headers, as protocol.records.BatchHeader names them."""
        return self.headers[name].astype(np.int64)

    @property
    def ends(self) -> Integers:
        return self.positions + LOG_OVERHEAD + self.field("batch_length")

    @property
    def last_offsets(self) -> Integers:
        return self.field("base_offset") + self.field("last_offset_delta")

    def where(self, wanted: Flags | slice) -> Self:
        return type(self)(self.data, self.positions[wanted], self.headers[wanted])

    def check_crcs(self, where: str) -> None:
        """Raises ProtocolError for the first batch whose bytes do not match the CRC in its header."""
        view = memoryview(self.data)
        places = zip(self.positions.tolist(), self.ends.tolist(), strict=True)
        found = np.array([crc32c(view[start + _CRC_COVERS_FROM : end]) for start, end in places], np.uint32)
        wrong = np.flatnonzero(found != self.headers["crc"])
        if wrong.size:
            offset = self.headers["base_offset"][wrong[0]]
            raise ProtocolError(f"{where}: the batch at offset {offset} does not match its CRC")
