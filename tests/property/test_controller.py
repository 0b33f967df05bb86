"""Whoever the controller lets lead has every acknowledged record, whatever starts, ends, lags and returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.broker.cluster.catalog import (
    NO_LEADER,
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    Delta,
    NothingToChange,
    PartitionAssignment,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
    least_in_sync,
)
from tidelog.broker.cluster.controller import (
    controller_of,
    elected,
    elected_uncleanly,
    election,
    election_as_asked,
    eligible_by_logs,
    fencing,
    is_unknown,
    live_brokers,
    needs_election,
    offline_replicas,
    without_disk,
    without_in_sync_sets,
    without_session,
)
from tidelog.broker.cluster.in_sync import InSyncWanted, in_sync_change, needed
from tidelog.broker.cluster.reassignment import is_under_way, reassigned
from tidelog.broker.cluster.registration import replica_epoch_of
from tidelog.broker.cluster.store import BrokerSession

BROKERS = (1, 2, 3)
TOPIC = UUID(int=1)


def least(topic: Topic) -> int:
    return least_in_sync(topic, 1)


class World:
    """A partition on three brokers, each with a log of the epochs in which its records were written."""

    def __init__(self, least_members: int) -> None:
        self.catalog = Catalog(
            "c", brokers=[BrokerRegistration(each, (), UUID(int=each)) for each in BROKERS]
        )
        configs = {"min.insync.replicas": str(least_members)}
        assigned = PartitionAssignment(1, 0, BROKERS, BROKERS)
        self.catalog.apply(TopicCreated(Topic("t", TOPIC, (assigned,), configs)))
        self.alive = set(BROKERS)
        self.offline: set[int] = set()
        self.starts = dict(zip(BROKERS, BROKERS, strict=True))
        self.logs: dict[int, list[tuple[int, int]]] = {each: [] for each in BROKERS}
        self.fetched = dict.fromkeys(BROKERS, (-1, 0, 0))
        """Leader epoch, replica epoch and end of the last fetch of each broker."""
        self.acknowledged: list[tuple[int, int]] = []
        self.written = 0
        self.saved = assigned

    @property
    def topic(self) -> Topic:
        topic = self.catalog.topic_by_id(TOPIC)
        assert topic is not None
        return topic

    @property
    def assigned(self) -> PartitionAssignment:
        return self.topic.partitions[0]

    def happens(self, what: str, broker: int) -> None:
        before = self.assigned
        getattr(self, f"_{what}")(broker)
        for gone in {*before.replicas} - {*self.assigned.replicas}:
            self.logs[gone] = []
        if is_under_way(before) and not is_under_way(self.assigned) and what == "settle":
            assert len(self.assigned.isr) >= needed(self.assigned, least(self.topic))
            assert {*before.adding} - {*before.removing} <= {*self.assigned.isr}

    def _start(self, broker: int) -> None:
        self.alive.add(broker)
        self.offline.discard(broker)
        self.starts[broker] += len(BROKERS)
        self._registered(broker, is_fenced=True)

    def _register(self, broker: int) -> None:
        if broker in self.alive:
            self._registered(broker, is_fenced=False)

    def _registered(self, broker: int, *, is_fenced: bool) -> None:
        incarnation = UUID(int=self.starts[broker])
        offline = ((TOPIC, 0),) if broker in self.offline else ()
        registration = BrokerRegistration(broker, (), incarnation, is_fenced=is_fenced, offline=offline)
        self.catalog.apply(BrokerRegistered(registration))

    def _fail(self, broker: int) -> None:
        """Its log fails, and has what it had when it is started again."""
        if broker in self.alive:
            self.offline.add(broker)
            self._registered(broker, is_fenced=self.catalog.brokers[broker].is_fenced)

    def _can(self, broker: int) -> bool:
        return broker in self.alive - self.offline

    def _end(self, broker: int) -> None:
        self.alive.discard(broker)

    def _lose_disk(self, broker: int) -> None:
        sets = {*self.assigned.isr, *self.assigned.elr}
        if broker not in self.alive and sets - {broker}:
            self._apply(lambda: without_disk(self.catalog, TOPIC, broker, least))
            self.logs[broker] = []

    def _write(self, _: int) -> None:
        leader = self.assigned.leader_id
        if self._can(leader):
            self.written += 1
            self.logs[leader].append((self.assigned.leader_epoch, self.written))

    def _fetch(self, broker: int) -> None:
        leader = self.assigned.leader_id
        is_follower = broker in self.assigned.replicas and broker != leader
        if self._can(leader) and self._can(broker) and is_follower:
            own, others = self.logs[broker], self.logs[leader]
            same = next(
                (at for at, (one, other) in enumerate(zip(own, others, strict=False)) if one != other), None
            )
            self.logs[broker] = [*(own if same is None else own[:same])[: len(others)]]
            self.logs[broker] += others[len(self.logs[broker]) :]
            epoch = replica_epoch_of(UUID(int=self.starts[broker]))
            self.fetched[broker] = (self.assigned.leader_epoch, epoch, len(self.logs[broker]))

    def _acknowledge(self, _: int) -> None:
        assigned = self.assigned
        is_enough = not assigned.elr and len(assigned.isr) >= needed(assigned, least(self.topic))
        if self._can(assigned.leader_id) and is_enough:
            log = self.logs[assigned.leader_id]
            ends = (self._end_of(each) for each in assigned.isr)
            self.acknowledged = max(self.acknowledged, log[: min(ends)], key=len)

    def _end_of(self, broker: int) -> int:
        """As the leader knows it."""
        if broker == self.assigned.leader_id:
            return len(self.logs[broker])
        epoch, _, end = self.fetched[broker]
        return end if epoch == self.assigned.leader_epoch else 0

    def _join(self, broker: int) -> None:
        epoch, replica_epoch, _ = self.fetched[broker]
        if epoch == self.assigned.leader_epoch and self._end_of(broker) >= len(self.acknowledged):
            self._change({broker: replica_epoch}, ())

    def _lag(self, broker: int) -> None:
        self._change({}, (broker,))

    def _change(self, joining: dict[int, int], leaving: tuple[int, ...]) -> None:
        leader, epoch = self.assigned.leader_id, self.assigned.leader_epoch
        if leader in self.alive:
            wanted = {0: InSyncWanted(epoch, joining, leaving)}
            self._apply(lambda: in_sync_change(self.catalog, leader, TOPIC, wanted, least(self.topic)))

    def _keep_only(self, broker: int) -> None:
        self._reassign((broker,))

    def _keep_others(self, broker: int) -> None:
        self._reassign([each for each in BROKERS if each != broker])

    def _keep_all(self, broker: int) -> None:
        self._reassign(sorted(BROKERS, key=lambda each: (each - broker) % 3))

    def _cancel(self, _: int) -> None:
        self._reassign(None)

    def _reassign(self, replicas: Sequence[int] | None) -> None:
        self._apply(lambda: reassigned(self.catalog, TOPIC, {0: replicas}, least, {}))

    def _need(self, count: int) -> None:
        self.catalog.apply(TopicConfigsChanged(TOPIC, {"min.insync.replicas": str(count)}))
        self._settle(0)

    def _settle(self, _: int) -> None:
        """What a controller does, if there is one."""
        sessions = {BrokerSession(each, UUID(int=self.starts[each])) for each in self.alive}
        if controller_of(self.catalog, sessions) == NO_LEADER:
            return
        for gone in without_session(self.catalog, sessions):
            self.catalog.apply(fencing(self.catalog, gone))
        live = live_brokers(self.catalog)
        offline = offline_replicas(self.catalog)
        if needs_election(self.topic, live, offline, least(self.topic)):
            self.catalog.apply(election(self.catalog, TOPIC, least))
        assert not needs_election(self.topic, live, offline, least(self.topic))
        able = live - self.offline
        in_sync = able & {*self.assigned.isr}
        assert (self.assigned.leader_id in in_sync) == bool(able & {*self.assigned.isr, *self.assigned.elr})
        assert self.assigned.leader_id not in self.offline
        assert not in_sync or in_sync == {*self.assigned.isr}

        if is_unknown(self.assigned) and {*self.assigned.replicas} <= able:
            self._elect_by_logs()

    def _elect_by_logs(self) -> None:
        ends = {each: (self._latest_epoch(each), len(self.logs[each])) for each in self.assigned.replicas}
        elect = partial(eligible_by_logs, asked=self.assigned, ends=ends)
        self.catalog.apply(election_as_asked(self.catalog, TOPIC, [0], elect))
        self._settle(0)
        assert self.assigned.leader_epoch > max(map(self._latest_epoch, BROKERS))

    def _latest_epoch(self, broker: int) -> int:
        return self.logs[broker][-1][0] if self.logs[broker] else -1

    def _save(self, _: int) -> None:
        self.saved = self.assigned

    def _restore(self, _: int) -> None:
        """All brokers end, and the saved catalog is put back and corrected at each of them."""
        if {*self.saved.replicas} != {*self.assigned.replicas}:
            return
        topic = replace(self.topic, partitions=(self.saved,))
        self.catalog = Catalog("c", [topic], brokers=self.catalog.brokers.values())
        self.alive.clear()
        self.fetched = dict.fromkeys(BROKERS, (-1, 0, 0))
        for each in BROKERS:
            for delta in without_in_sync_sets(self.catalog, {(TOPIC, 0): self._latest_epoch(each)}):
                self.catalog.apply(delta)

    def _hand_over(self, broker: int) -> None:
        if broker in self.alive:
            self._apply(lambda: election(self.catalog, TOPIC, least, broker))

    def _apply(self, plan: Callable[[], Delta]) -> None:
        with suppress(NothingToChange):
            self.catalog.apply(plan())


EVENTS = (
    "start", "register", "end", "lose_disk", "write", "write", "fetch", "fetch", "acknowledge", "join", "lag",
    "need", "settle", "settle", "hand_over", "fail", "keep_only", "keep_others", "keep_all", "cancel",
    "save", "restore",
)  # fmt: skip


def played(*names: str) -> list[tuple[str, int]]:
    return [(what, int(broker or 0)) for what, _, broker in (name.partition(" ") for name in names)]


GAINED = played("keep_only 1", "settle", "keep_all 1", "settle")
"""What is added is in sync before it counts."""
REMOVED_AND_ADDED = played(
    "write", "fetch 2", "fetch 3", "acknowledge", "keep_only 1", "settle", "keep_all 1", "join 2", "end 1"
)
"""What a leader knew of a replica does not count after its folder was removed."""
TOO_FEW = played("lag 2", "lag 3", "keep_others 3", "settle")
"""Nothing is taken away while fewer would be in sync than have to be."""


RESTORED = played(
    "write", "write", "save", "end 1", "settle", "write", "fetch 3", "acknowledge", "restore",
    "start 1", "register 1", "settle", "start 2", "register 2", "settle", "start 3", "register 3", "settle",
)  # fmt: skip
"""An older catalog names a replica in sync that had left since, and that has the log with most records."""


@example(2, RESTORED)
@example(1, GAINED)
@example(2, TOO_FEW)
@example(1, REMOVED_AND_ADDED)
@given(
    st.sampled_from((1, 2, 3)),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(BROKERS)), max_size=80),
)
def test_who_leads_has_what_was_acknowledged(least_members: int, events: list[tuple[str, int]]) -> None:
    world = World(least_members)
    for what, broker in [*events, ("settle", 0)]:
        world.happens(what, broker)
        leader = world.assigned.leader_id
        if leader != NO_LEADER:
            assert world.logs[leader][: len(world.acknowledged)] == world.acknowledged, what


def test_a_replica_whose_log_failed_stays_eligible_and_leads_when_its_broker_is_started_again() -> None:
    world = World(3)
    leaders = []
    for what, broker in (("fail", 1), ("end", 2), ("end", 3), ("start", 1), ("register", 1)):
        world.happens(what, broker)
        world.happens("settle", 0)
        leaders.append(world.assigned.leader_id)
    assert leaders == [2, 3, NO_LEADER, NO_LEADER, 1]


def test_who_is_eligible_leads_though_fewer_have_to_be_in_sync_since_all_that_were_ended() -> None:
    world = World(2)
    for what, broker in played("end 3", "settle", "end 2", "settle", "end 1", "settle", "need 1"):
        world.happens(what, broker)
    assert (world.assigned.isr, world.assigned.elr) == ((1,), (2,))
    for what, broker in played("start 2", "register 2", "settle"):
        world.happens(what, broker)
    assert (world.assigned.leader_id, world.assigned.isr, world.assigned.elr) == (2, (2,), ())


def test_two_controllers_at_once_change_what_one_changes() -> None:
    catalog = Catalog("c", brokers=[BrokerRegistration(each, (), UUID(int=each)) for each in BROKERS])
    catalog.apply(TopicCreated(Topic("t", TOPIC, (PartitionAssignment(3, 4, (3,), (3,)),))))
    gone = catalog.brokers[3]
    for plan in (lambda image: fencing(image, gone), lambda image: election(image, TOPIC, least)):
        catalog.apply(plan(catalog))
        with pytest.raises(NothingToChange):
            plan(catalog)
    topic = catalog.topic_by_id(TOPIC)
    assert topic is not None
    assert topic.partitions == (PartitionAssignment(NO_LEADER, 5, (3,), (3,), partition_epoch=1),)


def test_a_leader_stays_while_it_lives_though_an_earlier_replica_is_back() -> None:
    assigned = PartitionAssignment(1, 0, (1, 2), (1, 2))
    moved = elected(assigned, {2}, 1)
    assert moved == PartitionAssignment(2, 1, (1, 2), (2,), partition_epoch=1)
    assert elected(moved, {1, 2}, 1) is moved


def test_brokers_that_end_together_stay_in_sync_together() -> None:
    assigned = PartitionAssignment(1, 0, (1, 2, 3), (1, 2))
    ended = elected(assigned, {3}, 1)
    assert ended == PartitionAssignment(NO_LEADER, 1, (1, 2, 3), (1, 2), partition_epoch=1)
    assert elected(ended, {2, 3}, 1) == PartitionAssignment(2, 2, (1, 2, 3), (2,), partition_epoch=2)


def test_only_what_nobody_may_lead_can_be_led_uncleanly() -> None:
    led = PartitionAssignment(1, 0, (1, 2), (1,))
    assert elected_uncleanly(led, {1, 2}, {}) is None
    left = elected(led, {2}, 1)
    assert elected_uncleanly(left, set(), {}) is None
    assert elected_uncleanly(left, {2}, {}) == PartitionAssignment(2, 2, (1, 2), (2,), partition_epoch=2)


def test_a_start_that_has_not_registered_is_not_the_controller_and_is_not_fenced() -> None:
    catalog = Catalog("c", brokers=[BrokerRegistration(each, (), UUID(int=each)) for each in BROKERS])
    sessions = {BrokerSession(1, UUID(int=7)), *(BrokerSession(each, UUID(int=each)) for each in (2, 3))}
    assert controller_of(catalog, sessions) == 2
    assert without_session(catalog, sessions) == []
