"""Who may join a group, under which id, and what is said to those who may not."""

import gc
import tracemalloc

import pytest

from tests.unit.broker.coordinator.groups.site import DELAY_MS, LIMITS, REBALANCE_MS, SESSION_MS, Site
from tidelog.broker.coordinator.groups.joining import MAX_METADATA_BYTES, MAX_PROTOCOLS
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.protocol.errors import ErrorCode

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.fixture
def site() -> Site:
    return Site()


def refused(site: Site) -> None:
    assert site.state() is GroupState.DEAD
    assert site.machine.held_bytes == 0


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_outside_the_limits_is_refused(site: Site, session_timeout_ms: int) -> None:
    answer = site.join(session_timeout_ms=session_timeout_ms).answer
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    refused(site)


def test_what_a_member_says_of_itself_is_bounded(site: Site) -> None:
    for protocols in (
        {"range": bytes(MAX_METADATA_BYTES)},
        {str(number): b"" for number in range(MAX_PROTOCOLS + 1)},
    ):
        assert site.join(protocols=protocols).answer.error_code == ErrorCode.INVALID_REQUEST
    refused(site)


def test_no_group_is_created_for_an_unknown_member_id(site: Site) -> None:
    assert site.join("invented").answer.error_code == UNKNOWN
    refused(site)


def test_a_group_needs_a_protocol_type_and_a_protocol(site: Site) -> None:
    assert site.join(protocol_type="").answer.error_code == INCONSISTENT
    refused(site)


def test_a_member_that_shares_no_protocol_with_all_others_is_refused(site: Site) -> None:
    site.join(protocols={"range": b"", "roundrobin": b""})
    site.join(protocols={"roundrobin": b""})
    assert site.join(protocols={"range": b""}).answer.error_code == INCONSISTENT
    assert site.join(protocol_type="connect").answer.error_code == INCONSISTENT
    assert len(site.members()) == 2


def test_votes_decide_among_the_protocols_that_all_know_and_not_the_leader(site: Site) -> None:
    wanted = (("a", "b"), ("own", "b", "a"), ("b", "a"))
    joins = [site.join(protocols=dict.fromkeys(names, b"")) for names in wanted]
    site.pass_ms(2 * DELAY_MS)
    assert {joined.answer.protocol for joined in joins} == {"b"}


def test_the_last_protocol_of_its_kind_may_change_when_a_group_is_empty(site: Site) -> None:
    (member,) = site.stable(1)
    site.leave(member)
    joined = site.join(protocol_type="connect", protocols={"sessioned": b""})
    site.pass_ms(DELAY_MS)
    assert (joined.answer.protocol_type, joined.answer.protocol) == ("connect", "sessioned")


def test_a_dynamic_member_gets_its_id_first_and_joins_with_it(site: Site) -> None:
    asked = site.join(requires_known_member_id=True).answer
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert site.members() == []
    joined = site.join(asked.member_id, requires_known_member_id=True)
    site.pass_ms(DELAY_MS)
    assert (joined.answer.error_code, joined.answer.member_id) == (NONE, asked.member_id)


def test_a_member_id_that_is_not_used_expires_and_leaves_nothing(site: Site) -> None:
    asked = site.join(requires_known_member_id=True).answer
    site.pass_ms(SESSION_MS)
    assert site.join(asked.member_id).answer.error_code == UNKNOWN
    refused(site)
    assert not site.timers


def test_a_rebalance_waits_for_those_who_have_got_an_id(site: Site) -> None:
    (leader,) = site.stable(1)
    asked = site.join(requires_known_member_id=True).answer
    again = site.join(leader)
    assert again.answer is None
    joined = site.join(asked.member_id)
    assert joined.answer.generation == again.answer.generation == 2


def test_a_rebalance_waits_no_longer_when_an_id_is_given_back_or_expires(site: Site) -> None:
    (leader,) = site.stable(1)
    asked = site.join(requires_known_member_id=True).answer
    again = site.join(leader)
    assert site.leave(asked.member_id) == [NONE]
    assert again.answer.generation == 2
    site.join(requires_known_member_id=True)
    again = site.join(leader, protocols={"range": b"more topics"})
    assert again.answer is None
    site.pass_ms(SESSION_MS)
    assert again.answer.generation == 3


