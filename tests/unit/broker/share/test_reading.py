"""What a share group gets of what was read: parts of it, in whole batches."""

import weakref

import pytest

from tests.unit.broker.handlers.conftest import make_batch
from tidelog.broker.share.reading import Batches, batches_in
from tidelog.broker.storage.log_types import ReadResult


def batch(offset: int, *values: bytes) -> bytes:
    return offset.to_bytes(8, "big") + make_batch(*values)[8:]


ONE, TWO, THREE = batch(0, b"0", b"1"), batch(2, b"2", b"3"), batch(6, b"6")
READ = batches_in(0, ReadResult([ONE + TWO, THREE], 8), (), reads_committed=False)
ALL_BYTES = len(ONE + TWO + THREE)


def firsts(part: Batches) -> list[int]:
    return [place.first for place in part.places]


@pytest.mark.parametrize(
    ("offset", "max_bytes", "expected", "read_to"),
    [
        (0, ALL_BYTES, [0, 2, 6], 8),
        (0, ALL_BYTES - 1, [0, 2], 6),
        (0, len(ONE), [0], 2),
        (1, 1, [0], 2),
        (2, 1, [2], 6),
        (4, 1, [6], 8),
        (7, ALL_BYTES, [], 8),
    ],
)
def test_a_part_goes_on_from_an_offset_and_has_one_batch_at_least(
    offset: int, max_bytes: int, expected: list[int], read_to: int
) -> None:
    part = READ.part(offset, max_bytes)
    assert (part.read_from, firsts(part), part.read_to) == (offset, expected, read_to)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 7, [ONE + TWO, THREE]),
        (1, 2, [ONE + TWO]),
        (3, 3, [TWO]),
        (3, 6, [TWO, THREE]),
        (4, 5, []),
        (7, 7, []),
    ],
)
def test_neighbours_are_one_buffer(first: int, last: int, expected: list[bytes]) -> None:
    assert READ.holding(first, last) == expected


def test_what_a_reader_of_committed_records_leaves_out_is_not_in_the_buffers() -> None:
    read = batches_in(0, ReadResult([ONE + TWO, THREE], 8), (), reads_committed=False)
    without = read._replace(places=[read.places[0], read.places[2]])
    assert without.holding(0, 7) == [ONE, THREE]
    assert READ.bytes_per_offset == -(-ALL_BYTES // 8)


class Stretch(bytearray):
    """One that can be referred to weakly."""


@pytest.mark.parametrize(("first", "last", "is_kept"), [(0, 3, True), (2, 3, False)])
def test_less_than_half_of_what_was_read_does_not_keep_the_rest_in_memory(
    first: int, last: int, is_kept: bool
) -> None:
    stretch = Stretch(ONE + TWO + THREE)
    read = batches_in(0, ReadResult([stretch], 8), (), reads_committed=False)
    part, alive = read.holding(first, last), weakref.ref(stretch)
    del read, stretch
    assert b"".join(part) == ((ONE + TWO) if is_kept else TWO)
    assert (alive() is not None) == is_kept
