"""Readers of committed records see no record of an aborted transaction, and every other one."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.batches import make_batch, plain_rows
from tests.unit.pipeline.logs import write_log
from tidelog.pipeline.arrow.columnar import decode_record_batches
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.segments.segment_transactions import TransactionsInFilesError
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import AbortedTransactions, iter_batches
from tidelog.protocol.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, write_crc

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
ATTRIBUTES_AT = 22


@dataclass
class Log:
    """A log that several producers write to, with and without transactions, and what is to be seen of it."""

    data: bytes = b""
    end: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)
    ends: dict[tuple[int, int], int] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    markers: set[int] = field(default_factory=set)
    open: dict[int, list[int]] = field(default_factory=dict)

    def write(self, producer_id: int, count: int, *, in_transaction: bool) -> None:
        if in_transaction:
            self.open.setdefault(producer_id, []).extend(range(self.end, self.end + count))
        self._append([(1, None, b"v", ())] * count, producer_id, TRANSACTIONAL_BIT * in_transaction)

    def finish(self, producer_id: int, key: bytes) -> None:
        """End the producer's transaction with a marker, if one is open."""
        if producer_id not in self.open:
            return
        offsets = self.open.pop(producer_id)
        if key == ABORT:
            self.aborted.append((producer_id, offsets[0]))
            self.ends[producer_id, offsets[0]] = self.end
            self.hidden.update(offsets)
        self.markers.add(self.end)
        self._append([(1, key, b"\0\0\0\0\0\1", ())], producer_id, TRANSACTIONAL_BIT | CONTROL_BIT)

    def _append(self, rows: list[Any], producer_id: int, attributes: int) -> None:
        batch = make_batch(rows, base_offset=self.end, producer=(producer_id, 0, 0))
        batch[ATTRIBUTES_AT] |= attributes
        write_crc(batch)
        self.data += batch
        self.end += len(rows)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log()
    log.write(9, 1, in_transaction=False)
    for _ in range(draw(st.integers(1, 20))):
        producer_id = draw(st.integers(1, 3))
        act = draw(st.sampled_from(["transaction", "transaction", "plain", "abort", "commit"]))
        if act in ("abort", "commit"):
            log.finish(producer_id, ABORT if act == "abort" else COMMIT)
        else:
            # A producer with a transactional id writes nothing outside of transactions.
            in_transaction = act == "transaction"
            number = producer_id if in_transaction else producer_id + 10
            log.write(number, draw(st.integers(1, 4)), in_transaction=in_transaction)
    for producer_id in tuple(log.open):
        log.finish(producer_id, draw(st.sampled_from([ABORT, COMMIT])))
    return log


def seen(data: bytes, aborted: list[tuple[int, int]] | None, start: int = 0) -> list[int]:
    batch_filter = None if aborted is None else AbortedTransactions(aborted)
    batches = decode_record_batches(
        data, topic="t", partition=0, start_offset=start, batch_filter=batch_filter
    )
    return [row["offset"] for row in plain_rows(batches)]


@given(logs())
def test_aborted_records_are_hidden_and_no_others(log: Log) -> None:
    everything = [offset for offset in range(log.end) if offset not in log.markers]
    assert seen(log.data, None) == everything
    assert seen(log.data, log.aborted) == [offset for offset in everything if offset not in log.hidden]


@given(logs(), st.data())
def test_an_answer_that_begins_within_a_transaction_is_filtered_alike(log: Log, draw: st.DataObject) -> None:
    """A broker lists for each answer the aborted transactions that touch it, however early they began."""
    position, header = draw.draw(st.sampled_from(list(iter_batches(log.data))))
    touching = [each for each in log.aborted if log.ends[each] >= header.base_offset]
    start = draw.draw(st.integers(header.base_offset, header.last_offset))
    expected = [
        offset for offset in range(start, log.end) if offset not in log.markers and offset not in log.hidden
    ]
    assert seen(log.data[position:], touching, start) == expected


def test_a_marker_that_says_nothing_is_malformed() -> None:
    log = Log()
    log.write(1, 2, in_transaction=True)
    log.finish(1, b"\0")
    with pytest.raises(ProtocolError, match="control batch at offset 2: expected a key of 4 bytes"):
        seen(log.data, [(1, 0)])


def committed(folder: Path, ending: int) -> list[int]:
    options = {"subscribe": "t", "isolation.level": "read_committed", "minPartitions": "3"}
    ends = {"endingOffsets": f'{{"t":{{"0":{ending}}}}}'}
    reader = TidelogDataSource({"read.path": str(folder)} | options | ends).reader(SCHEMA)
    return [row["offset"] for task in reader.partitions() for row in plain_rows(reader.read(task))]


@given(logs(), st.integers(1, 5), st.data())
def test_segment_files_say_themselves_what_was_aborted(log: Log, batches_a_segment: int, data: Any) -> None:
    batches = [log.data[at : at + header.size_bytes] for at, header in iter_batches(log.data)]
    ending = data.draw(st.integers(1, log.end))
    with TemporaryDirectory() as folder:
        write_log(Path(folder), "t", 0, batches, batches_a_segment=batches_a_segment)
        expected = [at for at in range(ending) if at not in log.hidden and at not in log.markers]
        assert committed(Path(folder), ending) == expected


def test_a_transaction_whose_end_is_not_in_the_files_is_refused(tmp_path: Path) -> None:
    log = Log()
    log.write(9, 5, in_transaction=False)
    log.write(7, 1, in_transaction=True)
    write_log(tmp_path, "t", 0, [log.data[at : at + each.size_bytes] for at, each in iter_batches(log.data)])
    assert committed(tmp_path, 5) == list(range(5))
    with pytest.raises(TransactionsInFilesError, match="offset 5 belongs to a transaction of producer 7"):
        committed(tmp_path, 6)
