"""Share groups: members join, share partitions, and leave; a restart forgets nothing."""

from collections.abc import Hashable
from functools import partial
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.unit.broker.coordinator.consumer_groups.site import SETTINGS, SHARE_SETTINGS, topic_id
from tests.unit.broker.coordinator.consumer_groups.site import Site as ConsumerSite
from tests.unit.broker.coordinator.groups.site import LIMITS
from tidelog.broker.coordinator.consumer_groups.group import SubscribedTopic
from tidelog.broker.coordinator.decision import Timer
from tidelog.broker.coordinator.group_machine import GROUP_RECORD_FORMATS, GroupMachine, GroupRules
from tidelog.broker.coordinator.share_groups.assignor import assign
from tidelog.broker.coordinator.share_groups.group import ShareGroup, StatePartitions
from tidelog.broker.coordinator.share_groups.machine import ShareHeartbeat, ShareHeartbeatAnswer
from tidelog.protocol.errors import ApiError, ErrorCode

JOBS = topic_id("jobs")


class Site:
    """A machine of all groups with the topic `jobs`, over a log of encoded records."""

    def __init__(self, partitions: int = 2, max_size: int = 200, max_bytes: int = 1 << 30) -> None:
        self.topics = {"jobs": partitions}
        self.stored = 0
        """How many records the last operation wrote."""
        self.now_ms = 0
        self.log: dict[bytes, bytes | None] = {}
        self.timers: dict[Hashable, Timer] = {}
        self.rules = GroupRules(1_000, LIMITS._replace(max_bytes=max_bytes), SETTINGS, SHARE_SETTINGS)
        self.rules = self.rules._replace(share_settings=SHARE_SETTINGS._replace(max_size=max_size))
        self.machine = GroupMachine(self.rules, self)

    def subscribed_topic(self, name: str) -> SubscribedTopic | None:
        return SubscribedTopic(topic_id(name), self.topics[name]) if name in self.topics else None

    def topic_name(self, wanted: UUID) -> str | None:
        return next((name for name in self.topics if topic_id(name) == wanted), None)

    @property
    def share(self) -> Any:
        return self.machine.groups.share

    def run(self, operation: Any) -> Any:
        decision = operation(self.now_ms)
        self.stored = len(decision.records)
        for record in decision.records:
            key, value = GROUP_RECORD_FORMATS.encode(record)
            self.log.pop(key, None)
            self.log[key] = value
            self.machine.write(record)
        for record in decision.records:
            self.machine.settle(record)
        for key, timer in decision.timers.items():
            self.timers.pop(key, None)
            if timer is not None:
                self.timers[key] = timer
        return decision.response

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        names: tuple[str, ...] | None = ("jobs",),
        group_id: str = "g",
        rack_id: str | None = None,
        host: str = "/h",
    ) -> ShareHeartbeatAnswer:
        asked = ShareHeartbeat(group_id, member_id, epoch, rack_id, "c", host, names, 45_000, 5_000)
        answer: ShareHeartbeatAnswer = self.run(partial(self.machine.groups.share_heartbeat, asked))
        return answer

    def join(self, member_id: str) -> ShareHeartbeatAnswer:
        answer = self.heartbeat(member_id, 0)
        if answer.without_state:
            self.run(partial(self.share.initialized, "g", answer.without_state))
            answer = self.heartbeat(member_id, answer.member_epoch)
        return answer

    def restart(self) -> None:
        self.machine = GroupMachine(self.rules, self)
        for key, value in self.log.items():
            if value is not None:
                self.machine.apply(GROUP_RECORD_FORMATS.decode(key, value))

    def code(self, *arguments: Any) -> ErrorCode:
        before = dict(self.log)
        with pytest.raises(ApiError) as refused:
            self.heartbeat(*arguments)
        assert self.log == before
        return refused.value.code


def test_partitions_are_assigned_once_they_have_a_state_and_members_share_them() -> None:
    site = Site()
    first = site.heartbeat("a", 0)
    assert first.assignment == {}
    assert first.without_state == {JOBS: StatePartitions("jobs", frozenset((0, 1)))}
    site.run(partial(site.share.initialized, "g", first.without_state))
    assert site.heartbeat("a", first.member_epoch).assignment == {JOBS: {0, 1}}
    assigned = [site.join(member_id).assignment for member_id in ("b", "c", "d")]
    assert all(each and len(each[JOBS]) == 1 for each in assigned)
    described = site.share.describe("g")
    assert [each.member_id for each in described.members] == ["a", "b", "c", "d"]


