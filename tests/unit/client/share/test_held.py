"""What is held, and what each answer of the broker does to it."""

from uuid import UUID

from tidelog.client import AcknowledgeType, TopicPartition
from tidelog.client.share.held import GAP, HeldPartition, batches_of
from tidelog.client.share.session import Batch, SharePartition
from tidelog.protocol.errors import ErrorCode

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
LOCK = 30.0


def holding(*offsets: int, got: bool = True) -> HeldPartition:
    """One that holds these from time 0 to 30."""
    held = HeldPartition(TopicPartition("t", 0), SharePartition(UUID(int=7), 0), 1, lambda: None)
    held.acquired(offsets, LOCK)
    for offset in offsets if got else ():
        held.returned(offset)
    return held


def test_offsets_in_a_row_are_one_batch_with_one_type_if_they_share_it() -> None:
    assert batches_of({7: ACCEPT, 5: ACCEPT, 6: ACCEPT, 9: REJECT, 10: ACCEPT}) == [
        Batch(5, 7, [ACCEPT]),
        Batch(9, 10, [REJECT, ACCEPT]),
    ]
    assert batches_of({}) == []


def test_what_is_acknowledged_is_sent_once_and_settled_by_the_answer() -> None:
    held = holding(1, 2, 3)
    assert held.acknowledge(1, ACCEPT)
    assert held.acknowledge(2, REJECT)
    assert held.unsettled() == {1, 2}
    assert held.take() == [Batch(1, 2, [ACCEPT, REJECT])]
    assert held.take() == []


def test_an_answer_settles_what_was_sent() -> None:
    held = holding(1, 2)
    held.acknowledge(1, ACCEPT)
    held.take()
    assert held.answered(ErrorCode.NONE, 60.0) == ([1], [])
    assert held.unsettled() == set()
    assert not held.is_idle
    held.acknowledge(2, ACCEPT)
    held.take()
    held.answered(ErrorCode.NONE, 60.0)
    assert held.is_idle


def test_a_record_is_acknowledged_once() -> None:
    held = holding(1)
    assert held.acknowledge(1, ACCEPT)
    assert not held.acknowledge(1, RELEASE)
    assert held.take() == [Batch(1, 1, [ACCEPT])]


def test_a_refused_group_is_sent_again_in_halves_until_the_culprit_is_alone() -> None:
    held = holding(*range(8))
    for offset in range(8):
        held.acknowledge(offset, ACCEPT)
    done: list[int] = []
    refused: list[int] = []
    while held.has_to_send():
        sent = {o for first, last, _ in held.take() for o in range(first, last + 1)}
        code = ErrorCode.INVALID_RECORD_STATE if 5 in sent else ErrorCode.NONE
        settled = held.answered(code, 60.0)
        done += settled.done
        refused += settled.refused
    assert (sorted(done), refused) == ([0, 1, 2, 3, 4, 6, 7], [5])
    assert held.is_idle


def test_a_lost_answer_is_no_decision_the_same_is_sent_again() -> None:
    held = holding(1)
    held.acknowledge(1, ACCEPT)
    held.take()
    held.session_ended()
    assert held.unsettled() == {1}
    assert held.take() == [Batch(1, 1, [ACCEPT])]


def test_an_error_that_may_pass_is_tried_again_but_not_forever() -> None:
    held = holding(1)
    held.acknowledge(1, ACCEPT)
    outcomes = []
    while held.has_to_send():
        held.take()
        outcomes.append(held.answered(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 60.0))
    assert len(outcomes) == 5
    assert outcomes[-1] == ([], [1])


def test_a_broker_that_does_not_lead_any_more_has_no_locks() -> None:
    held = holding(1)
    held.acknowledge(1, ACCEPT)
    held.take()
    assert held.answered(ErrorCode.NOT_LEADER_OR_FOLLOWER, 60.0) == ([], [1])


def test_locks_are_renewed_at_half_of_their_time_while_a_record_is_processed_or_not_yet_read() -> None:
    held = holding(1, 2)
    held.acquired([3], LOCK)
    held.begin(1)
    assert not held.has_renewals(14.9, LOCK, renews=True)
    assert held.has_renewals(15.0, LOCK, renews=True)
    assert not held.has_renewals(15.0, LOCK, renews=False)
    assert held.next_at(LOCK, renews=True) == 15.0
    assert held.next_at(LOCK, renews=False) == 30.0
    assert held.take_renewals(15.0, LOCK, renews=True) == [Batch(1, 1, [RENEW]), Batch(3, 3, [RENEW])]
    assert not held.has_renewals(15.0, LOCK, renews=True)
    assert held.answered(ErrorCode.NONE, 45.0) == ([], [])
    assert held.expire(30.0) == [2]
    assert held.open_count == 2
    held.end(1)
    assert held.next_at(LOCK, renews=True) == 30.0


def test_an_application_renews_a_lock_by_itself() -> None:
    held = holding(1)
    assert held.acknowledge(1, RENEW)
    assert held.has_renewals(0.0, LOCK, renews=False)
    assert held.take_renewals(0.0, LOCK, renews=False) == [Batch(1, 1, [RENEW])]
    held.answered(ErrorCode.NONE, 50.0)
    assert held.expire(49.0) == []
    assert held.acknowledge(1, ACCEPT)


