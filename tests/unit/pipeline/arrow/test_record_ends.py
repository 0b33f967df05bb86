"""Walking many batches side by side finds what walking each alone does, and refuses what it refuses."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.arrow.record_ends import record_places, walk
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BATCH_HEADER_SIZE, RecordBatchBuilder
from tidelog.protocol.records.varints import encode_varint

# Around these, a length prefix takes another byte.
LENGTHS = st.sampled_from([6, 7, 40, 63, 64, 200]) | st.integers(6, 300)
FEW = st.lists(LENGTHS, max_size=8)


def payload(lengths: list[int]) -> bytes:
    return b"".join(encode_varint(length) + bytes(length) for length in lengths)


def places(payloads: list[bytes], counts: list[int], gap: int) -> tuple[list[int], list[int]]:
    """With `gap` bytes in front of each payload, as batch headers lie there."""
    data = b"".join(bytes([255]) * gap + each for each in payloads)
    sizes = np.array([len(each) for each in payloads], np.int64)
    ends = np.cumsum(sizes + gap)
    starts = ends - sizes
    found = record_places(np.frombuffer(data, np.uint8), starts, ends, np.array(counts, np.int64))
    return found[0].tolist(), found[1].tolist()


def expected(payloads: list[bytes], counts: list[int], gap: int) -> tuple[list[int], list[int]]:
    begins: list[int] = []
    ends: list[int] = []
    at = 0
    for each, count in zip(payloads, counts, strict=True):
        at += gap
        own = [at + end for end in walk(each, count)]
        begins += [at, *own[:-1]] if own else []
        ends += own
        at += len(each)
    return begins, ends


@given(st.lists(FEW, min_size=1, max_size=60), st.sampled_from([0, 61]))
def test_any_number_of_batches_gives_the_same_places(batches: list[list[int]], gap: int) -> None:
    payloads, counts = [payload(each) for each in batches], [len(each) for each in batches]
    assert places(payloads, counts, gap) == expected(payloads, counts, gap)


@given(FEW, st.integers(24, 70), st.sampled_from([9000, 2**20]))
def test_a_record_of_many_bytes_among_small_ones_is_found(few: list[int], copies: int, large: int) -> None:
    payloads = [payload(few)] * copies + [payload([large, 6, large])]
    counts = [len(few)] * copies + [3]
    assert places(payloads, counts, 61) == expected(payloads, counts, 61)


# Sizes of records in a row, as producers send them: many of one size, and of any size.
RUNS = st.tuples(LENGTHS, st.integers(1, 500)).map(lambda run: [run[0]] * run[1])
MANY = st.lists(RUNS, min_size=1, max_size=4).map(lambda runs: [each for run in runs for each in run])


@given(st.lists(MANY, min_size=1, max_size=4))
def test_runs_of_records_of_one_size_end_where_each_does(batches: list[list[int]]) -> None:
    payloads, counts = [payload(each) for each in batches], [len(each) for each in batches]
    assert places(payloads, counts, 61) == expected(payloads, counts, 61)


def log_of(counts: list[int], seed: int) -> list[bytes]:
    """So many records in each batch, of any size, whose contents look like anything; some have headers."""
    chance = random.Random(seed)
    payloads = []
    for count in counts:
        builder = RecordBatchBuilder()
        for _ in range(count):
            headers = (("h", chance.randbytes(chance.randrange(4))),) * chance.randrange(2)
            value = chance.randbytes(chance.randrange(300))
            builder.append(chance.randrange(10**6), None, value, headers)
        payloads.append(bytes(builder.build(Compression.NONE, -1, -1, -1))[BATCH_HEADER_SIZE:])
    return payloads


@given(st.lists(st.integers(1, 900), min_size=6, max_size=10), st.integers(0, 1000))
@settings(max_examples=12)
def test_batches_cut_into_pieces_give_the_same_places(counts: list[int], seed: int) -> None:
    payloads = log_of(counts, seed)
    assert places(payloads, counts, 61) == expected(payloads, counts, 61)


def test_pieces_are_used_where_offsets_have_no_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [500, 730, 256, 300, 600, 400, 500, 501]
    payloads = log_of(counts, 2)
    wanted = expected(payloads, counts, 61)
    monkeypatch.setattr("tidelog.pipeline.arrow.record_ends.walk", None)
    assert places(payloads, counts, 61) == wanted


@given(st.lists(FEW.filter(bool), min_size=24, max_size=40), st.data())
def test_damage_is_refused_or_found_alike(batches: list[list[int]], draw: st.DataObject) -> None:
    payloads, counts = [payload(each) for each in batches], [len(each) for each in batches]
    number = draw.draw(st.integers(0, len(batches) - 1))
    damaged = bytearray(payloads[number])
    damaged[draw.draw(st.integers(0, min(len(damaged) - 1, 200)))] = draw.draw(st.integers(0, 255))
    payloads[number] = bytes(damaged)
    counts[number] += draw.draw(st.sampled_from([0, 0, 0, 1, -1]))
    try:
        wanted = expected(payloads, counts, 61)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            places(payloads, counts, 61)
        return
    assert places(payloads, counts, 61) == wanted


@pytest.mark.parametrize("count", [-1, 3])
def test_a_count_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError, match=f"{count} records cannot lie in 14 bytes"):
        places([payload([6, 6])], [count], 61)
