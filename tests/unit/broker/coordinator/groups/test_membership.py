"""What members say about offsets: who may commit, which topics are read, how long an offset is needed."""

import pytest

from tests.unit.broker.coordinator.groups.site import DELAY_MS, SESSION_MS, Site
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.protocol.errors import ApiError, ErrorCode

SUBSCRIPTION = bytes.fromhex("0003 00000002 0001 61 0001 62 ffffffff 00000000 ffffffff ffff")
"""Version 3, topics a and b, no user data, nothing owned, no generation, no rack."""


@pytest.fixture
def site() -> Site:
    return Site()


def refusal(site: Site, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode | None:
    try:
        site.machine.check_commit("g", Committer(generation, member_id, instance_id), site.now_ms)
    except ApiError as error:
        return error.code
    return None


def test_only_a_member_of_the_generation_may_commit(site: Site) -> None:
    leader, _ = site.stable()
    assert refusal(site, leader, 1) is None
    assert refusal(site, leader, 2) == ErrorCode.ILLEGAL_GENERATION
    assert refusal(site, "stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(site, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(site, leader, -1) == ErrorCode.ILLEGAL_GENERATION
    assert refusal(site, leader, 1, "nobody") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_may_commit_before_it_joins_again_and_not_before_it_has_its_assignment(site: Site) -> None:
    (leader,) = site.stable(1)
    joined = site.join()
    assert site.state() is GroupState.PREPARING_REBALANCE
    assert refusal(site, leader, 1) is None
    site.join(leader)
    assert joined.answer.generation == 2
    assert refusal(site, leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_anybody_may_commit_without_a_generation_while_a_group_has_no_members(site: Site) -> None:
    (leader,) = site.stable(1)
    site.leave(leader)
    assert refusal(site, "", -1) is None
    assert refusal(site, leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_is_a_sign_of_life(site: Site) -> None:
    (leader,) = site.stable(1)
    site.pass_ms(SESSION_MS - 1)
    site.timers.update(site.machine.check_commit("g", Committer(1, leader), site.now_ms))  # type: ignore[arg-type]
    site.pass_ms(SESSION_MS - 1)
    assert site.members() == [leader]


def subscribed(site: Site, metadata: bytes, protocol_type: str = "consumer") -> None:
    joined = site.join(protocols={"range": metadata}, protocol_type=protocol_type)
    site.pass_ms(DELAY_MS)
    site.sync(joined.answer.member_id, 1)


def test_the_topics_that_members_read_are_known(site: Site) -> None:
    subscribed(site, SUBSCRIPTION)
    assert [site.machine.is_subscribed("g", topic) for topic in "abc"] == [True, True, False]
    site.machine.check_offset_delete("g")


@pytest.mark.parametrize("metadata", [b"", b"\0", SUBSCRIPTION[:9], bytes.fromhex("0000 7fffffff")])
def test_metadata_that_cannot_be_read_may_mean_any_topic(site: Site, metadata: bytes) -> None:
    subscribed(site, metadata)
    assert site.machine.is_subscribed("g", "c")
    assert site.machine.idle_since_ms("g", 5) is None


def test_offsets_of_a_group_that_is_not_of_consumers_are_not_deleted_while_it_has_members(site: Site) -> None:
    subscribed(site, b"", "connect")
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.NON_EMPTY_GROUP):
        site.machine.check_offset_delete("g")
    site.leave(*site.members())
    site.machine.check_offset_delete("g")


def test_an_offset_is_needed_while_members_may_read_it_and_ages_from_then_on(site: Site) -> None:
    subscribed(site, SUBSCRIPTION)
    assert site.machine.idle_since_ms("g", 5) == 5
    joined = site.join()
    assert site.machine.idle_since_ms("g", 5) is None
    site.leave(*site.members())
    site.pass_ms(DELAY_MS)
    assert joined.answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.state() is GroupState.EMPTY
    assert site.machine.idle_since_ms("g", 5) == site.now_ms - DELAY_MS
