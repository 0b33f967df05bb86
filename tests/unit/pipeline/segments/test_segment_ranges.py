"""Segment files read straight: every record of a range once, however it is cut, or an error that says why."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction import cleaned
from tests.unit.broker.storage.support import append, clean, flush, keyed, open_log
from tests.unit.pipeline.batches import expected_rows, make_batch, plain_rows
from tests.unit.pipeline.logs import write_log
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.offsets import OffsetRange, OffsetsLostError, Place
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.segments import data_folders, segment_files, segment_ranges
from tidelog.pipeline.segments.data_folders import by_place, find_segments, offset_at
from tidelog.pipeline.segments.segment_files import SegmentCutError, SegmentFile
from tidelog.pipeline.segments.segment_ranges import Piece, plan_pieces
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BATCH_HEADER_SIZE

TIME = 1_700_000_000_000


def make_log(sizes: list[int], first: int = 0) -> list[bytes]:
    """Batches of so many records each, of different lengths, whose offsets follow each other."""
    batches, offset = [], first
    for number, size in enumerate(sizes):
        rows = [(TIME + (offset + n) * 1000, b"k", b"v" * (n % 7 * 50), ()) for n in range(size)]
        compression = Compression.ZSTD if number % 5 == 4 else Compression.NONE
        batches.append(bytes(make_batch(rows, base_offset=offset, compression=compression)))
        offset += size
    return batches


def read(folder: Path, **options: str) -> list[dict[str, Any]]:
    """The rows that the source gives, by partition and offset, and one check: its tasks do not overlap."""
    reader = TidelogDataSource({"read.path": str(folder)} | options).reader(SCHEMA)
    found = [plain_rows(reader.read(task)) for task in reader.partitions()]
    rows = [row for part in found for row in part]
    assert rows == sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Topic t with 200 records in 20 batches and three segment files, starting at offset 100."""
    write_log(tmp_path, "t", 0, make_log([10] * 20, first=100), batches_a_segment=8)
    return tmp_path


@pytest.fixture(params=["index", "no index", "wrong index"])
def any_index(folder: Path, request: pytest.FixtureRequest) -> Path:
    for path in folder.glob("*/*.index"):
        if request.param == "no index":
            path.unlink()
        elif request.param == "wrong index":
            path.write_bytes(bytes(8) + path.read_bytes()[::-1])
    return folder


def offsets_of(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


def test_all_columns_are_those_of_the_plain_decoder(folder: Path) -> None:
    expected = [
        row for path in sorted(folder.glob("t-0/*.log")) for row in expected_rows(path.read_bytes(), "t", 0)
    ]
    assert len(expected) == 200
    assert read(folder, subscribe="t") == expected


@pytest.mark.parametrize("most_bytes", [1, 500, 10**9])
def test_any_cut_reads_the_same(any_index: Path, most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_ranges, "PIECE_BYTES", most_bytes)
    assert offsets_of(read(any_index, subscribe="t")) == list(range(100, 300))


def test_offsets_bound_the_read_within_batches(any_index: Path) -> None:
    options = {"startingOffsets": '{"t":{"0":123}}', "endingOffsets": '{"t":{"0":277}}'}
    assert offsets_of(read(any_index, subscribe="t", minPartitions="9", **options)) == list(range(123, 277))


def test_a_compacted_log_gives_what_is_left_of_it(tmp_path: Path) -> None:
    """Batches gone, batches with some records or none, last batches of files with none."""
    kept = {number: {number % 10, 9} for number in (0, 3, 6, 7, 9, 18)}
    kept |= {number: set() for number in (14, 15, 19)}
    batches = make_log([10] * 20, first=100)
    left = [cleaned(batches[number], kept[number]) for number in sorted(kept)]
    write_log(tmp_path, "t", 0, left, batches_a_segment=3)
    expected = sorted(100 + 10 * number + delta for number, deltas in kept.items() for delta in deltas)
    assert offsets_of(read(tmp_path, subscribe="t")) == expected
    for start, end in ((105, 255), (131, 132), (110, 139), (290, 300)):
        bounds = {
            name: json.dumps({"t": {"0": offset}})
            for name, offset in (("startingOffsets", start), ("endingOffsets", end))
        }
        assert offsets_of(read(tmp_path, subscribe="t", **bounds)) == [
            each for each in expected if start <= each < end
        ]


def test_timestamps_bound_the_read(folder: Path) -> None:
    options = {"startingTimestamp": str(TIME + 115_000), "endingTimestamp": str(TIME + 290_500)}
    assert offsets_of(read(folder, subscribe="t", **options)) == list(range(115, 291))


@pytest.fixture
def planned(folder: Path) -> dict[Place, list[Any]]:
    return dict(by_place(find_segments([folder])))


def test_several_tasks_share_a_segment(planned: dict[Place, list[Any]]) -> None:
    pieces = plan_pieces(planned, [OffsetRange("t", 0, 100, 300)], 10)
    assert len(pieces) == 10
    assert len({piece.path for piece in pieces}) == 3
    sizes = [piece.offsets.size for piece in pieces]
    assert max(sizes) <= 3 * min(sizes)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=25),
    st.integers(1, 9),
    st.none() | st.integers(1, 40),
    st.data(),
)
def test_pieces_cover_a_range_once_in_order(
    sizes: list[int], batches_a_segment: int, min_partitions: int | None, draw: st.DataObject
) -> None:
    total = sum(sizes)
    start = draw.draw(st.integers(0, total - 1))
    end = draw.draw(st.integers(start + 1, total))
    with TemporaryDirectory() as name:
        write_log(Path(name), "t", 0, make_log(sizes), batches_a_segment=batches_a_segment)
        files = by_place(find_segments([Path(name)]))
        pieces = plan_pieces(files, [OffsetRange("t", 0, start, end)], min_partitions)
        rows = [offset for piece in pieces for offset in range(piece.offsets.start, piece.offsets.end)]
        assert rows == list(range(start, end))
        assert all(left.offsets.end == right.offsets.start for left, right in pairwise(pieces))
        options = {
            "startingOffsets": f'{{"t":{{"0":{start}}}}}',
            "endingOffsets": f'{{"t":{{"0":{end}}}}}',
        }
        assert offsets_of(read(Path(name), subscribe="t", **options)) == rows


