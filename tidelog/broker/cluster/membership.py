"""A broker among others: its session, its registration, and its part as controller.

Owns the order. A start begins the session, registers the broker as fenced, and ends the leadership of its
partitions: so each start leads in its own epochs. When it can serve, it is registered as live and its
partitions get their leader. At the end it is fenced first. A broker that finds itself fenced, because its
session ended meanwhile, registers again once it has a session.

Invariants:
- whatever is changed here is planned on the newest image (`controller`, `registration`);
- the sessions are known `SETTLE_SECONDS` after a watch began. A store that was itself started again gives
  the brokers that time to come back;
- `is_cut_off` asks this machine's monotonic clock, which runs from before the last sign of life, and whether
  the image shows that others have fenced this broker. After a session began again, only an image that is not
  older than that session shows it.

Event loop only. Not made for a broker that has its catalog in its own data folder.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID, uuid4

import structlog

from tidelog.broker.cluster.catalog import (
    NO_LEADER,
    BrokerConfigsChanged,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    Catalog,
    Change,
    NothingToChange,
    PartitionAssignment,
    PartitionsAdded,
    PartitionsChanged,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
)
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.controlled_shutdown import awaited_by, stopping_brokers
from tidelog.broker.cluster.controller import (
    Election,
    LeaderRebalance,
    LeastInSync,
    LogEnd,
    able_to_lead,
    controller_of,
    elected_as_preferred,
    elected_uncleanly,
    election,
    election_as_asked,
    eligible_by_logs,
    fencing,
    is_unknown,
    led_by_others,
    live_brokers,
    needs_election,
    offline_replicas,
    without_disk,
    without_session,
)
from tidelog.broker.cluster.exit_watcher import ExitWatcher
from tidelog.broker.cluster.registration import accepts_loss, is_other_folder, registering
from tidelog.broker.cluster.store import BrokerSession, SessionHeld, SharedStore, StoreConflict, StoreError
from tidelog.broker.tasks import Tasks, is_set_within, kept
from tidelog.protocol.errors import ApiError

logger = structlog.get_logger(__name__)
SETTLE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.5
"""How often the own session is looked at."""
_RETRY_SECONDS: Final = 0.5
_ANSWER_SECONDS: Final = 2.0
"""A broker that hangs delays an unclean election for so long."""
_LEAVE_SECONDS: Final = 0.05
"""How often a broker that stops looks at who is in sync."""
MOST_OFFLINE: Final = 1000
"""Replicas of a broker that it reports as offline; of more it gives up only what others have in sync."""
_AT_ONCE: Final = 100
"""Topics whose leaders are changed in one commit, and partitions whose logs are asked for together."""
_STORE_ERRORS = (StoreError, StoreConflict, OSError)
EndOfLog: TypeAlias = Callable[[int, str, int, int], Awaitable[LogEnd]]
"""Broker id, topic, partition, the epoch that the catalog has of it -> where the log ends there."""


class ClusterCounts(NamedTuple):
    """What a broker sees of its cluster."""

    is_controller: bool
    active_brokers: int
    fenced_brokers: int
    partitions: int
    offline_partitions: int


class Membership:
    """Keeps one broker in the cluster from its start to its end, and does its work as controller."""

    def __init__(
        self,
        cluster: Cluster,
        store: SharedStore,
        broker: BrokerRegistration,
        *,
        session_timeout_ms: int,
        least_in_sync: LeastInSync,
        until_refused: Callable[[int, bool], Awaitable[None]] | None = None,
        end_of_log: EndOfLog | None = None,
        leader_rebalance: LeaderRebalance | None = None,
    ) -> None:
        """`broker` gets its incarnation here, and its directory id with `register`. `until_refused` returns
        when the process of a broker has ended; it raises ApiError. `end_of_log` asks a broker where the log
        of a partition without a leader ends; it raises ApiError. Without `leader_rebalance` a broker that is
        back leads only partitions that no other broker may lead."""
        self._end_of_log = end_of_log
        self._least_in_sync = least_in_sync
        self._leader_rebalance = leader_rebalance
        self._rebalances_at = math.inf
        self._exit_watcher = ExitWatcher(until_refused, self._refused) if until_refused else None
        self._cluster = cluster
        self._store = store
        self._broker = broker._replace(incarnation=uuid4(), is_fenced=True)
        self._session_timeout_ms = session_timeout_ms
        self._sessions: frozenset[BrokerSession] | None = None
        self._was_controller = self._was_cut_off = False
        self._stopping_before: frozenset[int] = frozenset()
        """The brokers that had begun to stop when this one did."""
        self._problem = ""
        """What went wrong last, if it still does."""
        self._topics: dict[UUID, None] = {}
        """Those whose leaders have to be looked at."""
        self._are_all_due = True
        self._is_due = asyncio.Event()
        self._logs_are_due = asyncio.Event()
        self._tasks, self._giving_up = Tasks(), Tasks()
        cluster.follow(self._follow)

    @property
    def incarnation(self) -> UUID:
        """Of this start."""
        return self._broker.incarnation

    @property
    def is_cut_off(self) -> bool:
        """Whether others have fenced this broker, or may, and may make changes that it does not learn of."""
        is_behind = self._cluster.catalog.revision < self._store.session_revision
        return self._may_lack_session or is_behind or self._is_fenced

    @property
    def _is_fenced(self) -> bool:
        known = self._cluster.catalog.brokers.get(self._broker.node_id)
        return known is not None and known.is_fenced and known.incarnation == self.incarnation

    @property
    def _may_lack_session(self) -> bool:
        return time.monotonic() * 1000 >= self._store.session_valid_until_ms

    @property
    def controller_id(self) -> int:
        """The broker that is the controller, as far as this one knows; -1 where none is."""
        if self._sessions is None:
            return min(live_brokers(self._cluster.catalog), default=NO_LEADER)
        return controller_of(self._cluster.catalog, self._sessions)

    def counts(self) -> ClusterCounts:
        """As they are now; looks at every partition."""
        catalog = self._cluster.catalog
        live, partitions, offline = live_brokers(catalog), 0, 0
        for topic in catalog.topics():
            partitions += len(topic.partitions)
            offline += sum(assigned.leader_id == NO_LEADER for assigned in topic.partitions)
        return ClusterCounts(
            self.controller_id == self._broker.node_id,
            len(live),
            len(catalog.brokers) - len(live),
            partitions,
            offline,
        )

    async def begin(self, ended: UUID | None = None) -> None:
        """Begin the session. One of an earlier start is awaited until it has ended, unless that was `ended`,
        whose process has certainly ended.

        Raises SessionHeld, StoreError, OSError.
        """
        session = BrokerSession(self._broker.node_id, self.incarnation)
        deadline = time.monotonic() + 1.5 * self._session_timeout_ms / 1000
        is_told = False
        while True:
            try:
                await self._store.begin_session(session, ended)
                return
            except SessionHeld:
                if time.monotonic() > deadline:
                    raise
            if not is_told:
                is_told = True
                advice = "nothing to do after a kill: the earlier session ends by itself"
                logger.warning("broker_session_awaited", node_id=session.node_id, advice=advice)
            await asyncio.sleep(_RETRY_SECONDS)

    def check(self, directory_id: UUID, incarnations: Collection[UUID], lost: UUID | None) -> None:
        """Raise StoreError if this data folder may not take the place of the broker's last one."""
        self._broker = self._broker._replace(directory_id=directory_id)
        registering(self._cluster.catalog, self._broker, incarnations, lost)

    async def register(self, incarnations: Collection[UUID], lost: UUID | None) -> None:
        """Register this start, and end the leadership of the earlier one.

        The data folder knows this incarnation by now. Raises what `check` raises, and what the store raises.
        """
        if is_other_folder(self._cluster.catalog, self._broker, incarnations):
            node_id, least = self._broker.node_id, self._least_in_sync
            # Otherwise a leader may add the earlier start again, because of its fetches.
            await self._fence(self._cluster.catalog.brokers[node_id])
            topics = list(self._cluster.catalog.topics())
            await self._change_all(
                [
                    partial(without_disk, topic_id=each.topic_id, node_id=node_id, least_in_sync=least)
                    for each in topics
                ]
            )
        if accepts_loss(self._cluster.catalog, self._broker.node_id, lost):
            advice = "nothing to do: records that only the lost data folder had are gone"
            logger.warning("data_folder_loss_accepted", lost_incarnation=str(lost), advice=advice)
        await self._cluster.change(lambda image: registering(image, self._broker, incarnations, lost))
        await self._elect_all()

    async def join(self) -> None:
        """Be live from now on, and do the controller's part when it is this broker's."""
        await self._unfence()
        await self._elect_all()
        self._tasks.begin(kept(self._watch_sessions))
        self._tasks.begin(self._run())
        if self._end_of_log is not None:
            self._tasks.begin(kept(self._elect_by_logs, self._end_of_log))

    async def leave(self) -> None:
        """Be fenced, so that clients learn from others that the partitions have no leader.

        The session ends with the store's. If the store does not answer in time, the others fence this
        broker after its session has ended.
        """
        await self.stop()
        try:
            async with asyncio.timeout(self._session_timeout_ms / 1000):
                await self._fence(self._cluster.catalog.brokers[self._broker.node_id])
                await self._elect_all()
        except (*_STORE_ERRORS, TimeoutError, KeyError) as error:
            advice = "nothing to do: it is fenced when its session has ended"
            logger.warning("broker_not_fenced", error=repr(error), advice=advice)

    async def stop(self) -> None:
        """Do nothing more."""
        if self._exit_watcher is not None:
            await self._exit_watcher.stop()
        await self._tasks.cancel()

    def _follow(self, change: Change) -> None:
        match change.delta:
            case BrokerRegistered() | BrokerUnregistered() | BrokerConfigsChanged():
                self._are_all_due = True
            case TopicCreated() | PartitionsAdded() | PartitionsChanged() | TopicConfigsChanged() if (
                change.after is not None
            ):
                self._topics[change.after.topic_id] = None
                self._set_offline(self._broker.offline)
            case _:
                return
        self._is_due.set()

    async def _watch_sessions(self) -> None:
        while True:
            try:
                async for living in self._store.watch_sessions():
                    if self._sessions is None:
                        await asyncio.sleep(SETTLE_SECONDS)
                    self._sessions = living
                    self._are_all_due = True
                    self._is_due.set()
                return
            except _STORE_ERRORS as error:
                advice = "check that the store answers; until then this broker fences none"
                logger.warning("broker_sessions_not_watched", error=str(error), advice=advice)
            self._sessions = None
            await asyncio.sleep(_RETRY_SECONDS)

    async def _run(self) -> None:
        while True:
            await is_set_within(self._is_due, _LOOK_SECONDS)
            self._is_due.clear()
            self._tell_if_cut_off()
            try:
                await self._do_due()
                self._problem = ""
            except Exception as error:
                self._tell_problem(error)
                self._are_all_due = True
                await asyncio.sleep(_RETRY_SECONDS)
                self._is_due.set()

    def _tell_problem(self, error: Exception) -> None:
        """Once, however often it is tried again."""
        problem, self._problem = self._problem, repr(error)
        if self._problem != problem:
            is_known = isinstance(error, _STORE_ERRORS)
            advice = "check that the store answers; the broker tries again" if is_known else "report this"
            exc_info = None if is_known else error
            logger.warning("membership_not_settled", error=str(error), advice=advice, exc_info=exc_info)

    def _tell_if_cut_off(self) -> None:
        is_cut_off = self.is_cut_off
        if is_cut_off and not self._was_cut_off:
            advice = "check that the cluster's store answers; until then this broker coordinates nothing"
            logger.warning("broker_cut_off", node_id=self._broker.node_id, advice=advice)
        elif self._was_cut_off and not is_cut_off:
            logger.info("broker_not_cut_off_any_more", node_id=self._broker.node_id)
        self._was_cut_off = is_cut_off

    async def _do_due(self) -> None:
        if self._may_lack_session:
            return
        await self._unfence()
        is_controller = self._sessions is not None and self.controller_id == self._broker.node_id
        if is_controller != self._was_controller:
            self._was_controller = self._are_all_due = is_controller
            self._rebalance_later()
            event = "controller_elected" if is_controller else "controller_resigned"
            logger.info(event, node_id=self._broker.node_id, controller_id=self.controller_id)
        if self._exit_watcher is not None:
            self._exit_watcher.watch(self._watched(is_controller))
        topics, are_all_due = list(self._topics), self._are_all_due
        self._topics.clear()
        self._are_all_due = False
        if not is_controller or self._sessions is None:
            return
        for broker in without_session(self._cluster.catalog, self._sessions):
            await self._fence(broker)
        await (self._elect_all() if are_all_due else self._elect(topics))
        if are_all_due:
            self._logs_are_due.set()
        if self._leader_rebalance is not None and time.monotonic() >= self._rebalances_at:
            self._rebalance_later()
            await self._rebalance(self._leader_rebalance.percentage)

    def _rebalance_later(self) -> None:
        if self._leader_rebalance is not None:
            self._rebalances_at = time.monotonic() + self._leader_rebalance.interval_seconds

    async def _rebalance(self, percentage: int) -> None:
        wanted = led_by_others(self._cluster.catalog, percentage)
        await self._change_all(
            [
                partial(election_as_asked, topic_id=each, indexes=indexes, elect=elected_as_preferred)
                for each, indexes in wanted.items()
            ]
        )

    def _watched(self, is_controller: bool) -> Iterator[BrokerRegistration]:
        """The live brokers whose end this one has to notice."""
        for node_id, broker in self._cluster.catalog.brokers.items():
            is_other = node_id != self._broker.node_id and not broker.is_fenced
            if is_other and (is_controller or node_id == self.controller_id):
                yield broker

    async def _refused(self, broker: BrokerRegistration) -> None:
        if not self._may_lack_session:
            with suppress(*_STORE_ERRORS):  # Then its session decides.
                await self._fence(broker, may_have_session=True)

    async def _unfence(self) -> None:
        """Register as live, and as stopping if this broker stops, unless the catalog says so."""
        live = self._broker._replace(is_fenced=False)

        def plan(image: Catalog) -> BrokerRegistered:
            known = image.brokers.get(live.node_id)
            if known is not None and known.incarnation != live.incarnation:
                raise StoreError(
                    f"another broker with node.id {live.node_id} was started meanwhile; stop one of the two"
                )
            if live.is_stopping and not (known and known.is_stopping):
                self._stopping_before = stopping_brokers(image)
            return BrokerRegistered(live)

        if self._cluster.catalog.brokers.get(live.node_id) != live:
            await self._cluster.change(plan)
            if not live.is_stopping:
                logger.info("broker_registered", node_id=live.node_id, incarnation=str(live.incarnation))

    async def _fence(self, broker: BrokerRegistration, *, may_have_session: bool = False) -> None:
        is_other = broker.node_id != self._broker.node_id
        without = broker.node_id if is_other and not may_have_session else None
        try:
            await self._cluster.change(partial(fencing, broker=broker), without_session=without)
        except (NothingToChange, StoreConflict):  # It was started again.
            return
        if is_other:
            logger.warning(
                "broker_fenced",
                node_id=broker.node_id,
                incarnation=str(broker.incarnation),
                advice="start it again: partitions without another replica wait for it",
            )

    async def _elect_all(self) -> None:
        """Elect leaders among the brokers that are live in the catalog."""
        catalog = self._cluster.catalog
        live, offline = live_brokers(catalog), offline_replicas(catalog)
        wanted = []
        for topic in list(catalog.topics()):
            if needs_election(topic, live, offline, self._least_in_sync(topic)):
                wanted.append(topic.topic_id)
            if len(topic.partitions) >= _AT_ONCE:
                await asyncio.sleep(0)
        await self._elect(wanted)

    async def _elect_by_logs(self, end_of_log: EndOfLog) -> None:
        """Elect leaders of the partitions whose in-sync sets are unknown after an older catalog was accepted.
        A broker that is asked may hang, so the controller's other work does not wait for this task."""
        told: set[int] = set()
        while True:
            await self._logs_are_due.wait()
            self._logs_are_due.clear()
            catalog, waiting, missing = self._cluster.catalog, 0, set[int]()
            live, offline = live_brokers(catalog), offline_replicas(catalog)
            ready: list[tuple[Topic, int, PartitionAssignment]] = []
            for topic in catalog.topics():
                for index, assigned in enumerate(topic.partitions):
                    if is_unknown(assigned):
                        gone = {*assigned.replicas} - able_to_lead(live, offline, topic.topic_id, index)
                        waiting, missing = waiting + bool(gone), missing | gone
                        if not gone:
                            ready.append((topic, index, assigned))
            if missing - told:
                advice = "start these brokers; if one is lost, order an unclean election of its partitions"
                logger.warning(
                    "leaders_wait_for_replicas", partitions=waiting, brokers=sorted(missing), advice=advice
                )
            told = missing
            for first in range(0, len(ready), _AT_ONCE):
                some = ready[first : first + _AT_ONCE]
                if not all(await asyncio.gather(*(self._elect_by_log(end_of_log, *each) for each in some))):
                    self._logs_are_due.set()
            if self._logs_are_due.is_set():
                await asyncio.sleep(_RETRY_SECONDS)

    async def _elect_by_log(
        self, end_of_log: EndOfLog, topic: Topic, index: int, assigned: PartitionAssignment
    ) -> bool:
        """Whether all replicas could be asked."""
        brokers, ends = self._cluster.catalog.brokers, dict[int, LogEnd]()
        asked = {each: brokers.get(each) for each in assigned.replicas}

        def plan(image: Catalog) -> PartitionsChanged:
            if asked != {each: image.brokers.get(each) for each in asked}:
                raise NothingToChange  # One may have started meanwhile with another disk.
            elect = partial(eligible_by_logs, asked=assigned, ends=ends)
            return election_as_asked(image, topic.topic_id, [index], elect)

        try:
            for each in asked:
                ends[each] = await end_of_log(each, topic.name, index, assigned.leader_epoch)
            await self._change_all([plan])
        except ApiError:  # It starts or ends.
            return False
        except Exception as error:
            self._tell_problem(error)
            return False
        return True

    async def until_dispensable(self, timeout_ms: int) -> None:
        """Return when enough replicas are in sync without this broker's, when none can join them, or when the
        time is over. The other brokers learn first that this one stops."""
        deadline = time.monotonic() + timeout_ms / 1000
        revision, is_told = -1, False
        if not self.is_cut_off:
            self._broker = self._broker._replace(is_stopping=True)
            with suppress(*_STORE_ERRORS, TimeoutError):
                async with asyncio.timeout(min(timeout_ms, self._session_timeout_ms) / 1000):
                    await self._unfence()
        while not self.is_cut_off:
            catalog = self._cluster.catalog
            if catalog.revision != revision:
                revision = catalog.revision
                awaited = awaited_by(
                    catalog, self._broker.node_id, self._stopping_before, self._least_in_sync
                )
                if not awaited:
                    return
            names = {**awaited[0]._asdict(), "partitions": len(awaited), "timeout_ms": timeout_ms}
            if time.monotonic() >= deadline:
                advice = "restart one broker after the other; shutdown.timeout.ms says how long a stop waits"
                logger.warning("stop_leaves_too_few_in_sync", advice=advice, **names)
                return
            if not is_told:
                is_told = True
                logger.info("stop_waits_for_replicas", **names)
            await asyncio.sleep(_LEAVE_SECONDS)

    async def hand_over(self) -> bool:
        """Let others lead what they can lead, and be in no in-sync set that does without this broker.

        This broker fetches no more, else a leader would add it again. What is not handed over, waits. Returns
        whether something was.
        """
        node_id = self._broker.node_id
        led = self._led()
        with suppress(*_STORE_ERRORS, TimeoutError):
            async with asyncio.timeout(self._session_timeout_ms / 1000):
                await self._elect([topic.topic_id for topic in self._cluster.catalog.topics()], node_id)
        return self._led() < led

    def _led(self) -> int:
        topics = self._cluster.catalog.topics()
        return sum(each.leader_id == self._broker.node_id for topic in topics for each in topic.partitions)

    async def elect(self, topic_id: UUID, indexes: Collection[int], elect: Election) -> None:
        """Let partitions have the leaders that an operator asks for, where they may. Raises StoreError,
        StoreConflict, OSError."""
        await self._change_all([partial(election_as_asked, topic_id=topic_id, indexes=indexes, elect=elect)])

    async def elect_uncleanly(self, topic: Topic, indexes: Iterable[int]) -> None:
        """As an operator asks, let the longest live logs lead partitions that have no leader. Raises as
        `elect` does."""
        asked = list(indexes)
        for first in range(0, len(asked), _AT_ONCE):
            some = asked[first : first + _AT_ONCE]
            logs = await asyncio.gather(*(self._ends_of_live(topic, index) for index in some))
            elections = [partial(elected_uncleanly, ends=ends) for ends in logs]
            await self._change_all(
                [
                    partial(election_as_asked, topic_id=topic.topic_id, indexes=[index], elect=elect)
                    for index, elect in zip(some, elections, strict=True)
                ]
            )

    async def _ends_of_live(self, topic: Topic, index: int) -> dict[int, LogEnd]:
        """Of the replicas that say in time where their logs end."""
        assigned, live = topic.partitions[index], live_brokers(self._cluster.catalog)
        end_of_log = self._end_of_log
        if end_of_log is None or assigned.leader_id != NO_LEADER:
            return {}
        asked = [each for each in assigned.replicas if each in live]
        answers = await asyncio.gather(
            *(
                asyncio.wait_for(end_of_log(each, topic.name, index, assigned.leader_epoch), _ANSWER_SECONDS)
                for each in asked
            ),
            return_exceptions=True,
        )
        return {
            each: end for each, end in zip(asked, answers, strict=True) if not isinstance(end, BaseException)
        }

    def report_offline(self, topic_id: UUID, index: int) -> None:
        """The log of a replica failed: until this broker is started again, gets a new replica, or opens the
        log, another one leads the partition, or none where no other may."""
        if (topic_id, index) not in self._broker.offline and len(self._broker.offline) < MOST_OFFLINE:
            self._set_offline((*self._broker.offline, (topic_id, index)))

    def report_opened(self, topic_id: UUID, index: int) -> None:
        """The log of a replica that was reported as offline is open."""
        self._set_offline(tuple(each for each in self._broker.offline if each != (topic_id, index)))

    def _set_offline(self, offline: tuple[tuple[UUID, int], ...]) -> None:
        """The replicas whose logs failed are these, without those that were removed with their logs."""
        kept = tuple(each for each in offline if self._holds(*each))
        if kept != self._broker.offline:
            self._broker = self._broker._replace(offline=kept)
            self._is_due.set()

    def _holds(self, topic_id: UUID, index: int) -> bool:
        topic = self._cluster.catalog.topic_by_id(topic_id)
        return topic is not None and self._broker.node_id in topic.partitions[index].replicas

    def give_up_soon(self, topic_id: UUID, index: int, kept: Callable[[], None]) -> None:
        """Let another broker lead a partition that this one cannot write any more, if another one can.
        `kept` is called once it is certain that this one still leads."""
        self._giving_up.begin(self._give_up(topic_id, index, kept))

    async def _give_up(self, topic_id: UUID, index: int, kept: Callable[[], None]) -> None:
        node_id, least = self._broker.node_id, self._least_in_sync
        plan = partial(election, topic_id=topic_id, least_in_sync=least, leaving=node_id, only=(index,))
        with suppress(*_STORE_ERRORS):
            await self._change_all([plan], kept)
            topic = self._cluster.catalog.topic_by_id(topic_id)
            if topic is not None and topic.partitions[index].leader_id == node_id:
                kept()

    async def _elect(self, topic_ids: Sequence[UUID], leaving: int = NO_LEADER) -> None:
        plans = [
            partial(election, topic_id=each, least_in_sync=self._least_in_sync, leaving=leaving)
            for each in topic_ids
        ]
        await self._change_all(plans)

    async def _change_all(
        self,
        plans: Sequence[Callable[[Catalog], PartitionsChanged]],
        dropped: Callable[[], None] | None = None,
    ) -> None:
        for first in range(0, len(plans), _AT_ONCE):
            some = plans[first : first + _AT_ONCE]
            changes = (self._cluster.change(plan, dropped) for plan in some)
            outcomes = await asyncio.gather(*changes, return_exceptions=True)
            changed = 0
            for outcome in outcomes:
                if isinstance(outcome, PartitionsChanged):
                    changed += len(outcome.partitions)
                elif not isinstance(outcome, NothingToChange):
                    raise outcome
            if changed:
                logger.info("leaders_elected", partitions=changed)
