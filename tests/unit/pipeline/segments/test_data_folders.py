"""What a folder says of its logs without its broker, and when that is believed."""

from pathlib import Path

import pytest

from tests.unit.pipeline.batches import make_batch
from tests.unit.pipeline.logs import write_log
from tidelog.pipeline.offsets import OptionError, Place
from tidelog.pipeline.options.source import parse_options, parse_stream_options
from tidelog.pipeline.segments.data_folders import (
    CLEAN_SHUTDOWN,
    find_segments,
    logs_without_broker,
    offset_at,
)
from tidelog.pipeline.segments.segment_files import SegmentCutError

Bounds = dict[Place, tuple[int, int]]
A0, A1, B0 = Place("a", 0), Place("a", 1), Place("b", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    batches = [make_batch([(1, None, b"v", ())] * 5, base_offset=base) for base in range(20, 60, 5)]
    write_log(tmp_path, "a", 0, batches, batches_a_segment=3)
    write_log(tmp_path, "a", 1, batches)
    write_log(tmp_path, "b", 0, batches[:1])
    (tmp_path / "a-1.0123456789abcdef-delete").mkdir()
    (tmp_path / "a-1.0123456789abcdef-delete" / f"{0:020d}.log").write_bytes(b"")
    return tmp_path


def bounds(folder: Path, **options: str) -> Bounds:
    return logs_without_broker(parse_options({"read.path": str(folder)} | options), [folder]).bounds


def test_topics_are_chosen_as_from_a_broker(folder: Path) -> None:
    assert bounds(folder, subscribe="a") == {A0: (20, 60), A1: (20, 60)}
    assert bounds(folder, subscribePattern="[b-z]") == {B0: (20, 25)}
    assert bounds(folder, subscribePattern="c") == {}
    assert bounds(folder, assign='{"a":[1]}') == {A1: (20, 60)}


@pytest.mark.parametrize(
    ("options", "what"), [({"subscribe": "a,c"}, "no c"), ({"assign": '{"a":[0,2]}'}, "no a-2")]
)
def test_what_is_not_there_is_named(folder: Path, options: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        bounds(folder, **options)


def test_partitions_may_lie_in_several_folders_but_each_in_one(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    batch = make_batch([(1, None, b"v", ())] * 5)
    write_log(other, "a", 2, [batch])
    both = {"read.path": f"{folder}, {other}"}
    folders = [folder, other]
    found = logs_without_broker(parse_options(both | {"subscribe": "a"}), folders)
    assert found.bounds == {A0: (20, 60), A1: (20, 60), Place("a", 2): (0, 5)}
    write_log(other, "b", 0, [batch])
    with pytest.raises(OptionError, match=rf"b-0 is in {folder} and in {other}\. Name only the folder that"):
        logs_without_broker(parse_options(both | {"subscribe": "b"}), folders)
    (other / CLEAN_SHUTDOWN).unlink()
    with pytest.raises(OptionError, match=f"{other} is in use"):
        logs_without_broker(parse_options(both | {"subscribe": "a"}), folders)


def test_a_folder_without_segments_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected TOPIC-PARTITION/OFFSET"):
        find_segments([tmp_path])


def test_deleted_records_are_left_out(folder: Path) -> None:
    (folder / "log-start-offset-checkpoint").write_text("0\n2\na 0 33\nb 0 20\n")
    assert bounds(folder, subscribe="a,b") == {A0: (33, 60), A1: (20, 60), B0: (20, 25)}


def test_a_first_file_that_is_gone_is_missed_unless_a_crash_may_explain_it(folder: Path) -> None:
    (folder / "log-start-offset-checkpoint").write_text("0\n1\na 0 10\n")
    assert bounds(folder, assign='{"a":[0]}') == {A0: (10, 60)}
    (folder / CLEAN_SHUTDOWN).unlink()
    assert bounds(folder, assign='{"a":[0]}', endingOffsets='{"a":{"0":60}}') == {A0: (20, 60)}


@pytest.mark.parametrize("damage", ["gone", "empty", "cut"])
def test_a_search_by_time_does_not_pass_offsets_that_no_file_holds(folder: Path, damage: str) -> None:
    batches = [make_batch([(base, None, b"v", ())] * 5, base_offset=base) for base in range(0, 60, 5)]
    _, path, _, _ = write_log(folder, "c", 0, batches, batches_a_segment=3)
    files = find_segments([folder], ["c"])
    assert [offset_at(files, (0, 60), time) for time in (0, 14, 31, 99)] == [0, 15, 35, -1]
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else path.read_bytes()[: 2 * len(batches[0])])
    files = find_segments([folder], ["c"])
    assert offset_at(files, (0, 60), 10) == 10
    for time in (26, 31, 99):
        with pytest.raises(SegmentCutError, match="to 29"):
            offset_at(files, (0, 60), time)
    assert offset_at(files, (30, 60), 26) == 30


def test_without_a_clean_shutdown_the_end_must_be_given(folder: Path) -> None:
    (folder / CLEAN_SHUTDOWN).unlink()
    for options in ({}, {"endingOffsets": '{"a":{"0":30,"1":-1}}'}, {"endingTimestamp": "5"}):
        with pytest.raises(OptionError, match="or explicit endingOffsets in a batch"):
            bounds(folder, subscribe="a", **options)
    with pytest.raises(OptionError, match="what is committed is not known"):
        logs_without_broker(parse_stream_options({"read.path": str(folder), "subscribe": "a"}), [folder])
    ends = '{"a":{"0":30,"1":40}}'
    assert bounds(folder, subscribe="a", endingOffsets=ends) == {A0: (20, 30), A1: (20, 40)}


def test_a_file_that_ends_before_what_was_durable_is_an_error(folder: Path) -> None:
    (folder / "recovery-point-offset-checkpoint").write_text("0\n1\na 0 60\n")
    assert bounds(folder, assign='{"a":[0]}') == {A0: (20, 60)}
    path = sorted(folder.glob("a-0/*.log"))[-1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SegmentCutError, match="ends at offset 55, and the broker had made all before 60"):
        bounds(folder, assign='{"a":[0]}')
