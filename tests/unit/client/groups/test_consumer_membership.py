"""What a member of the consumer protocol does next, for each answer of its coordinator."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tidelog.client import ConnectionLostError, FencedInstanceError, TopicPartition
from tidelog.client.groups.consumer_membership import ConsumerMembership
from tidelog.client.groups.steps import (
    Adopt,
    FindCoordinator,
    Identity,
    Leave,
    ResolveTopics,
    Rest,
    Revoke,
)
from tidelog.protocol.errors import ErrorCode

ID = UUID(int=7)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def member(instance_id: str | None = None) -> ConsumerMembership:
    it = ConsumerMembership(
        "g",
        "me",
        group_instance_id=instance_id,
        rebalance_timeout_ms=60_000,
        heartbeat_interval_ms=3_000,
        assignor=None,
    )
    it.subscribe(frozenset({"t"}))
    return it


def answer(epoch: int = 1, *partitions: int, code: ErrorCode = ErrorCode.NONE) -> Any:
    assigned = [SimpleNamespace(topic_id=ID, partitions=list(partitions))] if partitions else []
    return SimpleNamespace(
        error_code=code,
        error_message="why",
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=500,
        assignment=SimpleNamespace(topic_partitions=assigned),
    )


def beat(it: ConsumerMembership, reply: Any) -> dict[str, Any]:
    """The heartbeat that was sent."""
    asked = it.identity
    _, values = it.heartbeat()
    it.heartbeat_received(asked, reply)
    return values


def stable(*partitions: int, instance_id: str | None = None) -> ConsumerMembership:
    it = member(instance_id)
    it.coordinator_found(1)
    beat(it, answer(1, *partitions))
    if partitions:
        assert it.resolved({"t": ID})
        step = it.next_step()
        assert isinstance(step, Adopt)
        it.adopted(step.partitions)
        it.heartbeat()
    assert it.next_step() == Rest()
    return it


def test_a_member_joins_with_its_first_heartbeat_and_reads_what_the_answer_names() -> None:
    it = member()
    assert it.next_step() == FindCoordinator()
    it.coordinator_found(1)
    assert it.must_report
    sent = beat(it, answer(4, 0, 1))
    assert (sent["member_epoch"], sent["topic_partitions"]) == (0, [])
    assert it.next_step() == ResolveTopics()
    assert not it.resolved({})
    assert it.resolved({"t": ID})
    assert it.next_step() == Adopt(frozenset({P0, P1}))
    it.adopted(frozenset({P0, P1}))
    assert it.must_report
    sent = beat(it, answer(4, 0, 1))
    assert (sent["member_epoch"], sent["topic_partitions"]) == (4, [{"topic_id": ID, "partitions": [0, 1]}])
    assert (it.is_stable, it.heartbeat_interval_ms) == (True, 500)


def test_a_partition_is_reported_as_owned_until_it_was_given_up() -> None:
    it = stable(0, 1)
    beat(it, answer(1, 0))
    assert it.next_step() == Revoke(frozenset({P1}), False)
    assert beat(it, answer(1, 0))["topic_partitions"] == [{"topic_id": ID, "partitions": [0, 1]}]
    it.revoked(frozenset({P1}))
    assert it.must_report
    assert beat(it, answer(2, 0))["topic_partitions"] == [{"topic_id": ID, "partitions": [0]}]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_fenced_member_loses_everything_and_joins_again_with_nothing(code: ErrorCode) -> None:
    it = stable(0)
    beat(it, answer(code=code))
    assert not it.can_heartbeat
    assert it.next_step() == Revoke(frozenset({P0}), True)
    it.revoked(frozenset({P0}))
    assert it.can_heartbeat
    sent = beat(it, answer(5))
    assert (sent["member_epoch"], sent["topic_partitions"]) == (0, [])


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_up_and_nothing_is_given_up(code: ErrorCode) -> None:
    it = stable(0)
    beat(it, answer(code=code))
    assert (it.next_step(), it.owned, it.failures) == (FindCoordinator(), {P0}, 1)


def test_a_coordinator_that_still_loads_is_asked_again_after_a_pause() -> None:
    it = stable(0)
    beat(it, answer(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert (it.must_report, it.failures, it.next_step()) == (True, 1, Rest())


def test_a_lost_answer_costs_a_repetition() -> None:
    it = stable(0)
    it.heartbeat()
    it.request_failed(ConnectionLostError("lost"))
    it.coordinator_found(1)
    assert it.must_report
    assert it.owned == {P0}


@pytest.mark.parametrize("code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID])
def test_an_instance_id_of_another_member_ends_the_membership(code: ErrorCode) -> None:
    it = stable(0, instance_id="static")
    beat(it, answer(code=code))
    assert isinstance(it.error, FencedInstanceError)
    assert it.next_step() == Revoke(frozenset({P0}), True)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_errors_that_do_not_pass_end_the_membership(code: ErrorCode) -> None:
    it = member()
    it.coordinator_found(1)
    beat(it, answer(code=code))
    assert it.error is not None
    assert not it.can_heartbeat
    assert it.next_step() == Rest()


def test_a_commit_with_an_old_epoch_only_asks_for_a_heartbeat() -> None:
    it = stable(0)
    it.heartbeat_answered(it.identity, ErrorCode.STALE_MEMBER_EPOCH)
    assert (it.must_report, it.next_step()) == (True, Rest())
    it.heartbeat_answered(Identity("me", 0), ErrorCode.FENCED_MEMBER_EPOCH)
    assert it.owned == {P0}


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("static", -2)])
def test_a_member_reports_that_it_leaves_and_a_static_member_only_for_a_while(
    instance_id: str | None, epoch: int
) -> None:
    it = stable(0, instance_id=instance_id)
    it.poll_interval_exceeded()
    step = it.next_step()
    assert isinstance(step, Leave)
    assert (step.values["member_epoch"], it.can_heartbeat) == (epoch, False)
    it.left()
    assert it.next_step() == Revoke(frozenset({P0}), True)
    it.revoked(frozenset({P0}))
    assert it.next_step() == Rest()
    it.polled()
    assert it.can_heartbeat


def test_a_member_that_unsubscribes_gives_up_its_partitions_and_leaves() -> None:
    it = stable(0)
    it.subscribe(None)
    assert it.next_step() == Revoke(frozenset({P0}), False)
    it.revoked(frozenset({P0}))
    assert isinstance(it.next_step(), Leave)
    it.left()
    assert it.next_step() == Rest()
