"""The controller's rules lead where a model says that looks only at which brokers live."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.cluster.catalog import (
    NO_LEADER,
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    Delta,
    NothingToChange,
    PartitionAssignment,
    PartitionsAdded,
    Topic,
    TopicCreated,
)
from tidelog.broker.cluster.controller import (
    controller_of,
    elected,
    election,
    fencing,
    live_brokers,
    needs_election,
    without_session,
)
from tidelog.broker.cluster.store import BrokerSession

BROKERS = (1, 2, 3)
TOPIC = UUID(int=1)
Event = tuple[str, int]


class Model:
    """Brokers with a session, brokers that registered since their last start, and the leader of each
    partition with the number of its changes."""

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.live: set[int] = set()
        self.replicas: list[tuple[int, ...]] = []
        self.leaders: list[int] = []
        self.epochs: list[int] = []

    def happens(self, what: str, broker: int) -> None:
        if what == "start":
            self.alive.add(broker)
            self.live.discard(broker)
        elif what == "end":
            self.alive.discard(broker)
        elif what == "register" and broker in self.alive:
            self.live.add(broker)
        elif what == "grow":
            others = (broker, broker % 3 + 1)[: 1 + len(self.replicas) % 2]
            self.replicas.append(others)
            self.leaders.append(broker)
            self.epochs.append(0)

    def settle(self) -> None:
        """What a controller does, if there is one."""
        if not self.live & self.alive:
            return
        self.live &= self.alive
        for index, leader in enumerate(self.leaders):
            if leader not in self.live:
                now = next((each for each in self.replicas[index] if each in self.live), NO_LEADER)
                self.epochs[index] += now != leader
                self.leaders[index] = now


def deltas(catalog: Catalog, model: Model, starts: dict[int, int]) -> Iterator[Delta]:
    """What the controller commits, one after the other, each planned on the image with all before it."""
    sessions = {BrokerSession(each, UUID(int=starts[each])) for each in model.alive}
    if controller_of(catalog, sessions) == NO_LEADER:
        return
    for broker in without_session(catalog, sessions):
        yield fencing(catalog, broker)
    for topic in list(catalog.topics()):
        if needs_election(topic, live_brokers(catalog)):
            yield election(catalog, topic.topic_id)


@given(
    st.lists(
        st.tuples(st.sampled_from(("start", "register", "end", "grow", "settle")), st.sampled_from(BROKERS)),
        max_size=60,
    )
)
def test_brokers_are_fenced_and_partitions_led_as_a_model_says(events: list[Event]) -> None:
    catalog, model = Catalog("c"), Model()
    catalog.apply(TopicCreated(Topic("t", TOPIC, ())))
    starts = dict.fromkeys(BROKERS, 0)
    for what, node_id in [*events, ("settle", 0)]:
        if what == "start":
            starts[node_id] += 1
        if what == "start" or (what == "register" and node_id in model.alive):
            incarnation, is_fenced = UUID(int=starts[node_id]), what == "start"
            catalog.apply(BrokerRegistered(BrokerRegistration(node_id, (), incarnation, is_fenced=is_fenced)))
        model.happens(what, node_id)
        if what == "grow":
            replicas = model.replicas[-1]
            catalog.apply(PartitionsAdded(TOPIC, (PartitionAssignment(node_id, 0, replicas, replicas),)))
        if what != "settle":
            continue
        for delta in deltas(catalog, model, starts):
            catalog.apply(delta)
        model.settle()
        topic = catalog.topic_by_id(TOPIC)
        assert topic is not None
        assert live_brokers(catalog) == model.live
        assert [each.leader_id for each in topic.partitions] == model.leaders
        assert [each.leader_epoch for each in topic.partitions] == model.epochs
        assert [each.partition_epoch for each in topic.partitions] == model.epochs
        if model.live:  # Nothing is left to do, for whoever takes itself for the controller.
            assert list(deltas(catalog, model, starts)) == []


def test_two_controllers_at_once_change_what_one_changes() -> None:
    catalog = Catalog("c", brokers=[BrokerRegistration(each, (), UUID(int=each)) for each in BROKERS])
    catalog.apply(TopicCreated(Topic("t", TOPIC, (PartitionAssignment(3, 4, (3,), (3,)),))))
    gone = catalog.brokers[3]
    for plan in (lambda image: fencing(image, gone), lambda image: election(image, TOPIC)):
        catalog.apply(plan(catalog))
        with pytest.raises(NothingToChange):
            plan(catalog)
    topic = catalog.topic_by_id(TOPIC)
    assert topic is not None
    assert topic.partitions == (PartitionAssignment(NO_LEADER, 5, (3,), (3,), partition_epoch=1),)


def test_a_leader_stays_while_it_lives_though_an_earlier_replica_is_back() -> None:
    assigned = PartitionAssignment(1, 0, (1, 2), (1, 2))
    moved = elected(assigned, {2})
    assert moved == PartitionAssignment(2, 1, (1, 2), (1, 2), partition_epoch=1)
    assert elected(moved, {1, 2}) is moved


def test_a_start_that_has_not_registered_is_not_the_controller_and_is_not_fenced() -> None:
    catalog = Catalog("c", brokers=[BrokerRegistration(each, (), UUID(int=each)) for each in BROKERS])
    sessions = {BrokerSession(1, UUID(int=7)), *(BrokerSession(each, UUID(int=each)) for each in (2, 3))}
    assert controller_of(catalog, sessions) == 2
    assert without_session(catalog, sessions) == []
