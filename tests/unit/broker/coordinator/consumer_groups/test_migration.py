"""Groups with members change their protocol, and no member loses its place or its partitions."""

import pytest

from tests.unit.broker.coordinator.consumer_groups.site import (
    CLASSIC_SESSION_MS,
    SETTINGS,
    ClassicClient,
    Client,
    Site,
    assigned,
    code_of,
    partitions_in,
    topic_id,
)
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset, OffsetRecord
from tidelog.protocol.errors import ErrorCode

IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS


def commit(site: Site, member_id: str, generation: int) -> None:
    record = OffsetRecord("g", "t", 0, CommittedOffset(5, topic_id=topic_id("t")))
    site.run(site.machine.offsets.commit("g", Committer(generation, member_id, None, 9), [record]))


def upgraded() -> tuple[Site, list[ClassicClient], Client]:
    """A classic group of two members that a consumer joined."""
    site = Site()
    generation, ids = site.classic_group([0, 1], [2, 3])
    shares = ([0, 1], [2, 3])
    classic = [
        ClassicClient(site, member_id, generation, {"t": share})
        for member_id, share in zip(ids, shares, strict=True)
    ]
    return site, classic, site.join("new")


def test_a_classic_group_becomes_a_consumer_group_when_a_member_joins_by_the_new_protocol() -> None:
    site, classic, client = upgraded()
    group, generation = site.group(), classic[0].generation
    assert set(group.members) == {"new", *(each.member_id for each in classic)}
    assert group.epoch == generation + 1
    assert [group.current(each.member_id).assigned[topic_id("t")] for each in classic] == [{0, 1}, {2, 3}]
    assert not site.groups.classic.ids()
    assert client.partitions() == set()
    commit(site, classic[0].member_id, generation)
    everybody = [*classic, client]
    for _ in range(4):
        for each in everybody:
            each.beat()
            held = [part for one in everybody for part in one.partitions()]
            assert len(held) == len(set(held))
    assert sorted(len(each.partitions()) for each in everybody) == [1, 1, 2]


def test_members_that_wait_in_a_classic_group_are_to_join_again(site: Site) -> None:
    generation, (first, second) = site.classic_group([0, 1], [2, 3])
    waiting = site.join_classic(second, names=["t", "u"])
    assert waiting.answer is None
    site.join("new")
    assert waiting.answer.error_code == IN_PROGRESS
    assert not site.parked
    assert site.heartbeat_classic(first, generation) == IN_PROGRESS


def test_the_members_of_an_upgraded_group_keep_their_session_timeouts(site: Site) -> None:
    site.classic_group([0, 1], [2, 3])
    client = site.join("new")
    site.pass_ms(CLASSIC_SESSION_MS - 1)
    client.beat()
    assert len(site.group().members) == 3
    site.pass_ms(1)
    # Without them, the last consumer's group stays what it is.
    assert set(site.group().members) == {"new"}


