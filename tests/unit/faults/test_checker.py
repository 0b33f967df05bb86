"""The checker finds each kind of damage that is planted, and nothing where there is none."""

import pytest

from faults.checker import (
    ACKED_SOMEWHERE,
    OPEN,
    REFUSED,
    UNCERTAIN,
    Kind,
    Ledger,
    Mark,
    Stored,
    check,
    check_sequences,
    compare,
)
from tidelog.protocol.records import BatchHeader


def ledger(*fates: int, writer: int = 0, partition: int = 0) -> Ledger:
    """A writer that sent one record for each fate."""
    made = Ledger(writer, f"writer {writer}")
    for fate in fates:
        made.record_outcome(partition, made.sent(partition), fate)
    return made


def log(*counters: int, writer: int = 0, partition: int = 0) -> list[Stored]:
    """A partition that holds these records of one writer from offset 0 on."""
    return [Stored(offset, Mark(writer, partition, counter)) for offset, counter in enumerate(counters)]


def kinds(found: list) -> list[Kind]:
    return [finding.kind for finding in found]


def test_a_log_that_holds_what_was_acknowledged_where_it_was_has_no_findings() -> None:
    assert check([ledger(0, 1, 2)], {0: log(0, 1, 2)}) == []


def test_an_acknowledged_record_that_is_not_there_is_missing() -> None:
    found = check([ledger(0, 1, 2)], {0: log(0, 1)})
    assert kinds(found) == [Kind.MISSING]
    assert "writer 0, partition 0, record 2" in found[0].text


def test_a_record_acknowledged_at_an_unknown_offset_must_be_there_all_the_same() -> None:
    assert check([ledger(0, ACKED_SOMEWHERE)], {0: log(0, 1)}) == []
    assert kinds(check([ledger(0, ACKED_SOMEWHERE)], {0: log(0)})) == [Kind.MISSING]


@pytest.mark.parametrize("fate", [1, ACKED_SOMEWHERE, UNCERTAIN])
def test_no_record_may_be_stored_twice(fate: int) -> None:
    found = check([ledger(0, fate)], {0: log(0, 1, 1)})
    assert kinds(found) == [Kind.DUPLICATED]
    assert "offsets 1, 2" in found[0].text


def test_a_duplicate_that_comes_late_is_no_reordering() -> None:
    assert kinds(check([ledger(0, 1, 2)], {0: log(0, 1, 2, 0)})) == [Kind.DUPLICATED]


@pytest.mark.parametrize("fate", [2, UNCERTAIN])
def test_a_record_behind_a_later_one_is_out_of_order(fate: int) -> None:
    assert kinds(check([ledger(0, fate, 1)], {0: log(0, 2, 1)}))[:1] == [Kind.REORDERED]


def test_writers_do_not_order_each_other() -> None:
    stored = [Stored(0, Mark(1, 0, 0)), Stored(1, Mark(0, 0, 0)), Stored(2, Mark(1, 0, 1))]
    assert check([ledger(1), ledger(0, 2, writer=1)], {0: stored}) == []


def test_partitions_do_not_order_each_other() -> None:
    made = ledger(0, 1)
    made.record_outcome(1, made.sent(1), 0)
    assert check([made], {0: log(0, 1), 1: log(0, partition=1)}) == []


@pytest.mark.parametrize(
    "stranger",
    [None, Mark(0, 0, 7), Mark(9, 0, 0), Mark(0, 1, 0)],
    ids=["altered", "record", "writer", "place"],
)
def test_records_without_a_sender_are_invented(stranger: Mark | None) -> None:
    assert kinds(check([ledger(0)], {0: [*log(0), Stored(1, stranger)]})) == [Kind.INVENTED]


def test_a_record_must_stand_at_its_acknowledged_offset() -> None:
    found = check([ledger(0, 2, UNCERTAIN)], {0: log(0, 1, 2)})
    assert kinds(found) == [Kind.WRONG_OFFSET]
    assert "acknowledged at offset 2 and stands at 1" in found[0].text