def test_a_member_may_repeat_its_last_heartbeat_and_no_other() -> None:
    site = Site()
    epoch = site.join("a").member_epoch
    site.join("b")
    raised = site.heartbeat("a", epoch).member_epoch
    assert site.heartbeat("a", epoch, None).member_epoch == raised
    assert site.heartbeat("a", raised, None).assignment is None
    assert site.code("a", raised + 1) == ErrorCode.FENCED_MEMBER_EPOCH
    assert site.code("a", epoch - 1) == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("", 0), ErrorCode.INVALID_REQUEST),
        (("x" * 37, 0), ErrorCode.INVALID_REQUEST),
        (("a", 0, None), ErrorCode.INVALID_REQUEST),
        (("a", 0, ()), ErrorCode.INVALID_REQUEST),
        (("a", -2), ErrorCode.INVALID_REQUEST),
        (("a", 0, ("jobs",), ""), ErrorCode.INVALID_REQUEST),
        (("a", 0, ("t",) * 1_001), ErrorCode.INVALID_REQUEST),
        (("a", 0, ("jobs",), "g", " "), ErrorCode.INVALID_REQUEST),
        (("a", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (("a", -1), ErrorCode.UNKNOWN_MEMBER_ID),
        (("a", 1, None, "h"), ErrorCode.GROUP_ID_NOT_FOUND),
        (("a", -1, None, "h"), ErrorCode.GROUP_ID_NOT_FOUND),
        (("c", 0), ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_a_bad_heartbeat_is_refused_and_changes_nothing(arguments: tuple[Any, ...], code: ErrorCode) -> None:
    site = Site(max_size=1)
    site.join("b")
    assert site.code(*arguments) == code


def test_what_is_as_large_as_allowed_is_taken() -> None:
    assert Site().heartbeat("x" * 36, 0, ("t",) * 1_000).member_epoch == 1


def test_groups_that_would_hold_too_much_are_refused() -> None:
    site = Site(max_bytes=20_000)
    site.join("a")
    assert site.code("b", 0, tuple(f"{number:0300}" for number in range(100))) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    assert site.heartbeat("a", site.share.describe("g").epoch, None).member_epoch > 0
    # What a group holds already is not counted again.
    site.heartbeat("b", 0, tuple(f"{number:0300}" for number in range(30)))
    assert site.heartbeat("c", 0).member_epoch > 0


def test_groups_may_hold_exactly_as_much_as_allowed() -> None:
    roomy = Site()
    epoch = roomy.heartbeat("a", 0).member_epoch
    site = Site(max_bytes=roomy.share.get("g").held_bytes - ShareGroup("g").held_bytes)
    assert site.heartbeat("a", 0).member_epoch == epoch
    assert site.code("a", epoch, ("jobs+",)) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_what_does_not_change_is_not_stored_and_raises_no_epoch() -> None:
    site = Site()
    joined = site.join("a")
    assert (joined.without_state, site.share.describe("g").epoch) == ({}, 2)
    for names in (None, ("jobs",)):
        assert site.heartbeat("a", joined.member_epoch, names).member_epoch == joined.member_epoch == 2
        assert site.stored == 0
    site.run(partial(site.share.initialized, "g", {JOBS: StatePartitions("jobs", frozenset((0, 1)))}))
    assert site.stored == 0
    assert site.heartbeat("a", 2, None, host="/other").member_epoch == 2
    assert site.stored == 1
    assert site.heartbeat("a", 2, None, rack_id="r").member_epoch == 2
    assert site.heartbeat("a", 2, None).member_epoch == 2
    (member,) = site.share.describe("g").members
    assert (member.member.rack_id, member.member.client_host) == ("r", "/h")
    assert site.heartbeat("a", 2, ("jobs", "mails")).member_epoch == 3
    # The epochs of the group, of its targets and of the member; its target is the same.
    assert site.stored == 4
    assert site.heartbeat("a", -1) == ShareHeartbeatAnswer(-1, 0, None, {}, {}, 4)


def test_what_concerns_a_group_that_is_gone_changes_nothing() -> None:
    share = Site().share
    known = {JOBS: StatePartitions("jobs", frozenset((0,)))}
    for decision in (
        share.initialized("g", known, 0),
        share.deleted("g", [JOBS], 0),
        share.topics_deleted("g", 0),
        share.member_expired("g", "a", 0),
    ):
        assert not decision.records
    assert share.describe("g") is None
    assert share.loaded(["g"], 0) == {}
    with pytest.raises(ApiError) as refused:
        share.begin_deletion("g", None, 0)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_states_of_a_topic_that_is_gone_are_forgotten() -> None:
    site = Site()
    site.join("a")
    site.topics.clear()
    assert site.share.describe("g").topics == {}
    site.run(partial(site.share.topics_deleted, "g"))
    assert site.share.get("g").initialized == {}


def test_a_silent_member_expires_and_others_get_its_partitions() -> None:
    site = Site()
    site.join("a")
    epoch = site.join("b").member_epoch
    (timer,) = (timer for key, timer in site.timers.items() if key == ("share session", "g", "a"))
    assert timer.at_ms == 45_000
    assert site.share.loaded(["g"], 0).keys() == site.timers.keys()
    site.run(timer.operation)
    site.run(timer.operation)
    assert site.stored == 0
    assert site.heartbeat("b", epoch).assignment == {JOBS: {0, 1}}
    site.heartbeat("b", -1)
    assert site.machine.listed(["g"])[0].state == "Empty"
    assert site.share.describe("g").members == []


def test_a_restart_forgets_nothing_and_topics_that_grow_are_noticed() -> None:
    site = Site()
    epoch = site.join("a").member_epoch
    before = site.share.describe("g")
    site.restart()
    assert site.share.describe("g") == before
    assert site.heartbeat("a", epoch, None).assignment is None
    site.topics["jobs"] = 3
    grown = site.heartbeat("a", epoch, None)
    assert grown.without_state == {JOBS: StatePartitions("jobs", frozenset((2,)))}
    assert grown.member_epoch == epoch + 1


def test_an_id_belongs_to_a_group_of_one_type() -> None:
    site = Site()
    site.join("a")
    other = ConsumerSite({"jobs": 1})
    other.join("m", ["jobs"])
    asked = ShareHeartbeat("g", "a", 0, None, "c", "/h", ("jobs",), 45_000, 5_000)
    with pytest.raises(ApiError) as refused:
        other.groups.share_heartbeat(asked, 0)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert [each.type for each in site.machine.listed(["g"])] == ["share"]


def test_states_are_deleted_before_the_group_and_a_crash_in_between_is_continued() -> None:
    site = Site()
    site.join("a")
    with pytest.raises(ApiError) as refused:
        site.run(partial(site.share.begin_deletion, "g", None))
    assert refused.value.code == ErrorCode.NON_EMPTY_GROUP
    site.heartbeat("a", -1)
    assert site.run(partial(site.share.begin_deletion, "g", None)) == {JOBS: "jobs"}
    site.restart()
    joined = site.heartbeat("a", 0)
    assert (joined.deleting, list(joined.without_state)) == ({JOBS: "jobs"}, [JOBS])
    site.run(partial(site.share.deleted, "g", [JOBS]))
    assert site.heartbeat("a", 0).deleting == {}
    site.heartbeat("a", -1)
    assert site.run(partial(site.machine.delete_some, "g")) is False
    assert site.share.get("g") is None
    assert not any(site.log.values())


@given(st.dictionaries(st.text(max_size=3), st.sets(st.integers(0, 3)), max_size=6), st.integers(0, 7))
def test_each_partition_has_a_member_and_each_member_a_partition(
    read: dict[str, set[int]], count: int
) -> None:
    ids = [UUID(int=number) for number in range(4)]
    topic_ids = {
        member_id: frozenset(ids[number] for number in numbers) for member_id, numbers in read.items()
    }
    partitions = {each: frozenset(range(count)) for each in ids}
    assigned = assign(topic_ids, partitions)
    for member_id, topics in assigned.items():
        assert topics.keys() <= topic_ids[member_id]
        assert any(topics.values()) == bool(topic_ids[member_id] and count)
    for each in frozenset().union(*topic_ids.values()):
        held = [index for topics in assigned.values() for index in topics.get(each, ())]
        assert set(held) == set(range(count))
