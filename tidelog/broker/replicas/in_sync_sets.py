"""A broker changes the in-sync sets of the partitions that it leads: which followers join, and which have to
leave.

Owns when. A follower joins as soon as its fetch shows that it may; every half `replica.lag.time.max.ms` it
looks for followers that have to leave, and gives up what it leads with a disk that is slower than those of
others in sync. The changes that are due are committed together (`Cluster.change`).

Invariants: a change is planned on the newest image, for one epoch of the leader; a follower that joins counts
as a member until the store shows that it does not have the commit; one that leaves counts until the catalog
shows it.

Event loop only. Source: Kafka's ReplicaManager.maybeShrinkIsr and Partition.submitAlterPartition.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from tidelog.broker.cluster.catalog import (
    BrokerConfigsChanged,
    Change,
    NothingToChange,
    PartitionsChanged,
    Topic,
    TopicConfigsChanged,
)
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.in_sync import InSyncWanted, in_sync_change
from tidelog.broker.cluster.store import StoreConflict, StoreError
from tidelog.broker.observability.metrics import InSyncCounts
from tidelog.broker.replicas.leadership import Leadership
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.tasks import Tasks, kept

_RETRY_SECONDS: Final = 0.5
_LOOKED_AT_ONCE: Final = 500
_SLOW_FLUSH: Final = 0.1
"""Of `replica.lag.time.max.ms`."""
_ADVICE = "check that the cluster's store answers; until then no replica joins or leaves an in-sync set"
logger = structlog.get_logger(__name__)


class _Wanted(NamedTuple):
    """What is to change of a replica, in one epoch."""

    replica: Replica
    leadership: Leadership
    change: InSyncWanted


class InSyncSets:
    """Changes the in-sync sets of the partitions that one broker leads."""

    def __init__(self, cluster: Cluster, partitions: Partitions, lag_ms: Callable[[], int]) -> None:
        """`lag_ms` is `replica.lag.time.max.ms`."""
        self._cluster = cluster
        self._partitions = partitions
        self._lag_ms = lag_ms
        self._expands = self._shrinks = 0
        self._due: dict[Replica, bool] = {}
        """Whether a follower of it may join; else only who is eligible is to be changed."""
        self._is_due = asyncio.Event()
        self._is_troubled = False
        self._in_doubt: list[Callable[[], None]] = []
        """What ends the joining of changes that failed, once it is known whether they are stored."""
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin to look after the sets."""
        self._tasks.begin(kept(self._run))

    async def stop(self) -> None:
        """Change nothing more; a change under way may still be stored."""
        await self._tasks.cancel()

    def counts(self) -> InSyncCounts:
        """As they are now; looks at every partition."""
        led = [replica for replica in self._partitions.replicas.values() if replica.stopped is None]
        followed = [(replica, replica.leadership.assigned) for replica in led if replica.leadership]
        return InSyncCounts(
            len(led),
            sum(
                len(assigned.isr) < len(assigned.replicas) - len(assigned.adding) for _, assigned in followed
            ),
            sum(len(assigned.isr) < replica.least_in_sync for replica, assigned in followed),
            sum(bool(assigned.adding or assigned.removing) for _, assigned in followed),
            self._shrinks,
            self._expands,
        )

    def join(self, replica: Replica) -> None:
        """A follower of this replica has fetched, and may join."""
        self._due[replica] = True
        self._is_due.set()

    def follow(self, change: Change) -> None:
        """A topic, or all topics, changed in the catalog."""
        if isinstance(change.delta, PartitionsChanged | TopicConfigsChanged | BrokerConfigsChanged):
            for replica in self._of(change.after):
                leadership = replica.leadership
                if leadership is not None and leadership.assigned.elr:
                    # This adds no replica: one that was late a moment ago may have all that is committed.
                    self._due.setdefault(replica, False)
                    self._is_due.set()

    def _of(self, topic: Topic | None) -> Iterable[Replica]:
        replicas = self._partitions.replicas
        if topic is None:
            return replicas.values()
        keys = ((topic.name, index) for index in range(len(topic.partitions)))
        return (replicas[key] for key in keys if key in replicas)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        look_at = loop.time() + self._lag_ms() / 2000
        while True:
            try:
                async with asyncio.timeout_at(look_at):
                    await self._is_due.wait()
            except TimeoutError:
                pass
            self._is_due.clear()
            if not await self._settle():
                self._is_due.set()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            is_stored = await self._change(self._joining())
            if loop.time() >= look_at:
                is_stored &= await self._change(await self._leaving())
                look_at = loop.time() + self._lag_ms() / 2000
            if not is_stored:
                await asyncio.sleep(_RETRY_SECONDS)
                look_at = loop.time()

    async def _settle(self) -> bool:
        """Whether it is known of each change that failed what became of it. No replica joins meanwhile."""
        if self._in_doubt:
            try:
                await self._cluster.settle()
            except (StoreError, OSError):
                return False
            for end_joining in self._in_doubt:
                end_joining()
            self._in_doubt.clear()
        return True

    def _joining(self) -> list[_Wanted]:
        due, self._due = self._due, {}
        found = []
        for replica, may_join in due.items():
            if (leadership := replica.leadership) is not None:
                joining = replica.begin_joining() if may_join else {}
                if joining or leadership.has_others_eligible(replica.least_in_sync):
                    found.append(_Wanted(replica, leadership, leadership.wanted(joining)))
        return found

    async def _leaving(self) -> list[_Wanted]:
        now_ms, lag_ms = asyncio.get_running_loop().time() * 1000, self._lag_ms()
        found = []
        for number, replica in enumerate(list(self._partitions.replicas.values())):
            if number % _LOOKED_AT_ONCE == _LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
            if (leadership := replica.leadership) is not None:
                if self._is_slow(replica, leadership, lag_ms):
                    self._partitions.when_troubled(replica)
                    continue
                late = leadership.late(replica.log.end_offset, now_ms, lag_ms)
                if late or leadership.has_others_eligible(replica.least_in_sync):
                    found.append(_Wanted(replica, leadership, leadership.wanted({}, late)))
        return found

    @staticmethod
    def _is_slow(replica: Replica, leadership: Leadership, lag_ms: int) -> bool:
        """Whether this broker's disk is slow, and not those of others that may lead."""
        seconds = replica.slowest_flush_seconds()
        is_slow = seconds * 1000 > lag_ms * _SLOW_FLUSH and leadership.is_outrun(
            replica.log.flushed_end_offset, replica.least_in_sync
        )
        if is_slow:
            what = {
                "topic": replica.topic,
                "partition": replica.partition,
                "flush_seconds": round(seconds, 1),
            }
            logger.warning("slow_leader_gives_up", **what, advice="check the disk that holds the data folder")
        return is_slow

    async def _change(self, wanted: Iterable[_Wanted]) -> bool:
        """Whether the store answered."""
        by_topic: dict[UUID, list[_Wanted]] = defaultdict(list)
        for each in wanted:
            by_topic[each.replica.topic_id].append(each)
        outcomes = await asyncio.gather(*map(self._change_topic, by_topic, by_topic.values()))
        problem = next((outcome for outcome in outcomes if outcome is not None), None)
        if problem is not None and not self._is_troubled:
            is_known = isinstance(problem, StoreError | StoreConflict | OSError)
            logger.warning(
                "in_sync_sets_not_changed",
                error=str(problem) if is_known else repr(problem),
                advice=_ADVICE,
                exc_info=None if is_known else problem,
            )
        self._is_troubled = problem is not None
        return problem is None

    async def _change_topic(self, topic_id: UUID, wanted: list[_Wanted]) -> Exception | None:
        """Why it is not known whether the change is stored, if it is not."""
        changes = {each.replica.partition: each.change for each in wanted}
        least = wanted[0].replica.log.config.min_insync_replicas
        plan = partial(
            in_sync_change, leader_id=self._partitions.node_id, topic_id=topic_id, wanted=changes, least=least
        )

        def end_joining() -> None:
            topic = self._cluster.catalog.topic_by_id(topic_id)
            if topic is None:
                return
            for each in wanted:
                # Not from the replica, which may get this change later.
                assigned = topic.partitions[each.replica.partition]
                each.replica.end_joining(each.leadership, each.change.joining, assigned)

        try:
            delta = await self._cluster.change(plan, end_joining)
        except NothingToChange:
            return None
        except Exception as error:
            self._in_doubt.append(end_joining)
            return error
        end_joining()
        for each in wanted:
            if (assigned := delta.partitions.get(each.replica.partition)) is not None:
                self._report(each, assigned.isr)
        return None

    def _report(self, wanted: _Wanted, isr: tuple[int, ...]) -> None:
        replica, change = wanted.replica, wanted.change
        joined = [each for each in change.joining if each in isr]
        left = [each for each in change.leaving if each not in isr]
        self._expands += bool(joined)
        self._shrinks += bool(left)
        logger.info(
            "in_sync_set_changed",
            topic=replica.topic,
            partition=replica.partition,
            joined=joined,
            left=left,
            in_sync=list(isr),
        )
