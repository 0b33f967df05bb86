"""Where committed offsets are reset to."""

import pytest

from tidelog.broker.coordinator.offsets.reset import PartitionFacts, Reset, ResetTo

FACTS = PartitionFacts(start_offset=10, end_offset=100, committed=50, at_timestamp=70)


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        (Reset(ResetTo.EARLIEST), 10),
        (Reset(ResetTo.LATEST), 100),
        (Reset(ResetTo.OFFSET, 33), 33),
        (Reset(ResetTo.OFFSET, 3), 10),
        (Reset(ResetTo.OFFSET, 333), 100),
        (Reset(ResetTo.TIMESTAMP, 1), 70),
        (Reset(ResetTo.SHIFT, -20), 30),
        (Reset(ResetTo.SHIFT, 20), 70),
        (Reset(ResetTo.SHIFT, -200), 10),
        (Reset(ResetTo.SHIFT, 200), 100),
    ],
)
def test_a_new_offset_lies_within_its_log(reset: Reset, expected: int) -> None:
    assert reset.new_offset(FACTS) == expected


def test_a_time_after_all_records_is_the_end() -> None:
    assert Reset(ResetTo.TIMESTAMP, 1).new_offset(FACTS._replace(at_timestamp=None)) == 100


def test_a_shift_needs_a_committed_offset() -> None:
    assert Reset(ResetTo.SHIFT, 1).new_offset(FACTS._replace(committed=None)) is None
