"""What a member does next, for each answer of its coordinator."""

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.client import ConnectionLostError, FencedInstanceError, TopicPartition
from tidelog.client.groups.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.client.groups.membership import Membership
from tidelog.client.groups.steps import (
    Adopt,
    AssignAll,
    FindCoordinator,
    Identity,
    Join,
    Leave,
    Rest,
    Revoke,
    Sync,
)
from tidelog.protocol.errors import ErrorCode

TOPICS = frozenset({"t"})
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME = "me"


def member(*assignors: str, instance_id: str | None = None) -> Membership:
    it = Membership(
        "g",
        assignors or ("range",),
        group_instance_id=instance_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        heartbeat_interval_ms=3_000,
    )
    it.subscribe(TOPICS)
    return it


def join_answer(code: ErrorCode = ErrorCode.NONE, leader: str = "other", **fields: Any) -> Any:
    defaults = {
        "error_code": code,
        "member_id": ME,
        "generation_id": 1,
        "protocol_name": "range",
        "leader": leader,
        "skip_assignment": False,
        "members": (),
    }
    return SimpleNamespace(**defaults | fields)


def sync_answer(*partitions: TopicPartition, code: ErrorCode = ErrorCode.NONE) -> Any:
    return SimpleNamespace(error_code=code, assignment=encode_assignment(partitions))


def stable(
    *partitions: TopicPartition, assignor: str = "range", instance_id: str | None = None, generation: int = 1
) -> Membership:
    it = member(assignor, instance_id=instance_id)
    it.coordinator_found(1)
    join(it, *partitions, assignor=assignor, generation=generation)
    assert it.next_step() == Rest()
    return it


def join(it: Membership, *partitions: TopicPartition, assignor: str = "range", generation: int = 1) -> None:
    assert isinstance(it.next_step(), Join)
    it.joined(join_answer(protocol_name=assignor, generation_id=generation))
    assert isinstance(it.next_step(), Sync)
    it.synced(sync_answer(*partitions))
    step = it.next_step()
    if isinstance(step, Revoke):
        it.revoked(step.partitions)
        step = it.next_step()
    assert isinstance(step, Adopt)
    it.adopted(step.partitions)


def test_a_new_member_gets_its_id_first_and_then_joins_with_it() -> None:
    it = member()
    assert it.next_step() == FindCoordinator()
    it.coordinator_found(5)
    step = it.next_step()
    assert isinstance(step, Join)
    assert step.values["member_id"] == ""
    it.joined(join_answer(ErrorCode.MEMBER_ID_REQUIRED))
    step = it.next_step()
    assert isinstance(step, Join)
    assert step.values["member_id"] == ME


def test_the_leader_assigns_for_everyone() -> None:
    it = member()
    it.coordinator_found(1)
    metadata = encode_subscription({"t"}, (), -1, None)
    members = [
        SimpleNamespace(member_id=name, group_instance_id=None, metadata=metadata) for name in (ME, "you")
    ]
    it.joined(join_answer(leader=ME, members=members))
    assert it.next_step() == AssignAll(TOPICS)
    it.assigned({"t": 2})
    step = it.next_step()
    assert isinstance(step, Sync)
    shares: Any = step.values["assignments"]
    assert {each["member_id"]: decode_assignment(each["assignment"]) for each in shares} == {
        ME: {P0},
        "you": {P1},
    }


def test_a_leader_rebalances_when_a_topic_gets_partitions_and_others_do_not() -> None:
    it = member()
    it.coordinator_found(1)
    metadata = encode_subscription({"t"}, (), -1, None)
    alone = [SimpleNamespace(member_id=ME, group_instance_id=None, metadata=metadata)]
    it.joined(join_answer(leader=ME, members=alone))
    it.assigned({"t": 1})
    it.synced(sync_answer(P0))
    it.adopted(frozenset({P0}))
    it.metadata_changed({"t": 1})
    assert it.next_step() == Rest()
    it.metadata_changed({"t": 2})
    assert it.next_step() == Revoke(frozenset({P0}), False)
    follower = stable(P0)
    follower.metadata_changed({"t": 2})
    assert follower.next_step() == Rest()


def test_a_leader_that_need_not_assign_sends_no_assignments() -> None:
    it = member(instance_id="static")
    it.coordinator_found(1)
    metadata = encode_subscription({"t"}, (), -1, None)
    alone = [SimpleNamespace(member_id=ME, group_instance_id="static", metadata=metadata)]
    it.joined(join_answer(leader=ME, members=alone, skip_assignment=True))
    it.assigned({"t": 1})
    step = it.next_step()
    assert isinstance(step, Sync)
    assert step.values["assignments"] == []


def test_an_eager_member_gives_up_everything_before_it_joins_again() -> None:
    it = stable(P0, P1)
    it.heartbeat_answered(it.identity, ErrorCode.REBALANCE_IN_PROGRESS)
    assert it.next_step() == Revoke(frozenset({P0, P1}), False)
    it.revoked(frozenset({P0, P1}))
    assert isinstance(it.next_step(), Join)


