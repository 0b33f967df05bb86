"""Only this module starts and stops this broker's replicas and changes their roles, according to the catalog.

Owns the order of that work, the folders of topics that are not stored yet, and the ids of deleted topics that
have no folder left.

Invariants:
- changes are applied one after the other, in the order of the catalog. The first step of a change runs in the
  same step of the loop in which the catalog changes, unless earlier changes are still being applied. The
  other steps run in turns (`protocol.steps`), so that thousands of partitions do not block other work;
- folders are made before a topic is stored (`prepare`) and removed after its deletion is stored, so a crash
  leaves only folders without records, or folders with an id that the catalog remembers;
- partitions that others created are opened, or made, when they are stored; those of topics that wait in a
  row together, because each opening costs a sync;
- a running replica gets its role at once, also while earlier changes wait for logs: their work repeats it,
  and a role of an earlier epoch changes nothing;
- work that fails is reported, and does not stop later work.

Event loop only.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple, TypeAlias
from uuid import UUID

import structlog

from tidelog.broker.cluster.batcher import Batcher
from tidelog.broker.cluster.catalog import (
    Catalog,
    Change,
    Delta,
    FoldersRemoved,
    PartitionsChanged,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.broker.limits.turns import Turns
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.roles import Role, partitions_held, partitions_touched, role_in
from tidelog.broker.storage.disk import advice_on
from tidelog.broker.tasks import Tasks
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.steps import Pace, Steps

logger = structlog.get_logger(__name__)
STEP_COST_REPLICA = 4
"""Starting or stopping a replica counts as this many elements (see `protocol.steps`)."""
_OPENED_AT_ONCE = 256
"""Logs: then their replicas begin, and other work on the disk has its turn."""
_Work: TypeAlias = Iterator[Awaitable[None] | None]
"""Yields None if other work may run, else what it has to wait for."""


class _Leaving(NamedTuple):
    """Partitions whose folders are not needed any more."""

    topic: Topic
    indexes: Sequence[int]
    is_deletion: bool = False


class _Waiting(NamedTuple):
    """Work that begins when all before it is done."""

    work: _Work
    created: Topic | None = None
    """The new topic whose logs it opens."""


class Reconciler:
    """Starts and stops one broker's replicas and changes their roles, as the catalog says."""

    def __init__(self, partitions: Partitions, turns: Turns) -> None:
        self.gone: set[UUID] = set()
        """Deleted topics that have nothing left here."""
        self.when_removed: Callable[[Iterable[UUID]], None] = self.gone.update
        """Called with deleted topics that have no folder left here."""
        self._partitions = partitions
        self._turns = turns
        self._prepared: dict[UUID, tuple[Topic, list[int]]] = {}
        self._busy = asyncio.Lock()
        self._making = Batcher(self._make, self._busy)
        self._pace = Pace()
        """Of all work, because many changes may be followed in one step of the loop."""
        self._waiting: deque[_Waiting] = deque()
        self._leaving: list[_Leaving] = []
        self._task: asyncio.Task[None] | None = None
        self._changing_roles = Tasks()

    async def open_all(self, catalog: Catalog) -> None:
        """Start every replica that the catalog assigns here, and remove what is left of deleted topics.

        Changes that arrive meanwhile are applied after it. Raises OSError, and DataFolderError if the
        catalog does not belong to these folders.
        """
        node_id = self._partitions.node_id
        async with self._busy:
            deleted = set(catalog.deleted)
            held = [(topic, partitions_held(topic, node_id)) for topic in catalog.topics()]
            await self._partitions.settle_strays(catalog)
            await self._partitions.open(held)
            for topic, indexes in held:
                for index in indexes:
                    role = role_in(topic, index, node_id)
                    if role is not None:
                        self._partitions.begin(topic, index, role)
            self.gone |= deleted

    def open_again(self, catalog: Catalog) -> None:
        """Start the replicas whose logs could not be opened for lack of space or file handles, if they can be
        opened now."""
        self._begin(self._opened_again(catalog))

    def _opened_again(self, catalog: Catalog) -> _Work:
        wanted = self._partitions.lacking(catalog)
        if wanted:
            yield self._open(wanted)
        for before, indexes in wanted:
            topic = catalog.topic_by_id(before.topic_id)
            for index in indexes:
                role = role_in(topic, index, self._partitions.node_id)
                if (
                    topic is not None
                    and role is not None
                    and (topic.name, index) in self._partitions.logs.logs
                ):
                    self._partitions.begin(topic, index, role)

    async def prepare(self, topic: Topic, first: int) -> None:
        """Make folders and logs for partitions of `topic` from `first` on, all or none, before it is stored.

        They are used once the catalog shows them. If it never will, `discard` them. Raises OSError.
        """
        await self._making.run((topic, first))

    async def _make(self, wanted: Sequence[tuple[Topic, int]]) -> list[OSError | None]:
        made = await self._partitions.make(wanted)
        for (topic, _), logs in zip(wanted, made, strict=True):
            if not isinstance(logs, OSError):
                self._prepared[topic.topic_id] = (topic, [log.partition for log in logs])
        return [logs if isinstance(logs, OSError) else None for logs in made]

    def discard(self, topic_id: UUID) -> None:
        """Remove what `prepare` made, because it will not be used."""
        self._begin(self._discarded(topic_id))

    def _discarded(self, topic_id: UUID) -> _Work:
        topic, indexes = self._prepared.pop(topic_id, (None, ()))
        if topic is not None:
            self._leaving.append(_Leaving(topic, indexes))
        yield from ()

    def follow(self, change: Change) -> None:
        """Make the replicas match a change that the catalog shows from now on."""
        if isinstance(change.delta, TopicConfigsChanged) and change.after is not None:
            self.reconfigure([change.after])
        elif isinstance(change.delta, FoldersRemoved):
            self._forget(change.delta.node_id, change.delta.topic_ids)
        elif (topic := change.after or change.before) is not None:
            if isinstance(change.delta, PartitionsChanged):
                self._stop_removed(change, topic)
            if isinstance(change.delta, PartitionsChanged) and (self._waiting or self._busy.locked()):
                self._changing_roles.begin(self._change_roles(change, topic))
            created = topic if isinstance(change.delta, TopicCreated) else None
            self._begin(self._followed(change, topic), created)

    def _stop_removed(self, change: Change, topic: Topic) -> None:
        """Their logs are deleted later. A change that adds such a replica again must not let it follow with
        that log meanwhile: the leader would count what is deleted then."""
        node_id = self._partitions.node_id
        for index in partitions_touched(change):
            if role_in(change.before, index, node_id) and not role_in(change.after, index, node_id):
                self._partitions.stop(topic, index)

    async def _change_roles(self, change: Change, topic: Topic) -> None:
        """Change the roles of replicas that run."""
        try:
            await self._turns.run(self._roles(change, topic))
        except Exception as error:
            _failed(error)

    def _roles(self, change: Change, topic: Topic) -> Steps[None]:
        pace, node_id = Pace(), self._partitions.node_id
        for index in partitions_touched(change):
            before, now = role_in(change.before, index, node_id), role_in(change.after, index, node_id)
            if before is not None and now is not None and now != before:
                self._partitions.change_role(topic, index, before, now)
            if pace.spent(STEP_COST_REPLICA):
                yield

    def reconfigure(self, topics: Sequence[Topic]) -> None:
        """Let the running logs of these topics follow settings that changed."""
        pace = Pace()
        self._begin(step for topic in topics for step in self._partitions.reconfigure(topic, pace))

    def _followed(self, change: Change, topic: Topic) -> _Work:
        pace, node_id = self._pace, self._partitions.node_id
        begun: list[tuple[int, Role]] = []
        ended: list[int] = []
        replicas: list[Replica] = []
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if change.after else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for index in partitions_touched(change):
            before, now = role_in(change.before, index, node_id), role_in(change.after, index, node_id)
            if now is None and before is not None:
                ended.append(index)
                replicas += self._partitions.end(topic, index, code)
            elif now is not None and before is None:
                begun.append((index, now))
            elif now is not None and before is not None and now != before:
                self._partitions.change_role(topic, index, before, now)
            if pace.spent(1 if before == now or before is None else STEP_COST_REPLICA):
                yield None
        for first in range(0, max(len(begun), 1), _OPENED_AT_ONCE):
            some = begun[first : first + _OPENED_AT_ONCE]
            yield from self._opened(topic, [index for index, _ in some])
            for index, role in some:
                self._partitions.begin(topic, index, role)
                if pace.spent(STEP_COST_REPLICA):
                    yield None
        while replicas:  # One by one, so that their memory is not all freed at once.
            yield self._partitions.flushed(replicas.pop())
            if pace.spent():
                yield None
        if change.after is None or ended:
            self._leaving.append(_Leaving(topic, ended, is_deletion=change.after is None))
        self._tell(change.delta, topic)

    def _opened(self, topic: Topic, indexes: Sequence[int]) -> _Work:
        """Take the open logs that `prepare` made, and open the others now."""
        if self._prepared.pop(topic.topic_id, None) is None and indexes:
            yield None  # The lock is held from here on, so nothing is made for another topic of this name.
        for topic_id in [each for each, (other, _) in self._prepared.items() if other.name == topic.name]:
            yield from self._discarded(topic_id)
        if any(each.topic.name == topic.name for each in self._leaving):
            yield self._remove(self._leaving)
        logs = self._partitions.logs.logs
        missing = [index for index in indexes if (topic.name, index) not in logs]
        if missing:
            yield self._open([(topic, missing), *self._opened_next(_OPENED_AT_ONCE - len(missing))])

    def _opened_next(self, most: int) -> Iterator[tuple[Topic, Sequence[int]]]:
        """The partitions, up to this number, of the new topics that wait next."""
        for _, topic in islice(self._waiting, 1, None):
            if topic is None or topic.topic_id in self._prepared:
                return
            indexes = partitions_held(topic, self._partitions.node_id)
            most -= len(indexes)
            if most < 0:
                return
            yield topic, indexes

    async def _open(self, wanted: Sequence[tuple[Topic, Sequence[int]]]) -> None:
        try:
            await self._partitions.open(wanted)
        except OSError as error:
            advice = advice_on(error, "check the disk that holds the data folder, then restart the broker")
            logger.error("topic_not_opened", topic=wanted[0][0].name, error=str(error), advice=advice)

    async def _remove(self, leaving: list[_Leaving]) -> None:
        """Empty the list, with one sync for the names of all folders."""
        gone = leaving.copy()
        leaving.clear()
        try:
            await self._partitions.remove(
                [(each.topic.name, index) for each in gone for index in each.indexes]
            )
        except OSError as error:
            if len(gone) > 1:
                for each in gone:
                    await self._remove([each])
                return
            logger.warning(
                "topic_folders_left",
                topic=gone[0].topic.name,
                topic_id=str(gone[0].topic.topic_id),
                error=str(error),
                advice="nothing to do: they are of no use, and the next start removes them",
            )
        else:
            self.when_removed([each.topic.topic_id for each in gone if each.is_deletion])

    def _tell(self, delta: Delta, topic: Topic) -> None:
        known = {"topic": topic.name, "topic_id": str(topic.topic_id)}
        match delta:
            case TopicCreated():
                logger.info("topic_created", **known, partitions=len(topic.partitions))
            case TopicDeleted(gone=gone, gone_from=node_id):
                self._forget(node_id, gone)
                self._partitions.forget_topic(topic)
                logger.info("topic_deleted", **known)

    def _forget(self, node_id: int, topic_ids: Iterable[UUID]) -> None:
        """The catalog knows from now on that a broker has no folder of these."""
        if node_id == self._partitions.node_id:
            self.gone.difference_update(topic_ids)

    def _begin(self, work: _Work, created: Topic | None = None) -> None:
        """Do the first step now if no other work runs, and the rest in turns."""
        if not self._waiting and not self._busy.locked():
            try:
                work = chain((next(work),), work)
            except StopIteration:
                work = iter(())
            except Exception as error:
                _failed(error)
                work = iter(())
            if not isinstance(work, chain) and not self._leaving:
                return
        self._waiting.append(_Waiting(work, created))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._do_waiting())

    async def _do_waiting(self) -> None:
        async with self._busy:
            while self._waiting:
                try:
                    try:
                        for wanted in self._waiting[0].work:
                            await (self._turns.next() if wanted is None else wanted)
                    finally:
                        if self._leaving and len(self._waiting) == 1:
                            await self._remove(self._leaving)
                except Exception as error:
                    _failed(error)
                self._waiting.popleft()

    async def settled(self) -> None:
        """Return when the replicas match the catalog as it is now."""
        if self._waiting and self._task is not None:
            await asyncio.wait([self._task])


def _failed(error: BaseException) -> None:
    advice = "restart the broker: its start applies the catalog to its replicas. Report this"
    logger.error("reconciliation_failed", error=repr(error), advice=advice, exc_info=error)