def test_a_static_member_that_returns_keeps_its_assignment_without_a_rebalance(site: Site) -> None:
    leader, follower = site.stable(a="a", b="b")
    back = site.join(instance_id="b").answer
    assert (back.error_code, back.generation, back.leader) == (NONE, 1, leader)
    assert back.member_id != follower
    assert site.state() is GroupState.STABLE
    assert site.sync(back.member_id, 1, instance_id="b").answer.assignment == follower.encode()
    assert site.restarted().members() == site.members()


def test_the_old_self_of_a_static_member_is_fenced(site: Site) -> None:
    _, follower = site.stable(a="a", b="b")
    site.join(instance_id="b")
    assert site.heartbeat(follower, 1, instance_id="b") == FENCED
    assert site.sync(follower, 1, instance_id="b").answer.error_code == FENCED
    assert site.join(follower, instance_id="b").answer.error_code == FENCED
    assert site.leave(follower, instance_id="b") == [FENCED]
    with pytest.raises(Exception, match="instance"):
        site.machine.check_commit("g", Committer(1, follower, "b"), site.now_ms)


def test_a_static_member_that_waits_is_fenced_by_its_next_self(site: Site) -> None:
    leader, follower = site.stable(a="a", b="b")
    site.join(leader, instance_id="a")
    waiting = site.join(follower, instance_id="b")
    assert waiting.answer.generation == 2
    syncing = site.sync(follower, 2, instance_id="b")
    site.join(instance_id="b")
    assert syncing.answer.error_code == FENCED


def test_a_static_leader_that_comes_back_leads_and_is_not_to_assign(site: Site) -> None:
    leader, _ = site.stable(a="a", b="b")
    back = site.join(instance_id="a").answer
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert [each.group_instance_id for each in back.members] == ["b", "a"]
    old = site.join(instance_id="a", can_skip_assignment=False).answer
    assert (old.leader, old.skip_assignment, old.members) == (back.member_id, False, ())
    assert old.leader not in (leader, old.member_id)


def test_a_static_member_back_with_another_protocol_makes_the_group_rebalance(site: Site) -> None:
    site.join(instance_id="a", protocols={"range": b"", "sticky": b""})
    joined = site.join(instance_id="b", protocols={"range": b"", "sticky": b""})
    site.pass_ms(2 * DELAY_MS)
    site.sync(joined.answer.leader, 1, {})
    back = site.join(instance_id="b", protocols={"sticky": b""})
    assert back.answer is None
    assert site.state() is GroupState.PREPARING_REBALANCE


