"""Records of open transactions: the later write in the log counts, whichever transaction ends first."""

import pytest

from tidelog.broker.coordinator.pending_records import PendingRecord, PendingRecords

A, B = 7, 8


@pytest.fixture
def pending() -> PendingRecords[str, int]:
    held: PendingRecords[str, int] = PendingRecords()
    held.add(A, 0, "k", 1)
    held.add(B, 3, "k", 2)
    held.add(A, 0, "l", 3)
    return held


def test_what_waits_is_given_in_the_order_of_the_log(pending: PendingRecords[str, int]) -> None:
    pending.add(A, 0, "k", 4)
    assert list(pending) == [
        PendingRecord(B, 3, "k", 2),
        PendingRecord(A, 0, "l", 3),
        PendingRecord(A, 0, "k", 4),
    ]


def test_a_commit_gives_what_counts_and_an_abort_nothing(pending: PendingRecords[str, int]) -> None:
    assert pending.end(A, is_commit=False) == {}
    assert ("k" in pending, "l" in pending) == (True, False)
    assert pending.end(B, is_commit=True) == {"k": 2}
    assert "k" not in pending
    assert pending.end(B, is_commit=True) == {}


def test_the_earlier_write_does_not_count_when_the_later_one_was_committed_first(
    pending: PendingRecords[str, int],
) -> None:
    assert pending.end(B, is_commit=True) == {"k": 2}
    assert pending.end(A, is_commit=True) == {"l": 3}


def test_the_later_write_counts_when_it_is_committed_last(pending: PendingRecords[str, int]) -> None:
    assert pending.end(A, is_commit=True) == {"k": 1, "l": 3}
    assert pending.end(B, is_commit=True) == {"k": 2}


def test_a_later_record_outside_of_transactions_counts(pending: PendingRecords[str, int]) -> None:
    pending.overwritten("k")
    pending.overwritten("unknown")
    assert "k" not in pending
    assert pending.end(B, is_commit=True) == {}
    assert pending.end(A, is_commit=True) == {"l": 3}