def test_batches_larger_than_a_read_come_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_files, "READ_BYTES", 70)
    assert offsets_of(read(folder, subscribe="t")) == list(range(100, 300))


def test_what_lies_behind_the_end_is_not_looked_at(folder: Path) -> None:
    with sorted(folder.glob("t-0/*.log"))[-1].open("ab") as file:
        file.write(b"\xff" * 200)
    rows = read(folder, subscribe="t", endingOffsets='{"t":{"0":299}}', minPartitions="12")
    assert offsets_of(rows) == list(range(100, 299))


def tasks_of(folder: Path, **options: str) -> Iterator[Any]:
    """Plans the read now, reads when it is iterated."""
    reader = TidelogDataSource({"read.path": str(folder), "subscribe": "t"} | options).reader(SCHEMA)
    return (plain_rows(reader.read(task)) for task in list(reader.partitions()))


def test_a_segment_deleted_after_planning_is_an_error(folder: Path) -> None:
    tasks = tasks_of(folder)
    sorted(folder.glob("t-0/*.log"))[0].unlink()
    with pytest.raises(OffsetsLostError, match="deleted after the read was planned, with it the offsets 100"):
        list(tasks)


def test_a_segment_deleted_after_planning_is_skipped_and_named(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = tasks_of(folder, failOnDataLoss="false")
    sorted(folder.glob("t-0/*.log"))[0].unlink()
    assert offsets_of([row for rows in tasks for row in rows]) == list(range(180, 300))
    assert "offsets 100 to 179" in caplog.text


def test_a_segment_deleted_while_it_is_cut_is_left_to_its_task(
    planned: dict[Place, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place, files), *_ = planned.items()
    whole = OffsetRange(*place, files[0].base_offset, files[1].base_offset)
    spans = list(segment_ranges._spans(planned, whole, None))
    assert len(plan_pieces(planned, [whole], 4)) > 1
    Path(files[0].path).unlink()
    monkeypatch.setattr(segment_ranges, "_spans", lambda *_: iter(spans))
    assert plan_pieces(planned, [whole], 4) == [Piece(files[0].path, whole)]


def test_a_missing_head_is_an_error_or_named(planned: dict[Place, list[Any]]) -> None:
    wanted = [OffsetRange("t", 0, 40, 110)]
    with pytest.raises(OffsetsLostError, match="no segment file holds the offsets 40 to 99"):
        plan_pieces(planned, wanted)
    losses: list[str] = []
    (piece,) = plan_pieces(planned, wanted, None, losses)
    assert piece.offsets == OffsetRange("t", 0, 100, 110)
    assert len(losses) == 1
    with pytest.raises(OffsetsLostError, match="u-0: no segment file holds the offsets 0 to 4"):
        plan_pieces(planned, [OffsetRange("u", 0, 0, 5)])


@pytest.mark.parametrize("lost_bytes", [1, 100, 10_000])
def test_a_file_cut_short_in_the_middle_of_a_log_is_an_error(folder: Path, lost_bytes: int) -> None:
    path = sorted(folder.glob("t-0/*.log"))[0]
    content = path.read_bytes()
    path.write_bytes(content[: max(len(content) - lost_bytes, 0)])
    with pytest.raises(SegmentCutError, match=r"00100\.log.*up to offset 179"):
        read(folder, subscribe="t")


def test_a_flipped_bit_is_refused(folder: Path) -> None:
    path = sorted(folder.glob("t-0/*.log"))[1]
    content = bytearray(path.read_bytes())
    content[BATCH_HEADER_SIZE + 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ProtocolError, match="batch at offset 180 does not match its CRC"):
        read(folder, subscribe="t")


def test_a_batch_is_found_by_offset_and_by_position(any_index: Path) -> None:
    with SegmentFile(sorted(any_index.glob("t-0/*.log"))[0]) as file:
        batches = list(file.walk())
        for number, batch in enumerate(batches):
            assert file.find(batch.header.base_offset) == file.find(batch.header.last_offset) == batch
            assert file.first_from(batch.position, 0) == batch
            following = batches[number + 1] if number + 1 < len(batches) else None
            assert file.first_from(batch.position + 1, 0) == following
        assert file.find(180) is None
        assert file.end_offset() == 180


KEYS = 4


@pytest.fixture
def compacted(tmp_path: Path) -> PartitionLog:
    """Topic t with 60 records of four keys, in batches of the same size and closed segments of twelve."""
    config = LogConfig(cleanup_policy=("compact",), index_interval_bytes=1, segment_bytes=100_000)
    folder = tmp_path / "t-0"
    log = open_log(folder, config=config)
    for number in range(60):
        append(log, keyed([(b"%d" % (number % KEYS if number % 12 else 0), b"%02d" % number)]))
        if number % 12 == 11:
            log.roll(TIME)
    flush(log)
    return log


def tasks_before(log: PartitionLog, end: int, tasks: int) -> Iterator[Any]:
    options = {"endingOffsets": json.dumps({"t": {"0": end}}), "minPartitions": str(tasks)}
    return tasks_of(log.folder.parent, **options)


@pytest.mark.parametrize(("tasks", "read_before"), [(1, 0), (1, 1), (12, 3), (40, 0)])
def test_a_clean_during_a_read_takes_no_newest_record_and_doubles_none(
    compacted: PartitionLog, tasks: int, read_before: int
) -> None:
    """Batches have one size: a position from before the clean would be that of a later batch."""
    reading = tasks_before(compacted, 60, tasks)
    found = [row for _, rows in zip(range(read_before), reading, strict=False) for row in rows]
    assert clean(compacted) is not None
    assert compacted.segment_count == 2
    found += [row for rows in reading for row in rows]
    offsets = offsets_of(found)
    assert offsets == sorted(set(offsets))
    newest = {bytes(row["key"]): row["offset"] for row in found}
    assert newest == {b"0": 56, b"1": 57, b"2": 58, b"3": 59}


def test_a_file_that_a_clean_has_joined_is_not_a_loss(
    compacted: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"failOnDataLoss": "false", "endingOffsets": '{"t":{"0":60}}'}
    reading = tasks_of(compacted.folder.parent, **options)
    clean(compacted)
    assert offsets_of([row for rows in reading for row in rows]) == [56, 57, 58, 59]
    assert not caplog.records


def interrupted(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a swap stands when its second segment is gone and the new one has not its name yet."""
    second = log.folder / f"{12:020d}.log"
    swap = log.folder / f"{0:020d}.log.swap"
    monkeypatch.setattr(data_folders, "_SWAP_CHECK_SECONDS", 0)
    swap.write_bytes(b"".join(path.read_bytes() for path in sorted(log.folder.glob("*.log"))[:2]))
    second.unlink()
    return swap


def test_a_swap_that_does_not_finish_is_an_error_that_says_what_to_do(
    compacted: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(compacted, monkeypatch)
    with pytest.raises(SegmentCutError, match=r"00\.log\.swap: .* Start the broker, .* read again; or"):
        tasks_before(compacted, 60, 1)


def test_a_running_swap_is_waited_for(compacted: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    swap = interrupted(compacted, monkeypatch)
    monkeypatch.setattr("time.sleep", lambda seconds: swap.exists() and swap.rename(swap.with_suffix("")))
    rows = [row for rows in tasks_before(compacted, 60, 7) for row in rows]
    assert offsets_of(rows) == list(range(60))


def test_a_file_in_the_middle_that_is_gone_is_not_taken_for_a_joined_one(compacted: PartitionLog) -> None:
    reading = tasks_before(compacted, 60, 1)
    (compacted.folder / f"{12:020d}.log").unlink()
    with pytest.raises(OffsetsLostError, match="offsets 12 to 23"):
        list(reading)


def test_a_time_is_not_looked_up_in_files_that_went_away(compacted: PartitionLog) -> None:
    files = find_segments([compacted.folder])
    clean(compacted)
    with pytest.raises(SegmentCutError, match=r"12\.log does not exist any more: .* Read again"):
        offset_at(files, (0, 60), 2**62)


def test_an_empty_range_has_no_piece(planned: dict[Place, list[Any]]) -> None:
    assert plan_pieces(planned, []) == []
    (piece,) = plan_pieces(planned, [OffsetRange("t", 0, 299, 300)], 5)
    assert isinstance(piece, Piece)