def test_a_static_member_stays_in_a_rebalance_that_it_misses(site: Site) -> None:
    leader, follower = site.stable(a="a", b="b")
    again = site.join(leader, instance_id="a")
    for _ in range(REBALANCE_MS // 5_000):
        assert again.answer is None
        site.heartbeat(follower, 1, instance_id="b")
        site.pass_ms(5_000)
    assert again.answer.generation == 2
    assert {each.group_instance_id for each in again.answer.members} == {"a", "b"}


def test_static_members_of_whom_none_comes_back_expire_and_leave_an_empty_group(site: Site) -> None:
    leader, follower = site.stable(a="a", b="b")
    gone = site.join(leader, instance_id="a")
    assert site.leave(leader, instance_id="a") == [NONE]
    assert gone.answer.error_code == UNKNOWN
    assert site.state() is GroupState.PREPARING_REBALANCE
    site.pass_ms(2 * REBALANCE_MS)
    assert site.heartbeat(follower, 1, instance_id="b") == UNKNOWN
    assert site.state() is GroupState.EMPTY


def test_operators_remove_a_static_member_by_its_instance_id_alone(site: Site) -> None:
    leader, follower = site.stable(a="a", b="b")
    assert site.leave("", instance_id="b") == [NONE]
    assert site.members() == [leader]
    assert site.leave("", instance_id="nobody") == [UNKNOWN]
    assert site.heartbeat(follower, 1) == UNKNOWN


def test_an_unused_instance_id_is_an_unknown_member(site: Site) -> None:
    leader, _ = site.stable()
    assert site.heartbeat(leader, 1, instance_id="new") == UNKNOWN


def test_a_group_takes_no_more_members_than_its_limit() -> None:
    site = Site(LIMITS._replace(max_size=2))
    leader, _ = site.stable(2)
    answer = site.join().answer
    assert (answer.error_code, answer.member_id) == (FULL, "")
    assert site.state() is GroupState.STABLE
    site.join(leader)
    assert site.state() is GroupState.PREPARING_REBALANCE


def test_a_static_member_finds_its_own_place_in_a_full_group() -> None:
    site = Site(LIMITS._replace(max_size=2))
    site.stable(a="a", b="b")
    assert site.join(instance_id="b").answer.error_code == NONE
    assert site.join(instance_id="c").answer.error_code == FULL


def test_a_group_over_a_limit_that_was_lowered_loses_those_who_come_last() -> None:
    before = Site()
    ids = before.stable(3)
    before.limits = LIMITS._replace(max_size=2)
    site = before.restarted()
    assert site.state() is GroupState.PREPARING_REBALANCE
    joins = [site.join(each) for each in ids]
    assert [each.answer.error_code for each in joins] == [NONE, NONE, FULL]
    assert site.members() == ids[:2]


def test_all_groups_together_hold_no_more_memory_than_they_may() -> None:
    site = Site(LIMITS._replace(max_bytes=50_000))
    assert site.join(group_id="a", protocols={"range": bytes(40_000)}).answer is None
    assert site.join(group_id="b", protocols={"range": bytes(10_000)}).answer.error_code == FULL
    for _ in range(200):
        site.join(group_id="c", requires_known_member_id=True)
    assert site.machine.held_bytes <= 50_000
    site.pass_ms(DELAY_MS)
    assert len(site.members("a")) == 1


def test_what_is_counted_is_no_less_than_the_memory_that_is_held() -> None:
    site = Site()
    tracemalloc.start()
    try:
        for number in range(100):
            site.stable(group_id=f"group-{number:0500d}")
        site.records.clear()
        gc.collect()
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes <= site.machine.held_bytes <= 100 * 6_000


def test_the_ids_of_groups_count_too() -> None:
    site = Site(LIMITS._replace(max_bytes=50_000))
    assert site.join(group_id="a" * 20_000).answer is None
    assert site.join(group_id="b" * 20_000).answer.error_code == FULL
    assert 40_000 <= site.machine.held_bytes <= 50_000


@pytest.mark.parametrize(
    ("generation", "protocol_type", "protocol", "code"),
    [
        (1, None, None, NONE),
        (1, "consumer", "range", NONE),
        (2, None, None, ErrorCode.ILLEGAL_GENERATION),
        (1, "connect", "range", INCONSISTENT),
        (1, "consumer", "sticky", INCONSISTENT),
    ],
)
def test_a_sync_must_name_the_generation_and_the_protocol_of_the_group(
    site: Site, generation: int, protocol_type: str | None, protocol: str | None, code: ErrorCode
) -> None:
    leader, _ = site.stable()
    answer = site.sync(leader, generation, protocol_type=protocol_type, protocol=protocol).answer
    assert answer.error_code == code


def test_assignments_that_take_more_memory_than_there_is_are_refused_and_the_group_joins_again() -> None:
    site = Site(LIMITS._replace(max_bytes=50_000))
    joins = [site.join() for _ in range(2)]
    site.pass_ms(2 * DELAY_MS)
    leader, other = (joined.answer.member_id for joined in joins)
    waiting = site.sync(other, 1)
    assert waiting.answer is None
    answer = site.sync(leader, 1, {leader: bytes(30_000), other: bytes(30_000)}).answer
    assert answer.error_code == waiting.answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert site.machine.held_bytes <= 50_000
    assert site.state() is GroupState.PREPARING_REBALANCE
    for member_id in (leader, other):
        site.join(member_id)
    assert site.sync(leader, 2, {leader: bytes(20_000), other: bytes(20_000)}).answer.error_code == 0
    assert site.state() is GroupState.STABLE