def test_a_cooperative_member_gives_up_what_it_lost_and_joins_again() -> None:
    it = stable(P0, P1, assignor="cooperative-sticky")
    it.heartbeat_answered(it.identity, ErrorCode.REBALANCE_IN_PROGRESS)
    step = it.next_step()
    assert isinstance(step, Join)
    [protocol] = step.values["protocols"]  # type: ignore[misc]
    assert decode_subscription(protocol["metadata"]).owned == {P0, P1}
    it.joined(join_answer(protocol_name="cooperative-sticky", generation_id=2))
    it.synced(sync_answer(P0))
    assert it.next_step() == Revoke(frozenset({P1}), False)
    it.revoked(frozenset({P1}))
    assert it.next_step() == Adopt(frozenset())
    it.adopted(frozenset())
    assert it.owned == {P0}
    assert isinstance(it.next_step(), Join)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_what_the_coordinator_forgot_is_lost_and_not_committed(code: ErrorCode) -> None:
    it = stable(P0)
    it.heartbeat_answered(it.identity, code)
    assert not it.can_heartbeat
    assert it.next_step() == Revoke(frozenset({P0}), True)
    it.revoked(frozenset({P0}))
    step = it.next_step()
    assert isinstance(step, Join)
    assert step.values["member_id"] == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else ME)


def test_an_answer_to_an_earlier_identity_changes_nothing() -> None:
    it = stable(P0, generation=3)
    it.heartbeat_answered(Identity(ME, 2), ErrorCode.ILLEGAL_GENERATION)
    it.heartbeat_answered(Identity("", 3), ErrorCode.UNKNOWN_MEMBER_ID)
    assert it.next_step() == Rest()


def test_the_generation_may_be_over_while_a_join_waits() -> None:
    it = stable(P0, assignor="cooperative-sticky")
    it.heartbeat_answered(it.identity, ErrorCode.REBALANCE_IN_PROGRESS)
    it.join_begun()
    assert not it.can_heartbeat
    it.heartbeat_answered(it.identity, ErrorCode.ILLEGAL_GENERATION)
    assert it.owned == {P0}
    assert isinstance(it.next_step(), Join)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_up_and_nothing_is_given_up(code: ErrorCode) -> None:
    it = stable(P0)
    it.heartbeat_answered(it.identity, code)
    assert it.next_step() == FindCoordinator()
    it.coordinator_found(2)
    assert it.next_step() == Rest()
    assert it.owned == {P0}


def test_a_lost_connection_is_as_a_coordinator_that_moved() -> None:
    it = stable(P0)
    it.request_failed(ConnectionLostError("gone"))
    assert it.failures == 1
    assert it.next_step() == FindCoordinator()
    it.coordinator_found(1)
    it.heartbeat_answered(it.identity, ErrorCode.NONE)
    assert (it.failures, it.next_step()) == (0, Rest())


@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR],
)
def test_a_join_that_is_refused_for_a_while_is_repeated_after_a_pause(code: ErrorCode) -> None:
    it = member()
    it.coordinator_found(1)
    it.joined(join_answer(code))
    assert it.failures == 1
    it.coordinator_found(1)
    assert isinstance(it.next_step(), Join)


@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION]
)
def test_a_sync_that_came_too_late_leads_to_a_new_join(code: ErrorCode) -> None:
    it = member()
    it.coordinator_found(1)
    it.joined(join_answer())
    it.synced(sync_answer(code=code))
    assert isinstance(it.next_step(), Join)


def test_a_fenced_instance_ends_the_membership_with_an_error_of_its_own() -> None:
    it = stable(P0, instance_id="static")
    it.heartbeat_answered(it.identity, ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(it.error, FencedInstanceError)
    assert it.next_step() == Revoke(frozenset({P0}), True)
    it.revoked(frozenset({P0}))
    assert it.next_step() == Rest()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
def test_errors_that_do_not_pass_end_the_membership(code: ErrorCode) -> None:
    it = member()
    it.coordinator_found(1)
    it.joined(join_answer(code))
    assert it.error is not None
    assert it.next_step() == Rest()


def test_an_application_that_asks_for_nothing_leaves_and_comes_back_when_it_asks() -> None:
    it = stable(P0)
    it.poll_interval_exceeded()
    step = it.next_step()
    assert isinstance(step, Leave)
    it.left()
    assert it.next_step() == Revoke(frozenset({P0}), True)
    it.revoked(frozenset({P0}))
    assert it.next_step() == Rest()
    it.polled()
    assert isinstance(it.next_step(), Join)


def test_a_static_member_does_not_leave_but_stops_its_heartbeats() -> None:
    it = stable(P0, instance_id="static")
    it.poll_interval_exceeded()
    assert not it.can_heartbeat
    assert it.next_step() == Revoke(frozenset({P0}), True)
    it.revoked(frozenset({P0}))
    it.polled()
    assert isinstance(it.next_step(), Join)


def test_a_member_that_unsubscribes_gives_up_its_partitions_and_leaves() -> None:
    it = stable(P0)
    it.subscribe(None)
    assert it.next_step() == Revoke(frozenset({P0}), False)
    it.revoked(frozenset({P0}))
    step = it.next_step()
    assert isinstance(step, Leave)
    assert step.values["members"] == [{"member_id": ME, "group_instance_id": None}]
    it.left()
    assert it.next_step() == Rest()


def test_a_cooperative_member_gives_up_topics_that_it_no_longer_reads_before_it_joins() -> None:
    it = stable(P0, TopicPartition("u", 0), assignor="cooperative-sticky")
    it.subscribe(frozenset({"t"}))
    it.heartbeat_answered(it.identity, ErrorCode.REBALANCE_IN_PROGRESS)
    assert it.next_step() == Revoke(frozenset({TopicPartition("u", 0)}), False)
    it.revoked(frozenset({TopicPartition("u", 0)}))
    assert isinstance(it.next_step(), Join)
    assert it.owned == {P0}
