"""What a round of the archive covers when the log changes under it."""

from tidelog.pipeline.jobs.archive import shortened
from tidelog.pipeline.offsets import Place


def test_between_rounds_ends_stay_and_starts_move_with_retention() -> None:
    before = {Place("t", 0): (0, 100), Place("t", 1): (5, 50), Place("t", 2): (0, 10)}
    now = {Place("t", 0): (40, 900), Place("t", 1): (0, 60), Place("t", 2): (30, 90), Place("t", 3): (0, 9)}
    assert shortened(before, now) == {
        Place("t", 0): (40, 100),
        Place("t", 1): (5, 50),
        Place("t", 2): (10, 10),
    }
