"""Members of the consumer protocol against the broker's real machine: no partition has two readers.

Heartbeats and answers are lost, members come, leave, revoke slowly and fall silent, time passes, the
coordinator restarts, topics grow. At the end, each partition has one reader.
"""

from itertools import count
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.broker.coordinator.consumer_groups.site import INTERVAL_MS, SESSION_MS, Site, topic_id
from tidelog.client import ConnectionLostError, TopicPartition
from tidelog.client.groups.consumer_membership import ConsumerMembership
from tidelog.client.groups.steps import Adopt, FindCoordinator, Leave, ResolveTopics, Rest, Revoke
from tidelog.protocol.errors import ApiError, ErrorCode

SLOTS = st.integers(0, 2)
REBALANCE_MS = 30_000
IDS = {"t": topic_id("t")}


class Memberships(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.site = Site({"t": 5})
        self.numbers = count(1)
        self.members = [self.new() for _ in range(3)]

    def new(self) -> ConsumerMembership:
        member = ConsumerMembership(
            "g",
            f"m{next(self.numbers)}",
            group_instance_id=None,
            rebalance_timeout_ms=REBALANCE_MS,
            heartbeat_interval_ms=INTERVAL_MS,
            assignor=None,
        )
        member.subscribe(frozenset({"t"}))
        return member

    def send(self, values: dict[str, Any]) -> Any:
        owned = values.get("topic_partitions")
        try:
            answer = self.site.heartbeat(
                values["member_id"],
                values["member_epoch"],
                names=values.get("subscribed_topic_names"),
                owned=None if owned is None else {e["topic_id"]: frozenset(e["partitions"]) for e in owned},
                timeout_ms=values.get("rebalance_timeout_ms", -1),
            )
        except ApiError as error:
            return SimpleNamespace(error_code=error.code, error_message=error.message)
        parts = None
        if answer.assignment is not None:
            each = [SimpleNamespace(topic_id=key, partitions=part) for key, part in answer.assignment.items()]
            parts = SimpleNamespace(topic_partitions=each)
        fields = answer._asdict() | {"assignment": parts, "error_code": ErrorCode.NONE}
        return SimpleNamespace(**fields)

    def beat(self, member: ConsumerMembership, *, is_lost: bool = False) -> None:
        if not member.can_heartbeat:
            return
        asked = member.identity
        _, values = member.heartbeat()
        answer = self.send(values)
        if is_lost:
            member.request_failed(ConnectionLostError("lost"))
        else:
            member.heartbeat_received(asked, answer)

    def step(self, member: ConsumerMembership) -> bool:
        """Whether something was done."""
        match member.next_step():
            case Rest():
                return False
            case FindCoordinator():
                member.coordinator_found(1)
            case ResolveTopics():
                assert member.resolved(IDS)
            case Revoke(partitions):
                member.revoked(partitions)
            case Adopt(partitions):
                member.adopted(partitions)
            case Leave(_, values):
                self.send(values)
                member.left()
        return True

    # What happens

    @rule(slot=SLOTS)
    def a_member_does_a_step(self, slot: int) -> None:
        self.step(self.members[slot])

    @rule(slot=SLOTS, is_lost=st.sampled_from([False, False, False, True]))
    def a_member_sends_a_heartbeat(self, slot: int, is_lost: bool) -> None:
        self.beat(self.members[slot], is_lost=is_lost)

    @rule(count=st.integers(1, 8))
    def all_members_work(self, count: int) -> None:
        for _ in range(count):
            for member in self.members:
                self.step(member)
                self.beat(member)

    @rule(slot=SLOTS)
    def an_application_is_too_slow_or_comes_back(self, slot: int) -> None:
        member = self.members[slot]
        if member.is_stable:
            member.poll_interval_exceeded()
        else:
            member.polled()

    @rule(slot=SLOTS)
    def a_member_unsubscribes_or_subscribes(self, slot: int) -> None:
        member = self.members[slot]
        member.subscribe(None if member.is_subscribed else frozenset({"t"}))

    @rule(slot=SLOTS)
    def a_member_dies_and_another_begins(self, slot: int) -> None:
        self.members[slot] = self.new()

    @rule(duration_ms=st.sampled_from([1, INTERVAL_MS, REBALANCE_MS, SESSION_MS]), are_alive=st.booleans())
    def time_passes(self, duration_ms: int, are_alive: bool) -> None:
        for _ in range(max(1, duration_ms // INTERVAL_MS)):
            self.site.pass_ms(min(duration_ms, INTERVAL_MS))
            if are_alive:
                for member in self.members:
                    self.beat(member)

    @rule()
    def the_coordinator_restarts(self) -> None:
        self.site = self.site.restarted()

    @rule()
    def the_topic_grows(self) -> None:
        self.site.topics["t"] = min(self.site.topics["t"] + 1, 8)
        self.site.topics_changed()

    # What must hold

    @invariant()
    def no_partition_has_two_readers_that_the_coordinator_counts(self) -> None:
        if not hasattr(self, "site"):
            return
        group = self.site.groups.consumer.get("g")
        counted = [] if group is None else [each for each in self.members if self.is_counted(each, group)]
        owned = [partition for member in counted for partition in member.owned]
        assert len(owned) == len(set(owned))

    @staticmethod
    def is_counted(member: ConsumerMembership, group: Any) -> bool:
        member_id, epoch = member.identity
        if member_id not in group.members:
            return False
        current = group.current(member_id)
        return epoch in (current.epoch, current.previous_epoch)

    def teardown(self) -> None:
        if not hasattr(self, "site"):
            return
        for member in self.members:
            member.polled()
            member.subscribe(frozenset({"t"}))
        everything = {TopicPartition("t", index) for index in range(self.site.topics["t"])}
        for _ in range(40):
            for member in self.members:
                self.beat(member)
                for _ in range(10):
                    if not self.step(member):
                        break
            self.site.pass_ms(INTERVAL_MS)
            owned = [partition for member in self.members for partition in member.owned]
            if sorted(owned) == sorted(everything) and all(member.is_stable for member in self.members):
                assert all(member.error is None for member in self.members)
                return
        raise AssertionError([(member.identity, member.owned) for member in self.members])


TestMemberships = Memberships.TestCase
TestMemberships.settings = settings(max_examples=10, stateful_step_count=40)
