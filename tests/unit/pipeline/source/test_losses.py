"""What a read had to leave out is counted once, however often its tasks ran."""

from pathlib import Path

from tidelog.pipeline.offsets import OffsetRange, Place
from tidelog.pipeline.source.losses import count_losses, left_out, note_losses


def test_an_offset_that_is_noted_more_than_once_counts_once(tmp_path: Path) -> None:
    assert count_losses(tmp_path / "absent") == 0
    note_losses(None, [OffsetRange("t", 0, 0, 9)])
    folder = tmp_path / "lost"
    for start, end in ((0, 10), (0, 10), (5, 12), (20, 21), (6, 7)):
        note_losses(str(folder), [OffsetRange("t", 0, start, end)])
    note_losses(str(folder), [OffsetRange("t", 1, 0, 3), OffsetRange("t" * 249, 0, 0, 2)])
    assert count_losses(folder) == 13 + 3 + 2


def test_left_out_is_what_no_task_takes() -> None:
    wanted = {Place("t", 0): (5, 30), Place("t", 1): (0, 4), Place("u", 0): (0, 4), Place("u", 1): (7, 7)}
    taken = [OffsetRange("t", 0, 20, 25), OffsetRange("t", 0, 8, 15), OffsetRange("u", 0, 0, 4)]
    assert list(left_out(wanted, taken)) == [
        OffsetRange("t", 0, 5, 8),
        OffsetRange("t", 0, 15, 20),
        OffsetRange("t", 0, 25, 30),
        OffsetRange("t", 1, 0, 4),
    ]
