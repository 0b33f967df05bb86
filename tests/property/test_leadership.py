"""What a leader calls committed is durable at all members that may lead, whoever joins, lags or ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.broker.cluster.catalog import (
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    Delta,
    NothingToChange,
    PartitionAssignment,
    Topic,
)
from tidelog.broker.cluster.controller import election
from tidelog.broker.cluster.in_sync import InSyncWanted, in_sync_change
from tidelog.broker.cluster.registration import replica_epoch_of
from tidelog.broker.replicas.leadership import Leadership
from tidelog.broker.replicas.progress import Progress
from tidelog.broker.storage.open_transactions import OpenTransactions

TOPIC = UUID(int=1)
LEADER, FOLLOWERS = 1, (2, 3)


class World:
    """What the store and the disks hold. The leader knows of it by fetches, and by what it hears."""

    def __init__(self, least: int, in_sync: tuple[int, ...]) -> None:
        assigned = PartitionAssignment(LEADER, 0, (LEADER, *FOLLOWERS), (LEADER, *in_sync))
        brokers = [BrokerRegistration(each, (), UUID(int=each)) for each in assigned.replicas]
        self.catalog = Catalog("c", [Topic("t", TOPIC, (assigned,))], brokers=brokers)
        self.stored_least = self.known_least = least
        self.durable = dict.fromkeys(assigned.replicas, 0)
        self.written = self.committed = 0
        self.wanted: list[InSyncWanted] = []
        """Changes of the leader that the store may take."""
        self.joining: set[int] = set()
        """Who joins by changes of which the leader does not know what became of them."""
        self.leadership = Leadership(assigned, 0, 0)
        self.leadership.is_noted = True
        self.progress = Progress(0, OpenTransactions(), 0)
        self._tell()

    @property
    def assigned(self) -> PartitionAssignment:
        topic = self.catalog.topic_by_id(TOPIC)
        assert topic is not None
        return topic.partitions[0]

    def happens(self, what: str, broker: int) -> None:
        getattr(self, f"_{what}")(broker)
        committed = self.progress.committed.offset
        if committed != self.committed:
            assert committed > self.committed
            assert sum(end >= committed for end in self.durable.values()) >= self.known_least
        self.committed = committed
        for member in (LEADER, *self.assigned.isr, *self.assigned.elr):
            assert self.durable[member] >= committed, (what, member, self.assigned)

    def _tell(self) -> None:
        self.leadership.tell(self.progress, self.leadership.needed(self.known_least))

    def _store(self, plan: Callable[[], Delta]) -> None:
        with suppress(NothingToChange):
            self.catalog.apply(plan())

    def _register(self, broker: BrokerRegistration) -> None:
        self.catalog.apply(BrokerRegistered(broker))
        self._settle(0)

    def _write(self, _: int) -> None:
        self.written += 1

    def _flush(self, _: int) -> None:
        self.durable[LEADER] = self.written
        self.progress.flushed_to(self.written)

    def _fetch(self, broker: int) -> None:
        """The leader learns what the follower has; then that has one more record of the leader's."""
        epoch, offset = replica_epoch_of(self.catalog.brokers[broker].incarnation), self.durable[broker]
        self.leadership.fetched(broker, epoch, offset, 0, self.written, 0, 0)
        self.progress.follower_flushed_to(broker, offset)
        self.durable[broker] = min(offset + 1, self.written)

    def _join(self, _: int) -> None:
        joining = self.leadership.begin_joining(self.progress.high_watermark)
        self._tell()
        if joining:
            self.joining |= joining.keys()
            self.wanted.append(self.leadership.wanted(joining))

    def _lag(self, broker: int) -> None:
        self.wanted.append(self.leadership.wanted({}, {broker}))

    def _commit(self, _: int) -> None:
        if self.wanted:
            change = {0: self.wanted.pop(0)}
            self._store(lambda: in_sync_change(self.catalog, LEADER, TOPIC, change, self.known_least))

    def _hear(self, _: int) -> None:
        """The leader learns what the catalog has, and that its other changes will never be stored."""
        self.leadership.assigned, self.known_least = self.assigned, self.stored_least
        self.leadership.end_joining(self.joining)
        self.joining.clear()
        self.wanted.clear()
        self._tell()

    def _fence(self, broker: int) -> None:
        self._register(self.catalog.brokers[broker]._replace(is_fenced=True))

    def _start(self, broker: int) -> None:
        known = self.catalog.brokers[broker]
        incarnation = UUID(int=known.incarnation.int + len(FOLLOWERS) + 1)
        self._register(known._replace(incarnation=incarnation, is_fenced=False))

    def _need(self, count: int) -> None:
        self.stored_least = count

    def _settle(self, _: int) -> None:
        """As the controller does, sooner or later."""
        self._store(lambda: election(self.catalog, TOPIC, lambda _: self.stored_least))


EVENTS = (
    "write", "write", "flush", "flush", "fetch", "fetch", "fetch", "join", "join", "lag", "commit", "commit",
    "hear", "fence", "start", "need", "settle",
)  # fmt: skip


def played(*names: str) -> list[tuple[str, int]]:
    return [(what, int(broker or 2)) for what, _, broker in (name.partition(" ") for name in names)]


SETTLED = played(
    "hear", "flush", "start 2", "start 3", *["fetch 2", "fetch 3"] * 40, "join", "commit", "settle", "hear"
)
JOINS_UNHEARD = played("fetch 2", "join", "commit", "write", "flush")
"""Who joins counts before the leader hears of it."""
JOINS_LATE = played("write", "write", "flush", "fetch 2", "join", "commit")
"""Only who has all that is committed joins."""
TOO_FEW = played("write", "flush")
"""Nothing is committed by fewer than have to be in sync."""
LOWERED = played("fence 2", "fence 3", "hear", "write", "flush", "need 1", "hear")
"""Nothing is committed while another one is eligible, though fewer have to be in sync by now."""


@example(1, (), JOINS_UNHEARD)
@example(1, (), JOINS_LATE)
@example(2, (), TOO_FEW)
@example(2, FOLLOWERS, LOWERED)
@given(
    st.integers(1, 3),
    st.sampled_from(((), (2,), FOLLOWERS)),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(FOLLOWERS)), max_size=30),
)
def test_who_may_lead_has_what_is_committed_and_all_is_once_all_hear_of_each_other(
    least: int, in_sync: tuple[int, ...], events: list[tuple[str, int]]
) -> None:
    world = World(least, in_sync)
    for what, broker in (*events, *SETTLED):
        world.happens(what, broker)
    assert world.committed == world.written
    assert {*world.assigned.isr} == {LEADER, *FOLLOWERS}