@pytest.mark.parametrize("goes", ["leaves", "expires"])
def test_a_group_whose_last_consumer_goes_becomes_a_classic_group_that_rebalances(goes: str) -> None:
    site, classic, client = upgraded()
    for each in (*classic, client, *classic, client):
        each.beat()
    if goes == "leaves":
        client.leave()
    for _ in range(20):
        if not site.groups.consumer.knows("g"):
            break
        for each in classic:
            each.beat()
        site.pass_ms(CLASSIC_SESSION_MS // 2)
    described = site.groups.describe("g")
    assert [member.member_id for member in described.members] == [each.member_id for each in classic]
    assert described.state.value == "PreparingRebalance"
    for each in classic:
        assert site.heartbeat_classic(each.member_id, each.generation) == IN_PROGRESS
        assert site.join_classic(each.member_id, owned=each.owned).answer is None or each is classic[-1]
    assert site.groups.describe("g").state.value == "CompletingRebalance"


def test_the_members_of_a_downgraded_group_go_on_as_in_any_rebalance() -> None:
    site = Site({"t": 4})
    client = site.join("new")
    joined = site.join_classic().answer
    for _ in range(3):
        client.beat()
    again = site.join_classic(joined.member_id).answer
    site.sync_classic(again.member_id, again.generation)
    client.leave()
    described = site.groups.describe("g")
    assert described.state.value == "PreparingRebalance"
    assert site.heartbeat_classic(again.member_id, again.generation) == IN_PROGRESS
    rejoined = site.join_classic(again.member_id).answer
    assert rejoined.generation == again.generation + 1
    assert rejoined.leader == again.member_id
    done = site.sync_classic(again.member_id, rejoined.generation, {again.member_id: assigned({"t": [0]})})
    assert partitions_in(done.answer.assignment) == {"t": [0]}


def test_a_static_consumer_that_comes_back_as_classic_downgrades_the_group_without_a_rebalance() -> None:
    site = Site()
    static = site.join("consumer", instance_id="i")
    answer = site.join_classic(instance_id="i").answer
    described = site.groups.describe("g")
    assert described.state.value == "Stable"
    assert site.heartbeat_classic(answer.member_id, answer.generation, "i") == ErrorCode.NONE
    share = partitions_in(site.sync_classic(answer.member_id, answer.generation).answer.assignment)
    assert set(share["t"]) == static.partitions()


@pytest.mark.parametrize("direction", ["may_upgrade", "may_downgrade"])
def test_a_group_changes_its_protocol_as_far_as_the_policy_allows(direction: str) -> None:
    site = Site(settings=SETTINGS._replace(**{direction: False}))
    if direction == "may_upgrade":
        site.classic_group([0, 1, 2, 3])
        assert code_of(lambda: site.join("new")) == ErrorCode.GROUP_ID_NOT_FOUND
        assert not site.groups.consumer.ids()
        return
    client = site.join("new")
    joined = site.join_classic().answer
    client.leave()
    assert set(site.group().members) == {joined.member_id}


def test_a_group_that_could_not_be_continued_is_not_upgraded() -> None:
    too_many = Site(settings=SETTINGS._replace(max_size=1))
    too_many.classic_group([0, 1], [2, 3])
    unreadable = Site()
    unreadable.join_classic(metadata=b"\0\1")
    of_others = Site()
    of_others.join_classic(protocol_type="connect")
    with_data = Site()
    with_data.classic_group([0], protocol="my own", user_data=b"data")
    for site in (too_many, unreadable, of_others, with_data):
        before = site.groups.describe("g")
        assert code_of(lambda: site.join("new")) == ErrorCode.GROUP_ID_NOT_FOUND  # noqa: B023
        assert site.groups.describe("g") == before


def test_data_that_a_known_assignor_keeps_in_assignments_is_not_needed(site: Site) -> None:
    site.classic_group([0, 1], [2, 3], protocol="cooperative-sticky", user_data=b"data")
    site.join("new")
    assert len(site.group().members) == 3


def test_a_group_without_members_takes_the_protocol_of_the_next_one(site: Site) -> None:
    _, (member_id,) = site.classic_group([0, 1, 2, 3])
    site.leave_classic((member_id, None))
    client = site.join("new")
    assert client.partitions() == {0, 1, 2, 3}
    client.leave()
    assert site.join_classic("unknown").answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.groups.consumer.knows("g")
    assert site.join_classic(requires_id=True).answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert not site.groups.consumer.knows("g")
    site.classic_group([0])
    assert site.groups.describe("g").state.value == "Stable"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_changed_its_protocol_is_the_same_after_a_restart(protocol: str, site: Site) -> None:
    generation, (first, second) = site.classic_group([0, 1], [2, 3])
    client = site.join("new")
    if protocol == "classic":
        client.leave()
    restarted = site.restarted()
    assert restarted.groups.of("g") is not None
    if protocol == "consumer":
        assert restarted.group().members == site.group().members
        assert restarted.group().currents == site.group().currents
        assert not restarted.groups.classic.ids()
    else:
        members = [(each.member_id, each.assignment) for each in restarted.groups.describe("g").members]
        assert [member_id for member_id, _ in members] == [first, second]
        assert [sorted(partitions_in(data)["t"]) for _, data in members] != [[], []]
        assert not restarted.groups.consumer.ids()
        assert restarted.heartbeat_classic(first, generation) == ErrorCode.ILLEGAL_GENERATION
