"""A group over its life: joins, generations, assignments, silence, restarts, deletion."""

import pytest

from tests.unit.broker.coordinator.groups.site import DELAY_MS, LIMITS, REBALANCE_MS, SESSION_MS, Site
from tidelog.broker.coordinator.groups.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.protocol.errors import ApiError, ErrorCode

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


@pytest.fixture
def site() -> Site:
    return Site()


def test_members_that_come_within_the_initial_delay_share_the_first_generation(site: Site) -> None:
    first = site.join()
    site.pass_ms(DELAY_MS - 1)
    second = site.join()
    assert first.answer is second.answer is None
    site.pass_ms(DELAY_MS + 1)
    assert first.answer.generation == second.answer.generation == 1
    assert first.answer.leader == second.answer.leader == first.answer.member_id
    assert [each.member_id for each in first.answer.members] == site.members()
    assert not second.answer.members


def test_a_member_alone_waits_for_the_initial_delay_and_no_longer(site: Site) -> None:
    joined = site.join()
    site.pass_ms(DELAY_MS - 1)
    assert joined.answer is None
    site.pass_ms(1)
    assert (joined.answer.error_code, joined.answer.generation) == (NONE, 1)


def test_the_initial_delay_is_extended_while_members_come_but_not_beyond_the_rebalance_timeout(
    site: Site,
) -> None:
    joins = [site.join()]
    while joins[0].answer is None:
        site.pass_ms(DELAY_MS // 2)
        joins.append(site.join())
        assert len(joins) < 100
    assert site.now_ms <= 1_000 + REBALANCE_MS + DELAY_MS


def test_a_member_that_the_leader_left_out_has_an_empty_assignment(site: Site) -> None:
    leader, follower = (site.join() for _ in range(2))
    site.pass_ms(2 * DELAY_MS)
    waiting = site.sync(follower.answer.member_id, 1)
    site.sync(leader.answer.member_id, 1, {leader.answer.member_id: b"all"})
    assert (waiting.answer.error_code, waiting.answer.assignment) == (NONE, b"")


def test_an_assignment_that_could_not_be_written_is_sent_to_no_member(site: Site) -> None:
    leader, follower = (site.join() for _ in range(2))
    site.pass_ms(2 * DELAY_MS)
    ids = [leader.answer.member_id, follower.answer.member_id]
    waiting = site.sync(ids[1], 1)
    site.journal_works = False
    assert site.sync(ids[0], 1, {ids[1]: b"b"}).answer == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting.answer is None
    assert site.state() is GroupState.COMPLETING_REBALANCE
    site.journal_works = True
    site.sync(ids[0], 1, {ids[1]: b"again"})
    assert waiting.answer.assignment == b"again"


def test_a_group_whose_members_all_went_silent_is_empty_and_that_is_written(site: Site) -> None:
    site.stable()
    site.pass_ms(2 * SESSION_MS + REBALANCE_MS)
    assert site.state() is GroupState.EMPTY
    last = site.records[-1].group
    assert last is not None
    assert (last.generation, dict(last.members)) == (2, {})


def test_a_new_member_whose_client_is_gone_does_not_stay_for_ever(site: Site) -> None:
    site = Site(LIMITS._replace(initial_rebalance_delay_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS))
    gone = site.join(rebalance_timeout_ms=100 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    site.pass_ms(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert gone.answer.error_code == UNKNOWN
    assert site.members() == []


def test_a_batch_of_members_leaves_and_each_has_its_own_answer(site: Site) -> None:
    leader, follower = site.stable()
    assert site.leave(leader, "stranger", leader) == [NONE, UNKNOWN, UNKNOWN]
    assert site.members() == [follower]


def test_a_member_that_leaves_while_it_waits_is_answered(site: Site) -> None:
    leader, follower = site.stable()
    waiting = site.join(follower, protocols={"range": b"more topics"})
    assert site.leave(follower) == [NONE]
    assert waiting.answer.error_code == UNKNOWN
    assert site.join(leader).answer.generation == 2


def test_a_second_join_of_a_member_takes_the_place_of_its_first(site: Site) -> None:
    leader, follower = site.stable()
    first = site.join(follower, protocols={"range": b"1"})
    second = site.join(follower, protocols={"range": b"2"})
    assert first.answer.error_code == REBALANCING
    answer = site.join(leader).answer
    assert [each.metadata for each in answer.members] == [b"topics", b"2"]
    assert second.answer.generation == 2


def test_metadata_passes_through_as_it_was_sent(site: Site) -> None:
    """Cooperative members put what they own into it, and their generation."""
    owned = b"\0\3" + bytes(range(256))
    joined = site.join(protocols={"cooperative-sticky": owned})
    site.pass_ms(DELAY_MS)
    assert joined.answer.members[0].metadata == owned
    assert joined.answer.protocol == "cooperative-sticky"


def test_a_generation_survives_a_restart_and_its_members_go_on(site: Site) -> None:
    leader, follower = site.stable()
    after = site.restarted()
    assert after.state() is GroupState.STABLE
    assert after.heartbeat(leader, 1) == after.heartbeat(follower, 1) == NONE
    assert after.sync(follower, 1).answer.assignment == follower.encode()
    assert [each.client_host for each in after.machine.describe("g").members] == ["/127.0.0.1"] * 2


def test_members_that_do_not_come_back_after_a_restart_expire(site: Site) -> None:
    leader, _ = site.stable()
    after = site.restarted()
    after.pass_ms(SESSION_MS - 1)
    after.heartbeat(leader, 1)
    after.pass_ms(1)
    assert after.members() == [leader]


def test_a_join_phase_is_forgotten_by_a_restart_and_its_members_begin_anew(site: Site) -> None:
    (leader,) = site.stable(1)
    joined = site.join()
    site.join(leader)
    after = site.restarted()
    assert after.heartbeat(joined.answer.member_id, 2) == UNKNOWN
    assert after.heartbeat(leader, 1) == NONE


def test_only_a_group_without_members_can_be_deleted(site: Site) -> None:
    leader, follower = site.stable()
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.NON_EMPTY_GROUP):
        site.machine.deletion("g")
    site.leave(leader, follower)
    for record in site.machine.deletion("g"):
        site.records.append(record)
        site.machine.apply(record)
    assert site.state() is site.restarted().state() is GroupState.DEAD
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.GROUP_ID_NOT_FOUND):
        site.machine.deletion("g")


def test_a_stable_group_shows_what_its_members_said_and_got_and_any_other_does_not(site: Site) -> None:
    leader, _ = site.stable()
    described = site.machine.describe("g")
    assert (described.protocol_type, described.protocol) == ("consumer", "range")
    assert [(each.metadata, each.assignment) for each in described.members] == [
        (b"topics", each.encode()) for each in site.members()
    ]
    site.join(leader)
    described = site.machine.describe("g")
    assert (described.protocol_type, described.protocol) == ("consumer", "")
    assert {(each.metadata, each.assignment) for each in described.members} == {(b"", b"")}


def test_what_groups_hold_is_given_back_to_the_last_byte(site: Site) -> None:
    leader, follower = site.stable()
    site.join(follower, protocols={"range": bytes(10_000)})
    site.join(leader)
    site.join(requires_known_member_id=True)
    assert site.machine.held_bytes > 10_000
    site.pass_ms(10 * REBALANCE_MS)
    assert site.state() is GroupState.EMPTY
    empty_bytes = site.machine.held_bytes
    site.machine.apply(site.machine.deletion("g")[0])
    assert 0 < empty_bytes < 2_000
    assert site.machine.held_bytes == 0
