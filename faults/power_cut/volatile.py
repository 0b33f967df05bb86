"""A disk with a write cache: what was written is lost with the process, unless it was flushed.

Owns the rule of which sectors reach the image before a flush: random ones, one by one, because a disk may
write in any order. Invariants: after `flush` everything written before it is in the image; a read returns
what was written last; a cached sector never overwrites a later one.
"""

import random
from collections.abc import Callable
from typing import Final, Protocol

SECTOR_BYTES: Final = 512


class Image(Protocol):
    """The storage below the write cache, where bytes are durable."""

    def read(self, offset: int, size: int) -> bytes: ...

    def write(self, offset: int, data: bytes) -> None: ...


class VolatileDisk:
    """`early_share`, 0 to 1, is how much of what is written reaches `image` at once."""

    def __init__(self, image: Image, size_bytes: int, early_share: float, draw: Callable[[], float]) -> None:
        self.size_bytes = size_bytes
        self._image = image
        self._early_share = early_share
        self._draw = draw
        self._cache: dict[int, bytes] = {}

    @classmethod
    def seeded(cls, image: Image, size_bytes: int, early_share: float, seed: str) -> "VolatileDisk":
        """Its choices by a seed."""
        return cls(image, size_bytes, early_share, random.Random(seed).random)

    def read(self, offset: int, size: int) -> bytes:
        """What was written last; less at the end of the disk."""
        size = max(0, min(size, self.size_bytes - offset))
        first, behind = offset // SECTOR_BYTES, -(-(offset + size) // SECTOR_BYTES)
        data = bytearray(self._image.read(first * SECTOR_BYTES, (behind - first) * SECTOR_BYTES))
        for number in range(first, behind):
            sector = self._cache.get(number)
            if sector is not None:
                at = (number - first) * SECTOR_BYTES
                data[at : at + SECTOR_BYTES] = sector
        start = offset - first * SECTOR_BYTES
        return bytes(data[start : start + size])

    def write(self, offset: int, data: bytes) -> None:
        """Keep `data`; whole sectors, as a block device writes. ValueError for anything else."""
        if offset % SECTOR_BYTES or len(data) % SECTOR_BYTES or offset + len(data) > self.size_bytes:
            raise ValueError(f"{len(data)} bytes at {offset} are no whole sectors of this disk")
        for at in range(0, len(data), SECTOR_BYTES):
            number, sector = (offset + at) // SECTOR_BYTES, data[at : at + SECTOR_BYTES]
            if self._draw() < self._early_share:
                self._cache.pop(number, None)
                self._image.write(number * SECTOR_BYTES, sector)
            else:
                self._cache[number] = sector

    def flush(self) -> None:
        """Make everything durable."""
        for number, sector in sorted(self._cache.items()):
            self._image.write(number * SECTOR_BYTES, sector)
        self._cache.clear()
