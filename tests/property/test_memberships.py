"""Members of a group against the broker's real machine: no partition has two readers, and each gets one.

Requests and answers are late or lost, members come, leave and fall silent, time passes, the coordinator
restarts. Members are dynamic.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.broker.coordinator.groups.site import LIMITS, REBALANCE_MS, SESSION_MS, Asked, Site
from tidelog.client import ConnectionLostError, TopicPartition
from tidelog.client.groups.membership import Membership
from tidelog.client.groups.steps import (
    Adopt,
    AssignAll,
    FindCoordinator,
    Join,
    Leave,
    Rest,
    Revoke,
    Step,
    Sync,
)
from tidelog.protocol.errors import ErrorCode

SLOTS = st.integers(0, 2)
PARTITIONS = 5
MOST_STEPS = 100
"""Of each member until all wait for something; a rebalance takes less than ten."""
EVERYTHING = {TopicPartition("t", index) for index in range(PARTITIONS)}


class Member:
    """One consumer's membership, and the request that it waits for."""

    def __init__(self, assignor: str) -> None:
        self.membership = Membership(
            "g",
            (assignor,),
            group_instance_id=None,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            heartbeat_interval_ms=3_000,
        )
        self.membership.subscribe(frozenset({"t"}))
        self.pending: tuple[Step, Asked] | None = None


class Memberships(RuleBasedStateMachine):
    assignor = "range"

    @initialize()
    def begin(self) -> None:
        self.site = Site(LIMITS._replace(initial_rebalance_delay_ms=0))
        self.members = [Member(self.assignor) for _ in range(3)]

    # One step of a member

    def step(self, member: Member) -> bool:
        """Whether something was done."""
        it = member.membership
        if member.pending is not None:
            return self.deliver(member)
        step = it.next_step()
        match step:
            case Rest():
                return False
            case FindCoordinator():
                it.coordinator_found(1)
            case Join(values):
                it.join_begun()
                member.pending = step, self.join(values)
            case AssignAll():
                it.assigned({"t": PARTITIONS})
            case Sync(values):
                assignments: Any = values["assignments"]
                shares = {each["member_id"]: each["assignment"] for each in assignments}
                member.pending = step, self.site.sync(*it.identity, shares, protocol=self.assignor)
            case Revoke(partitions):
                it.revoked(partitions)
            case Adopt(partitions):
                it.adopted(partitions)
            case Leave():
                self.site.leave(it.identity.member_id)
                it.left()
        self.site.pass_ms(0)
        return True

    def join(self, values: dict[str, Any]) -> Asked:
        return self.site.join(
            values["member_id"],
            protocols={each["name"]: each["metadata"] for each in values["protocols"]},
            requires_known_member_id=True,
        )

    def deliver(self, member: Member) -> bool:
        assert member.pending is not None
        step, asked = member.pending
        if asked.answer is None:
            return False
        member.pending = None
        answer = asked.answer
        if isinstance(step, Sync):
            member.membership.synced(answer)
            return True
        fields = {"generation_id": answer.generation, "protocol_name": answer.protocol}
        member.membership.joined(SimpleNamespace(**answer._asdict() | fields))
        return True

    def heartbeat(self, member: Member) -> None:
        it = member.membership
        if it.can_heartbeat:
            asked = it.identity
            it.heartbeat_answered(asked, self.site.heartbeat(*asked))
        self.site.pass_ms(0)

    # What happens

    @rule(slot=SLOTS, count=st.integers(1, 6))
    def a_member_works(self, slot: int, count: int) -> None:
        for _ in range(count):
            self.step(self.members[slot])

    @rule(count=st.integers(1, 12))
    def all_members_work(self, count: int) -> None:
        for _ in range(count):
            for member in self.members:
                self.step(member)

    @rule(slot=SLOTS)
    def a_member_sends_a_heartbeat(self, slot: int) -> None:
        self.heartbeat(self.members[slot])

    @rule(slot=SLOTS)
    def an_answer_is_lost(self, slot: int) -> None:
        member = self.members[slot]
        if member.pending is not None:
            member.pending = None
            member.membership.request_failed(ConnectionLostError("lost"))

    @rule(slot=SLOTS)
    def an_application_is_too_slow_or_comes_back(self, slot: int) -> None:
        it = self.members[slot].membership
        if self.members[slot].pending is None and it.is_stable:
            it.poll_interval_exceeded()
        else:
            it.polled()

    @rule(slot=SLOTS)
    def a_member_dies_and_another_begins(self, slot: int) -> None:
        self.members[slot] = Member(self.assignor)

    @rule(slot=SLOTS)
    def a_member_unsubscribes_or_subscribes(self, slot: int) -> None:
        it = self.members[slot].membership
        it.subscribe(None if it.is_subscribed else frozenset({"t"}))

    @rule(duration_ms=st.sampled_from([1, 3_000, SESSION_MS, REBALANCE_MS]), are_alive=st.booleans())
    def time_passes(self, duration_ms: int, are_alive: bool) -> None:
        for _ in range(max(1, duration_ms // 3_000)):
            self.site.pass_ms(min(duration_ms, 3_000))
            if are_alive:
                for member in self.members:
                    self.heartbeat(member)

    @precondition(lambda self: hasattr(self, "site"))
    @rule()
    def the_coordinator_restarts(self) -> None:
        numbers = self.site._numbers
        self.site = self.site.restarted()
        self.site._numbers = numbers  # No member id is given out twice.
        for member in self.members:
            if member.pending is not None:
                member.pending = None
                member.membership.request_failed(ConnectionLostError("restarted"))

    # What must hold

    @invariant()
    def no_partition_has_two_readers_that_the_coordinator_counts(self) -> None:
        seen: set[TopicPartition] = set()
        for member in self.members:
            it = member.membership
            if it.identity.generation < 0 or self.site.heartbeat(*it.identity) is not ErrorCode.NONE:
                continue
            assert seen.isdisjoint(it.owned)
            seen |= it.owned

    def teardown(self) -> None:
        """Once nothing fails any more, every partition has one reader, and all are at rest."""
        if not hasattr(self, "site"):
            return
        for member in self.members:
            member.membership.polled()
            member.membership.subscribe(frozenset({"t"}))
        self.until_quiet()
        owned = [each for member in self.members for each in member.membership.owned]
        assert sorted(owned) == sorted(EVERYTHING)
        assert all(member.membership.error is None for member in self.members)

    def until_quiet(self) -> None:
        for _ in range(60):
            for _ in range(MOST_STEPS):
                did_something = [self.step(member) for member in self.members]
                if not any(did_something):
                    break
            else:
                raise AssertionError([member.membership.next_step() for member in self.members])
            for member in self.members:
                self.heartbeat(member)
            alive = {member.membership.identity.member_id for member in self.members}
            if {*self.site.members()} == alive and all(self.is_quiet(member) for member in self.members):
                return
            self.site.pass_ms(3_000)
        raise AssertionError("the group does not come to rest")

    @staticmethod
    def is_quiet(member: Member) -> bool:
        it = member.membership
        return member.pending is None and it.is_stable and it.next_step() == Rest()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_share_everything_whatever_happens(assignor: str) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    machine: Callable[[], RuleBasedStateMachine] = type("Run", (Memberships,), {"assignor": assignor})
    run_state_machine_as_test(machine, settings=settings(max_examples=10, stateful_step_count=40))