def test_an_uncertain_record_may_be_there_or_not() -> None:
    assert check([ledger(0, UNCERTAIN, 1)], {0: log(0, 2)}) == []
    assert check([ledger(0, UNCERTAIN, 2)], {0: log(0, 1, 2)}) == []


def test_a_record_that_was_reported_as_not_stored_must_not_be_there() -> None:
    assert check([ledger(0, REFUSED)], {0: log(0)}) == []
    assert kinds(check([ledger(0, REFUSED)], {0: log(0, 1)})) == [Kind.NOT_REFUSED]


def test_a_missing_outcome_is_a_finding_whether_stored_or_not() -> None:
    assert kinds(check([ledger(0, OPEN)], {0: log(0)})) == [Kind.HANGING]
    assert kinds(check([ledger(0, OPEN)], {0: log(0, 1)})) == [Kind.HANGING]


def test_a_closed_ledger_leaves_nothing_open() -> None:
    closed = ledger(0, OPEN)
    closed.close()
    assert check([closed], {0: log(0)}) == []


def test_a_record_that_was_taken_back_was_not_sent() -> None:
    made = ledger(0)
    made.sent(0)
    made.taken_back(0)
    assert check([made], {0: log(0)}) == []
    assert kinds(check([made], {0: log(0, 1)})) == [Kind.INVENTED]


def test_a_hole_between_offsets_is_a_finding() -> None:
    stored = [Stored(0, Mark(0, 0, 0)), Stored(2, Mark(0, 0, 1))]
    assert kinds(check([ledger(0, 2)], {0: stored})) == [Kind.GAP]


def test_a_partition_that_was_not_read_misses_what_was_acknowledged_there() -> None:
    assert kinds(check([ledger(0, partition=3)], {0: []})) == [Kind.MISSING]


def batch(offset: int, epoch: int, sequence: int, count: int = 1, producer: int = 7) -> BatchHeader:
    return BatchHeader(offset, 0, 0, 2, 0, 0, count - 1, 0, 0, producer, epoch, sequence, count)


def test_sequences_go_on_within_an_epoch_and_begin_anew_with_a_later_one() -> None:
    batches = [batch(0, 0, 0, 3), batch(3, 0, 3), batch(4, 1, 0), batch(5, 1, 1), batch(6, -1, -1, 1, -1)]
    assert check_sequences(0, batches) == []


def test_after_the_last_sequence_comes_0() -> None:
    batches = [batch(0, 0, 0, 2**31 - 1), batch(1, 0, 2**31 - 1, 2), batch(2, 0, 1)]
    assert check_sequences(0, batches) == []


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (batch(3, 0, 0, 3), "sequence 3"),
        (batch(3, 0, 4), "sequence 3"),
        (batch(3, 2, 3), "sequence 0"),
        (batch(3, 0, 0, producer=8)._replace(base_sequence=5), "sequence 0"),
    ],
    ids=["twice", "hole", "late epoch", "late start"],
)
def test_a_broken_sequence_is_a_finding(wrong: BatchHeader, expected: str) -> None:
    found = check_sequences(0, [batch(0, 0, 0, 3), wrong])
    assert kinds(found) == [Kind.SEQUENCE]
    assert expected in found[0].text


def test_an_epoch_must_not_go_back() -> None:
    assert kinds(check_sequences(0, [batch(0, 1, 0), batch(1, 0, 1)])) == [Kind.SEQUENCE]


def test_a_reader_that_saw_the_same_records_agrees() -> None:
    assert compare(0, "files", log(0, 1), log(0, 1)) == []


@pytest.mark.parametrize("seen", [log(0), log(0, 0), log(0, 1, 2), log(1)])
def test_a_reader_that_saw_something_else_disagrees(seen: list[Stored]) -> None:
    assert kinds(compare(0, "files", seen, log(0, 1))) == [Kind.DIFFERENT]