def test_a_refused_renewal_is_not_repeated_and_the_lock_lasts_as_long_as_before() -> None:
    held = holding(1)
    held.begin(1)
    held.take_renewals(20.0, LOCK, renews=True)
    assert held.answered(ErrorCode.INVALID_RECORD_STATE, 60.0) == ([], [])
    assert not held.has_renewals(20.0, LOCK, renews=True)
    assert held.acknowledge(1, ACCEPT)
    assert held.take() == [Batch(1, 1, [ACCEPT])]


def test_renewals_that_are_refused_together_are_sent_again_as_renewals_in_halves() -> None:
    held = holding(1, 2)
    held.begin(1)
    held.begin(2)
    held.take_renewals(20.0, LOCK, renews=True)
    held.answered(ErrorCode.INVALID_RECORD_STATE, 60.0)
    assert not held.has_to_send()
    for offset, code in ((1, ErrorCode.INVALID_RECORD_STATE), (2, ErrorCode.NONE)):
        assert held.has_renewals(20.0, LOCK, renews=False)
        assert held.take_renewals(20.0, LOCK, renews=True) == [Batch(offset, offset, [RENEW])]
        held.answered(code, 60.0)
    assert held.expire(30.0) == [1]
    assert held.open_count == 1


def test_a_renewal_without_an_answer_is_not_sent_again_as_an_acknowledgement() -> None:
    held = holding(1)
    held.begin(1)
    held.take_renewals(20.0, LOCK, renews=True)
    held.session_ended()
    assert not held.has_to_send()
    assert held.has_renewals(20.0, LOCK, renews=True)


def test_a_record_that_was_accepted_while_its_renewal_is_under_way_is_sent_after_it() -> None:
    held = holding(1)
    held.begin(1)
    held.take_renewals(20.0, LOCK, renews=True)
    assert held.acknowledge(1, ACCEPT)
    held.answered(ErrorCode.NONE, 60.0)
    assert held.open_count == 0
    assert held.take() == [Batch(1, 1, [ACCEPT])]


def test_after_the_end_of_the_lock_the_broker_decides_about_an_acknowledgement() -> None:
    held = holding(1)
    held.acquired([2], LOCK)
    assert held.expire(30.0) == [1]
    assert held.is_idle
    assert held.acknowledge(1, ACCEPT)
    assert not held.acknowledge(2, ACCEPT)
    assert held.take() == [Batch(1, 1, [ACCEPT])]
    assert held.answered(ErrorCode.INVALID_RECORD_STATE, 60.0) == ([], [1])


def test_the_memory_of_ended_locks_is_bounded() -> None:
    held = holding(*range(10_001))
    held.expire(30.0)
    assert not held.acknowledge(0, ACCEPT)
    assert held.acknowledge(10_000, ACCEPT)


def test_gaps_are_acknowledged_and_their_refusal_is_none() -> None:
    held = holding(1, 2, got=False)
    held.passed_over([2, 99], GAP)
    assert held.take() == [Batch(2, 2, [GAP])]
    assert held.answered(ErrorCode.INVALID_RECORD_STATE, 60.0) == ([2], [])


def test_what_is_given_up_was_not_acknowledged() -> None:
    held = holding(1, 2, 3, 4)
    held.acknowledge(1, ACCEPT)
    held.take()
    held.session_ended()
    held.acknowledge(2, ACCEPT)
    assert not held.is_last
    held.take()
    held.acknowledge(3, ACCEPT)
    assert sorted(held.give_up()) == [1, 2, 3]
    assert held.is_idle


def test_an_acknowledgement_that_is_sent_again_counts_for_the_next_lock_of_the_record() -> None:
    for code in (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE):
        held = holding(1)
        held.acknowledge(1, ACCEPT)
        held.take()
        held.session_ended()
        held.acquired([1], 60.0)
        assert not held.is_unread(1), "the application decided about it already"
        held.take()
        held.answered(code, 60.0)
        assert held.open_count == 0, code.name


def test_the_application_gets_nothing_of_a_session_that_ended_and_nothing_again_that_it_has() -> None:
    held = holding(1)
    held.acquired([2, 3], LOCK)
    held.session_ended()
    assert [each for each in (1, 2, 3) if held.is_unread(each)] == []
    held.acquired([1, 2], 60.0)
    assert [each for each in (1, 2, 3) if held.is_unread(each)] == [2]
    assert held.acknowledge(1, ACCEPT)
    assert held.expire(LOCK) == []


def test_a_record_that_is_put_back_is_unread_and_keeps_its_lock() -> None:
    held = holding(1)
    held.not_returned(1)
    assert held.is_unread(1)
    assert held.take_renewals(15.0, LOCK, renews=True) == [Batch(1, 1, [RENEW])]


def test_a_record_whose_next_lock_is_lost_too_is_still_acknowledged() -> None:
    held = holding(1)
    assert held.expire(LOCK) == [1]
    held.acquired([1], 60.0)
    held.session_ended()
    assert held.acknowledge(1, ACCEPT)
