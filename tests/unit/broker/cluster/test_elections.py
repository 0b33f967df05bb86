"""Who is in sync, who leads, where partitions are, who may stop or leave: `elections.txt`."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from tests.scripts import Case, cases
from tidelog.broker.cluster import placement
from tidelog.broker.cluster.catalog import (
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    Delta,
    NothingToChange,
    PartitionAssignment,
    PartitionsChanged,
    Topic,
)
from tidelog.broker.cluster.controlled_shutdown import awaited_by
from tidelog.broker.cluster.controller import (
    elected_as_preferred,
    elected_uncleanly,
    election,
    election_as_asked,
    led_by_others,
    without_disk,
)
from tidelog.broker.cluster.in_sync import InSyncWanted, in_sync_change
from tidelog.broker.cluster.registration import replica_epoch_of, unregistering
from tidelog.protocol.steps import finish

TOPIC_ID = UUID(int=7)


class Script:
    """Brokers 1, 2 and 3, and a topic. Lists of brokers are like `1,2`; `least` is min.insync.replicas."""

    def __init__(self) -> None:
        self.min_in_sync = 2
        brokers = [BrokerRegistration(each, (), UUID(int=(1 << 127) + each)) for each in (1, 2, 3)]
        self.catalog = Catalog("c", brokers=brokers)
        self.placed: tuple[PartitionAssignment, ...] = ()

    def least(self, number: str) -> None:
        self.min_in_sync = int(number)

    def partition(self, *words: str) -> None:
        """One more, led by the first of `isr=` in epoch 4; more words: `leader=`, `replicas=`, `elr=`,
        `adding=`, `removing=`, `times=`."""
        options = dict(word.split("=") for word in words)
        lists = {name: _numbers(options[name]) for name in ("elr", "adding", "removing") if name in options}
        isr, replicas = _numbers(options["isr"]), _numbers(options.get("replicas", "1,2,3"))
        leader = int(options.get("leader", isr[0] if isr else -1))
        made = PartitionAssignment(leader, 4, replicas, isr, 9)._replace(**lists)
        made_before = [] if not len(self.catalog) else [*self._topic.partitions]
        topic = Topic("t", TOPIC_ID, (*made_before, *[made] * int(options.get("times", 1))))
        self.catalog = Catalog("c", [topic], brokers=self.catalog.brokers.values())

    @property
    def _topic(self) -> Topic:
        (topic,) = self.catalog.topics()
        return topic

    def _changed(self, plan: Callable[[], PartitionsChanged]) -> str:
        try:
            delta = plan()
        except NothingToChange:
            return "nothing to change"
        self.catalog.apply(delta)
        return "\n".join(_shown(index, each) for index, each in sorted(delta.partitions.items()))

    def _broker(self, node_id: str, **changes: object) -> Delta:
        return BrokerRegistered(self.catalog.brokers[int(node_id)]._replace(**changes))  # type: ignore[arg-type]

    def _elected(self, leaving: int = -1) -> str:
        return self._changed(lambda: election(self.catalog, TOPIC_ID, lambda _: self.min_in_sync, leaving))

    def fence(self, node_id: str) -> str:
        """The broker has no session any more; what the controller then elects."""
        self.catalog.apply(self._broker(node_id, is_fenced=True))
        return self._elected()

    def unfence(self, node_id: str) -> str:
        self.catalog.apply(self._broker(node_id, is_fenced=False))
        return self._elected()

    def log_fails(self, node_id: str) -> str:
        """That of partition 0, on one broker."""
        self.catalog.apply(self._broker(node_id, offline=((TOPIC_ID, 0),)))
        return self._elected()

    def gives_up(self, node_id: str) -> str:
        return self._elected(int(node_id))

    def disk_is_lost(self, node_id: str) -> str:
        return self._changed(
            lambda: without_disk(self.catalog, TOPIC_ID, int(node_id), lambda _: self.min_in_sync)
        )

    def elect_preferred(self) -> str:
        return self._changed(lambda: election_as_asked(self.catalog, TOPIC_ID, [0], elected_as_preferred))

    def elect_uncleanly(self, *ends: str) -> str:
        """`BROKER=EPOCH:OFFSET` of those that answered where their logs end."""
        known = {
            int(name): (int(epoch), int(offset))
            for name, _, end in (each.partition("=") for each in ends)
            for epoch, offset in [end.split(":")]
        }
        return self._changed(
            lambda: election_as_asked(
                self.catalog, TOPIC_ID, [0], lambda now, live: elected_uncleanly(now, live, known)
            )
        )

    def in_sync(self, leader: str, epoch: str, *members: str) -> str:
        """A leader's wish for partition 0: `BROKER` stays, `BROKER+` joins as it fetches, `BROKER+old` as
        its process before."""
        stays = tuple(int(each) for each in members if "+" not in each)
        joins = {
            int(name): replica_epoch_of(self.catalog.brokers[int(name)].incarnation) + (how == "old")
            for name, plus, how in (each.partition("+") for each in members)
            if plus
        }
        wanted = InSyncWanted(int(epoch), joins, tuple(set(self._topic.partitions[0].isr) - {*stays}))
        return self._changed(
            lambda: in_sync_change(self.catalog, int(leader), TOPIC_ID, {0: wanted}, self.min_in_sync)
        )

    def led_by_others(self, percent: str) -> str:
        """The partitions that go back to their first replica."""
        found = led_by_others(self.catalog, int(percent)).get(TOPIC_ID, [])
        return " ".join(map(str, found)) or "none"

    def stopping(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self.catalog.apply(self._broker(node_id, is_stopping=True))

    def stop_waits(self, node_id: str, *before: str) -> str:
        """What a broker that stops waits for; `before` began to stop earlier."""
        waits = awaited_by(
            self.catalog, int(node_id), frozenset(map(int, before)), lambda _: self.min_in_sync
        )
        return "\n".join(f"{each.partition}: for {_text(each.catching_up)}" for each in waits) or "nothing"

    def forget(self, node_id: str) -> str:
        """An operator removes a broker."""
        return type(unregistering(self.catalog, int(node_id))).__name__

    def place(self, count: str, brokers: str, factor: str = "1", *racks: str) -> str:
        """Replicas of new partitions; `BROKER=RACK`."""
        named = {int(name): rack for name, rack in (each.split("=") for each in racks)}
        self.placed = placement.assign(int(count), list(_numbers(brokers)), int(factor), racks=named)
        return " | ".join(_text(each.replicas) for each in self.placed)

    def place_manually(self, brokers: str, *partitions: str) -> str:
        """`PARTITION=BROKERS`."""
        wanted = {
            int(index): list(_numbers(text)) for index, text in (each.split("=") for each in partitions)
        }
        found = finish(placement.assign_manually(wanted, list(_numbers(brokers))))
        return " | ".join(_text(each.replicas) for each in found)

    def grow(self, total: str, *manually: str) -> str:
        """To so many partitions, on broker 1; the replicas of the new ones."""
        wanted = [list(_numbers(each)) for each in manually] or None
        delta = finish(placement.plan_partitions(self._topic, int(total), wanted, [1], {}))
        return " | ".join(_text(each.replicas) for each in delta.partitions)

    def live(self, brokers: str, stopping: str = "") -> str:
        """What was placed, when only these brokers live, and these of them stop."""
        found = placement.led_by_live(
            self.placed, frozenset(_numbers(brokers)), frozenset(_numbers(stopping))
        )
        return "\n".join(_shown(index, each) for index, each in enumerate(found))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, text.split(","))))


def _text(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers)) or "none"


def _shown(index: int, now: PartitionAssignment) -> str:
    leader = "no leader" if now.leader_id < 0 else f"leader {now.leader_id}"
    text = f"{index}: {leader}, epochs {now.leader_epoch} and {now.partition_epoch}, isr {_text(now.isr)}"
    text += f", elr {_text(now.elr)}" * bool(now.elr)
    return text + f", replicas {_text(now.replicas)}" * (now.replicas != (1, 2, 3))


@cases(Path(__file__).parent / "elections.txt")
async def test_elections(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
