"""A log answers the same wherever its closed segments are kept: here in memory, behind the interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.broker.storage.support import (
    NOW_MS,
    append,
    append_own,
    append_transactional,
    batch,
    flush,
    marker,
    open_log,
    outcome,
)
from tidelog.broker.storage.disk import ColdRead
from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.readable_log import ReadableLog
from tidelog.broker.storage.segment import Place, Segment, Slice
from tidelog.broker.storage.transaction_index import TransactionIndex
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import NO_TIMESTAMP

ABORTING, COMMITTING = 1, 2
ONE = len(batch())
CONFIG = LogConfig(segment_bytes=6 * ONE, index_interval_bytes=2 * ONE)


class Distant:
    """What has to be brought here before it can answer at once."""

    _is_here = False

    def _bring(self, nowait: bool) -> None:
        if nowait and not self._is_here:
            raise ColdRead
        self._is_here = True


class DistantTransactions(Distant):
    def __init__(self, index: TransactionIndex) -> None:
        self.count = index.count
        self._entries = [index.at(number) for number in range(index.count)]

    def aborted(
        self, offset: int, upper_offset: int, *, nowait: bool = False
    ) -> tuple[list[tuple[int, int]], bool]:
        self._bring(nowait)
        found = [each for each in self._entries if each[3] >= offset and each[2] < upper_offset]
        return [(producer_id, first_offset) for _, producer_id, first_offset, *_ in found], False


class DistantSegment(Distant):
    def __init__(self, segment: LocalSegment) -> None:
        self.base_offset, self.end_offset = segment.base_offset, segment.end_offset
        self.max_timestamp = segment.max_timestamp
        self.max_timestamp_offset = segment.max_timestamp_offset
        self.transaction_index = DistantTransactions(segment.transaction_index)
        self._places = list(segment.walk(0))
        self._data = segment.read_bytes(0, segment.size_bytes)

    def read(self, wanted: Read, start: int | None = None) -> Slice | None:
        self._bring(wanted.nowait)
        found = list(self.batches(wanted.offset))
        first = found[0].position
        assert start in (None, first)
        most_bytes = max(wanted.max_bytes, found[0].size_bytes * wanted.at_least_one)
        fit = [each for each in found if each.end - first <= most_bytes]
        fit = [each for each in fit if each.last_offset < wanted.upper_offset]
        return Slice(self._data[first : fit[-1].end], fit[-1].last_offset + 1, fit[-1].end) if fit else None

    def batches(self, offset: int, timestamp_ms: int = NO_TIMESTAMP) -> Iterator[Place]:
        return (place for place in self._places if place.last_offset >= offset)

    def read_batch(self, place: Place) -> memoryview:
        return self._data[place.position : place.end]


class Chain(NamedTuple):
    segments: Sequence[Segment]


class DistantLog(ReadableLog):
    """The same log, its closed segments elsewhere."""

    failure = None

    def __init__(self, log: PartitionLog) -> None:
        *closed, active = log._segments.segments
        self.folder, self.topic, self.partition = log.folder, log.topic, log.partition
        self.start_offset, self.end_offset = log.start_offset, log.end_offset
        self._segments = Chain([*map(DistantSegment, closed), active])
        self._positions = {}
        self._epochs = log._epochs


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Several segments: plain batches with times out of order, transactions that end in later segments."""
    log = open_log(tmp_path, config=CONFIG)
    for number in range(12):
        append(log, batch(count=1 + number % 3, timestamp=NOW_MS + number * 7 % 10 * 1000))
        append_transactional(log, ABORTING, number)
        append_transactional(log, COMMITTING, number)
        if number % 5 == 4:
            append_own(log, marker(ABORTING, commits=False))
            append_own(log, marker(COMMITTING))
    flush(log)
    assert log.segment_count > 5
    return log


def answers(log: ReadableLog) -> Iterator[Any]:
    """To every question that a reader may have."""
    ends = range(log.end_offset + 1)
    for offset in ends:
        for upper_offset in ends:
            for max_bytes in (1, 3 * ONE, 1 << 20):
                for at_least_one in (True, False):
                    found = log.read(Read(offset, max_bytes, upper_offset, at_least_one))
                    yield b"".join(found.records), found.next_offset
            if upper_offset > offset:
                yield sorted(log.aborted_transactions(offset, upper_offset))
    for timestamp_ms in range(NOW_MS - 1, NOW_MS + 11_000, 500):
        yield log.offset_for_timestamp(timestamp_ms)
    yield log.max_timestamp_offset()
    yield [outcome(log.read, Read(offset, 1, 1)) for offset in (-1, log.end_offset + 1)]


def test_every_reader_gets_the_same_from_closed_segments_elsewhere(log: PartitionLog) -> None:
    here, elsewhere = list(answers(log)), list(answers(DistantLog(log)))
    assert here == elsewhere
    assert here[-1] == [ErrorCode.OFFSET_OUT_OF_RANGE] * 2
    assert any(isinstance(each, list) and each for each in here[:-1])  # Aborted transactions.


def test_a_segment_that_cannot_answer_at_once_says_so_and_does_where_it_may_wait(log: PartitionLog) -> None:
    elsewhere, end = DistantLog(log), log.end_offset
    wanted = Read(0, 1 << 20, end)
    at_once = wanted._replace(nowait=True)
    with pytest.raises(ColdRead):
        elsewhere.read(at_once)
    assert elsewhere.read(wanted) == elsewhere.read(at_once) == log.read(wanted)
    with pytest.raises(ColdRead):
        elsewhere.aborted_transactions(0, end, nowait=True)
    waited = elsewhere.aborted_transactions(0, end)
    assert waited == elsewhere.aborted_transactions(0, end, nowait=True) == log.aborted_transactions(0, end)
