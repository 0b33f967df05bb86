"""ConsumerGroupHeartbeat: who may join, which epoch a member must send, and what it gets."""

import pytest

from tests.unit.broker.coordinator.consumer_groups.site import (
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    SETTINGS,
    Site,
    code_of,
    topic_id,
)
from tidelog.broker.coordinator.consumer_groups.heartbeats import MAX_TOPIC_NAMES
from tidelog.protocol.errors import ErrorCode


def test_a_member_that_joins_gets_an_epoch_the_interval_and_all_partitions(site: Site) -> None:
    answer = site.heartbeat("a", 0, names=["t"], owned={}, timeout_ms=REBALANCE_MS)
    assert answer == ("a", 1, INTERVAL_MS, {topic_id("t"): frozenset(range(4))})
    assert site.group().state.value == "Stable"


def test_an_assignment_is_sent_when_it_changed_and_to_a_member_that_says_all_of_itself(site: Site) -> None:
    client = site.join("a")
    assert client.beat().assignment is None
    full = client.beat(names=["t"], timeout_ms=REBALANCE_MS)
    assert full.assignment == client.owned


def test_a_member_keeps_its_epoch_until_it_has_revoked_and_gets_more_once_it_is_free() -> None:
    site = Site({"t": 2})
    first = site.join("a")
    second = site.join("b")
    assert (second.epoch, second.partitions()) == (2, set())
    told = site.heartbeat("a", 1, owned=first.owned)
    assert told.member_epoch == 1
    assert told.assignment is not None
    assert len(told.assignment[topic_id("t")]) == 1
    assert site.heartbeat("b", 2, owned={}).assignment is None
    first.take(told)
    assert first.beat().member_epoch == 2
    assert second.beat().assignment is not None
    assert site.group().state.value == "Stable"


@pytest.mark.parametrize("epoch", [2, 4])
def test_another_epoch_than_the_member_s_is_fenced(epoch: int, site: Site) -> None:
    client = site.join("a")
    client.beat(names=["t", "u"])
    client.beat(names=["t", "v"])
    assert client.epoch == 3
    asked = {"owned": {}, "timeout_ms": 1, "names": ["t"]}
    if epoch == 2:  # The epoch before: only with partitions that are not its own any more.
        asked["owned"] = {topic_id("else"): frozenset((1,))}
    assert code_of(lambda: site.heartbeat("a", epoch, **asked)) == ErrorCode.FENCED_MEMBER_EPOCH  # type: ignore[arg-type]


def test_a_member_that_did_not_get_the_last_answer_may_repeat_its_request(site: Site) -> None:
    client = site.join("a")
    again = site.heartbeat("a", 0, names=["t"], owned={}, timeout_ms=REBALANCE_MS)
    assert (again.member_epoch, again.assignment) == (client.epoch, client.owned)
    client.beat(names=["t", "u"])
    assert site.heartbeat("a", 1, owned=client.owned).member_epoch == 2


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_member_may_join_again_and_keeps_its_place(instance_id: str | None, site: Site) -> None:
    client, other = site.join("a", instance_id=instance_id), site.join("b")
    site.settle(client, other)
    client.beat(names=["t", "u"])
    again = site.join("a", ["t", "u"], instance_id=instance_id)
    assert (again.epoch, again.owned) == (3, client.owned)
    site.settle(again, other)


