"""A disk with a write cache loses what was not flushed, keeps what was, and reads what was written last."""

import random

import pytest

from faults.power_cut.volatile import SECTOR_BYTES, VolatileDisk

SIZE = 64 * SECTOR_BYTES


class Memory:
    """An image in memory: what is in it is durable."""

    def __init__(self) -> None:
        self.data = bytearray(SIZE)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def write(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data


def sectors(*contents: int) -> bytes:
    return b"".join(bytes([content]) * SECTOR_BYTES for content in contents)


def test_some_sectors_reach_the_image_early_and_the_others_do_not() -> None:
    image = Memory()
    disk = VolatileDisk.seeded(image, SIZE, 0.5, "seed")
    disk.write(0, sectors(*range(1, 65)))
    early = sum(image.read(number * SECTOR_BYTES, 1) != b"\0" for number in range(64))
    assert 0 < early < 64


@pytest.mark.parametrize("seed", range(20))
def test_a_read_gives_what_was_written_last_and_a_flush_leaves_it_in_the_image(seed: int) -> None:
    rng = random.Random(seed)
    image, expected = Memory(), bytearray(SIZE)
    disk = VolatileDisk.seeded(image, SIZE, rng.choice((0.0, 0.5, 1.0)), str(seed))
    for _ in range(200):
        number, count = rng.randrange(60), rng.randint(1, 4)
        data = rng.randbytes(count * SECTOR_BYTES)
        disk.write(number * SECTOR_BYTES, data)
        expected[number * SECTOR_BYTES : (number + count) * SECTOR_BYTES] = data
        if rng.random() < 0.1:
            disk.flush()
            assert image.data == expected
        offset, size = rng.randrange(SIZE), rng.randrange(SIZE)
        assert disk.read(offset, size) == expected[offset : offset + size]