def test_a_member_that_joins_again_has_revoked_its_partitions(site: Site) -> None:
    first = site.join("a")
    second = site.join("b")
    assert site.heartbeat("a", 1, owned=first.owned).member_epoch == 1
    again = site.join("a")
    assert (again.epoch, len(again.partitions())) == (2, 2)
    second.beat()
    assert again.partitions() | second.partitions() == {0, 1, 2, 3}
    for _ in range(2 * REBALANCE_MS // INTERVAL_MS):
        again.beat()
        second.beat()
        site.pass_ms(INTERVAL_MS)
    assert set(site.group().members) == {"a", "b"}


def test_a_member_that_joins_again_still_waits_for_what_others_have_not_released() -> None:
    site = Site({"t": 3, "u": 1})
    first = site.join("a")
    site.join("b", ["u"]).beat(names=["t", "u"])
    again = site.join("b", ["t", "u"])
    assert (again.epoch, again.partitions(), again.partitions("u")) == (3, set(), {0})
    site.settle(first, again)
    assert (len(first.partitions()), len(again.partitions())) == (2, 1)


def test_only_a_member_or_one_that_joins_may_send_a_heartbeat(site: Site) -> None:
    assert code_of(lambda: site.heartbeat("a", 3)) == ErrorCode.UNKNOWN_MEMBER_ID
    site.join("a")
    assert code_of(lambda: site.heartbeat("b", 3)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(lambda: site.heartbeat("b", -1)) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "asked",
    [
        {"group_id": " "},
        {"member_id": ""},
        {"instance_id": ""},
        {"epoch": -3},
        {"epoch": -2},
        {"timeout_ms": -1},
        {"owned": None},
        {"owned": {topic_id("t"): frozenset((1,))}},
        {"names": None},
        {"names": [f"topic-{number}" for number in range(MAX_TOPIC_NAMES + 1)]},
    ],
)
def test_a_request_that_contradicts_itself_is_refused(asked: dict[str, object]) -> None:
    whole = {"member_id": "a", "epoch": 0, "names": ["t"], "owned": {}, "timeout_ms": 1, **asked}
    site = Site()
    assert code_of(lambda: site.heartbeat(**whole)) == ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
    assert not site.groups.ids()


def test_an_assignor_that_the_broker_does_not_have_is_refused(site: Site) -> None:
    assert code_of(lambda: site.join("a", assignor="sticky")) == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_the_assignor_that_most_members_ask_for_assigns() -> None:
    site = Site({"t": 4, "u": 4})
    members = [site.join(name, ["t", "u"], assignor="range") for name in "ab"]
    site.join("c", ["t", "u"], assignor="uniform").leave()
    site.settle(*members)
    assert members[0].owned == {topic_id("t"): {0, 1}, topic_id("u"): {0, 1}}
    described = site.groups.consumer.describe("g")
    assert described is not None
    assert described.assignor == "range"


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    site = Site(settings=SETTINGS._replace(max_size=1))
    client = site.join("a")
    assert code_of(lambda: site.join("b")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert client.beat().member_epoch == 1


def test_members_beyond_the_memory_of_all_groups_are_refused(site: Site) -> None:
    site.groups.classic.limits = site.groups.classic.limits._replace(max_bytes=10_000)
    client = site.join("a")
    many = [f"topic-{number}" for number in range(100)]
    assert code_of(lambda: site.join("b", many)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code_of(lambda: client.beat(names=many)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert client.beat().member_epoch == 1
    site.join("b")


def test_what_members_are_assigned_counts_against_the_memory_of_all_groups() -> None:
    site = Site({"t": 1_000})
    site.groups.classic.limits = site.groups.classic.limits._replace(max_bytes=50_000)
    assert code_of(lambda: site.join("a")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not site.groups.consumer.ids()
    site = Site({"t": 10})
    site.groups.classic.limits = site.groups.classic.limits._replace(max_bytes=50_000)
    client = site.join("a")
    client.leave()
    assert site.groups.consumer.held_bytes == 1_000


def test_a_static_member_that_left_for_a_while_comes_back_to_its_partitions_without_a_rebalance() -> None:
    site = Site()
    other = site.join("b")
    static = site.join("a", instance_id="i")
    site.settle(other, static)
    epoch, partitions = site.group().epoch, static.partitions()
    assert static.leave(-2).member_epoch == -2
    back = site.join("a2", instance_id="i")
    assert (back.partitions(), back.epoch) == (partitions, epoch)
    assert site.group().epoch == epoch
    assert set(site.group().members) == {"a2", "b"}
    assert code_of(lambda: static.beat()) == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_may_come_back_under_its_own_id(site: Site) -> None:
    static = site.join("a", instance_id="i")
    static.leave(-2)
    assert site.join("a", instance_id="i").partitions() == {0, 1, 2, 3}


def test_an_instance_id_that_its_owner_has_not_released_is_refused(site: Site) -> None:
    site.join("a", instance_id="i")
    assert code_of(lambda: site.join("b", instance_id="i")) == ErrorCode.UNRELEASED_INSTANCE_ID
    assert code_of(lambda: site.heartbeat("b", 1, instance_id="i")) == ErrorCode.FENCED_INSTANCE_ID
    assert code_of(lambda: site.heartbeat("b", 1, instance_id="j")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_left_for_a_while_expires(site: Site) -> None:
    site.join("a", instance_id="i").leave(-2)
    site.pass_ms(SESSION_MS)
    assert site.group().state.value == "Empty"


def test_a_member_without_heartbeats_expires_and_the_others_take_over(site: Site) -> None:
    first, second = site.join("a"), site.join("b")
    site.settle(first, second)
    site.pass_ms(SESSION_MS - 1)
    first.beat()
    site.pass_ms(1)
    assert set(site.group().members) == {"a"}
    site.settle(first)
    assert first.partitions() == {0, 1, 2, 3}
    assert code_of(lambda: second.beat()) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_in_time_is_removed(site: Site) -> None:
    first = site.join("a")
    second = site.join("b")
    for _ in range(REBALANCE_MS // INTERVAL_MS):
        site.heartbeat("a", 1, owned=first.owned)
        second.beat()
        site.pass_ms(INTERVAL_MS)
    assert set(site.group().members) == {"b"}
    site.settle(second)
    assert second.partitions() == {0, 1, 2, 3}


def test_a_member_that_revoked_in_time_stays(site: Site) -> None:
    first = site.join("a")
    second = site.join("b")
    first.beat()
    for _ in range(2 * REBALANCE_MS // INTERVAL_MS):
        first.beat()
        second.beat()
        site.pass_ms(INTERVAL_MS)
    assert set(site.group().members) == {"a", "b"}


def test_a_regular_expression_counts_as_long_as_a_member_subscribes_to_it() -> None:
    site = Site({"t1": 1, "t2": 1, "u": 1})
    first = site.join("a", regex=("t.*", {"t1", "t2"}))
    assert set(first.owned) == {topic_id("t1"), topic_id("t2")}
    second = site.join("b", ["u"], regex=("t.*", {"t1", "t2"}))
    site.settle(first, second)
    assert set(first.owned) | set(second.owned) == {topic_id("t1"), topic_id("t2"), topic_id("u")}
    first.leave()
    assert set(site.group().regexes) == {"t.*"}
    second.beat(regex=("", set()))
    assert not site.group().regexes
    site.settle(second)
    assert set(second.owned) == {topic_id("u")}


def test_topics_that_appear_grow_and_go_change_the_assignment() -> None:
    site = Site({"t1": 1})
    client = site.join("a", ["later"], regex=("t.*", {"t1"}))
    site.topics |= {"t1": 2, "t2": 1, "later": 3, "unread": 1}
    site.topics_changed({"t.*": {"t1", "t2"}})
    site.settle(client)
    assert {name: client.partitions(name) for name in ("t1", "t2", "later")} == {
        "t1": {0, 1},
        "t2": {0},
        "later": {0, 1, 2},
    }
    del site.topics["t1"]
    site.topics_changed({"t.*": {"t2"}})
    site.settle(client)
    assert set(client.owned) == {topic_id("t2"), topic_id("later")}
    epoch = site.group().epoch
    site.topics["unread"] = 9
    site.topics_changed({"t.*": {"t2"}})
    assert site.group().epoch == epoch


def test_a_group_continues_after_a_restart_with_what_its_log_still_has() -> None:
    site = Site({"t1": 3, "t2": 4})
    first = site.join("a", regex=("t.*", {"t1", "t2"}))
    second = site.join("b", ["t1"], instance_id="i", assignor="range")
    first.beat()
    restarted = site.restarted()
    group, before = restarted.group(), site.group()
    for part in (
        "epoch",
        "target_epoch",
        "topics",
        "members",
        "currents",
        "targets",
        "regexes",
        "held_bytes",
    ):
        assert getattr(group, part) == getattr(before, part), part
    assert restarted.groups.consumer.held_bytes == site.groups.consumer.held_bytes
    first.site = second.site = restarted
    restarted.settle(first, second)
    restarted.pass_ms(SESSION_MS)
    assert restarted.group().state.value == "Empty"


def test_a_member_that_was_to_revoke_must_do_so_after_a_restart_too(site: Site) -> None:
    first = site.join("a")
    site.join("b")
    site.heartbeat("a", 1, owned=first.owned)
    restarted = site.restarted()
    for _ in range(REBALANCE_MS // INTERVAL_MS):
        restarted.heartbeat("a", 1, owned=first.owned)
        restarted.pass_ms(INTERVAL_MS)
    assert set(restarted.group().members) == {"b"}


def test_a_group_may_have_its_own_timeout_and_interval(site: Site) -> None:
    site.configs["g"] = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    assert site.join("a").beat().heartbeat_interval_ms == 7_000
    site.pass_ms(SESSION_MS + 1)
    assert set(site.group().members) == {"a"}
    site.pass_ms(5_000)
    assert set(site.group().members) == set()
