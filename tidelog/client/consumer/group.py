"""One consumer's group: it carries out the steps of the membership, and commits.

Owns: automatic commits, the watch on the application, and the order of what happens around a rebalance.
Invariants:
- a partition that is given up is suspended first. Then the group waits until the application has finished
  the records that it was given, commits them, runs the callback, and only then lets others have it;
- that wait ends after max_poll_interval_ms: then the member leaves, and what is unfinished is not committed;
- commits are sent one after the other, so a committed offset never goes back;
- a new partition is read after its callback and its committed offset, so none of its records comes earlier.
For one event loop.
Source: Kafka's ConsumerCoordinator; aiokafka for a group that works in the background.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

from tidelog.client.consumer.config import ConsumerConfig
from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.client.consumer.progress import Progress
from tidelog.client.errors import CommitFailedError
from tidelog.client.groups import steps
from tidelog.client.groups.consumer_membership import ConsumerMembership
from tidelog.client.groups.listener import ConsumerRebalanceListener, notify
from tidelog.client.groups.member import GroupMember
from tidelog.client.groups.membership import Membership
from tidelog.client.groups.offsets import GroupOffsets
from tidelog.client.groups.subscription import TopicSubscription
from tidelog.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import ClientError
from tidelog.wire.events import logger

_CHECKS_PER_POLL_INTERVAL = 4
_COMMITS_AT_CLOSE = 2


class Group(GroupMember):
    """Keeps one consumer a member of its group, and commits its offsets. `start` it within its loop.

    `read` makes the consumer read exactly these partitions, those that it read before from where they are.
    `fetch_more` is called when a partition may be read that could not be, `on_data` when waiting reads must
    look again.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        readers: Mapping[TopicPartition, PartitionReader],
        progress: Progress,
        *,
        read: Callable[[frozenset[TopicPartition]], None],
        fetch_more: Callable[[], None],
        on_data: Callable[[], None],
    ) -> None:
        super().__init__(
            _membership(config),
            cluster,
            on_data,
            min(config.session_timeout_ms, cluster.config.request_timeout_ms),
        )
        self.config = config
        self.listener: object = ConsumerRebalanceListener()
        self._readers = readers
        self._progress = progress
        self._read = read
        self._fetch_more = fetch_more
        self.offsets = GroupOffsets(
            cluster.config,
            self._coordinator,
            self.membership,
            readers,
            self._position_id,
            lambda topic: cluster.image.topic_id(topic),
            cluster.refresh,
            self._react,
        )
        # The offset, and the id of the topic to which it belongs.
        self._committed: dict[TopicPartition, tuple[UUID | None, int]] = {}
        # A commit that is repeated must not come after a later one: it would take the offsets back.
        self._commit_turn = asyncio.Lock()
        # What `on_partitions_assigned` runs for. If that is cancelled, `on_partitions_revoked` still comes.
        self._announced: frozenset[TopicPartition] = frozenset()
        self._listener_error: Exception | None = None
        self.commits = 0

    def start(self) -> None:
        """Begin to work. The loop must run."""
        regular = (self._commit_regularly(),) if self.config.enable_auto_commit else ()
        self._begin(self._watch_polls(), *regular)

    def subscribe(self, subscription: TopicSubscription | None) -> None:
        """Be a member that reads these topics; None: leave the group."""
        super().subscribe(subscription)
        if subscription is None:
            self._suspend(self.membership.owned)

    def raise_error(self) -> None:
        """Raise what ended the membership, or once what a callback raised or why a topic is not read."""
        raised, self._listener_error = self._listener_error, None
        if raised is not None:
            self._refusal = None
            raise raised
        super().raise_error()

    async def close(self) -> None:
        """Commit what is finished if commits are automatic, run the callback, and leave. Logs what fails. The
        coordinator gets request_timeout_ms for its answers. If cancelled, it does nothing more for the group.
        """
        try:
            left_s = await self._give_all_up()
        finally:
            await self._end(self._tasks)
        await self._leave_within(left_s)

    async def _give_all_up(self) -> float:
        """Returns the rest of request_timeout_ms, in seconds. Heartbeats continue: the callback may take
        long, or commit, which needs the present epoch."""
        membership = self.membership
        loop = asyncio.get_running_loop()
        began = loop.time()
        limit_s = self._cluster.config.request_timeout_ms / 1000
        try:
            async with asyncio.timeout(limit_s):
                # In a rebalance the first commit can fail for partitions that are gone.
                for _ in range(_COMMITS_AT_CLOSE if membership.error is None else 0):
                    await self._commit_finished(frozenset(self._readers))
        except TimeoutError:
            self._not_committed("the coordinator does not answer")
        left_s = limit_s - (loop.time() - began)
        await self._end(self._tasks[1:])
        owned = membership.owned | self._announced
        if owned:
            await self._call_back("on_partitions_revoked", owned)
            membership.revoked(owned)
        return left_s

    # Steps

    def _next_step(self) -> steps.Step:
        step = super()._next_step()
        self._suspend(step.partitions if isinstance(step, steps.Revoke) else frozenset())
        return step

    async def _carry_out(self, step: steps.Step) -> None:
        membership = self.membership
        match step:
            case steps.Revoke():
                await self._give_up(step)
            case steps.Adopt(partitions):
                await self._take_over(partitions)
            case steps.Join() | steps.AssignAll() | steps.Sync() if isinstance(membership, Membership):
                await self._rebalance(membership, step)
            case _:
                await super()._carry_out(step)

    async def _rebalance(
        self, membership: Membership, step: steps.Join | steps.AssignAll | steps.Sync
    ) -> None:
        match step:
            case steps.Join(values):
                wait_ms = self.config.max_poll_interval_ms + self._cluster.config.request_timeout_ms
                membership.join_begun()
                membership.joined(await self._ask(ApiKey.JOIN_GROUP, values, wait_ms))
            case steps.AssignAll(topics):
                membership.assigned(await self._partition_counts(topics))
            case steps.Sync(values):
                # It may be sent again. Heartbeats continue, so without its answer the group would wait
                # for this member until max_poll_interval_ms.
                membership.synced(await self._ask(ApiKey.SYNC_GROUP, values))

    async def _ask(self, api_key: ApiKey, values: Mapping[str, object], wait_ms: int | None = None) -> Any:
        node_id = await self._coordinator.find_for(self.membership)
        return await self._coordinator.call(node_id, api_key, values, timeout_ms=wait_ms, is_held_back=True)

    async def _partition_counts(self, topics: frozenset[str]) -> dict[str, int]:
        """Of the topics that exist, by metadata that is as new as this call."""
        self._cluster.watch_topics(topics)
        await self._cluster.refresh()
        return self._counts()

    async def _give_up(self, step: steps.Revoke) -> None:
        """Returns early if something else must be done first."""
        if not step.is_lost:
            while self._is_at_work_on(step.partitions) and self.membership.next_step() == step:
                self._awaits_application = True
                await self._changed.wait()
                self._changed.clear()
            if self.membership.next_step() == step:
                await self._commit_finished(step.partitions)
            if self.membership.next_step() != step:
                return
        name = "on_partitions_lost" if step.is_lost else "on_partitions_revoked"
        await self._call_back(name, step.partitions)
        self._read(frozenset(self._readers) - step.partitions)
        for key in step.partitions:
            self._committed.pop(key, None)
        self.membership.revoked(step.partitions)

    async def _take_over(self, partitions: frozenset[TopicPartition]) -> None:
        """What the group takes away while the callback runs is never read."""
        self._read(frozenset(self._readers) | partitions)
        self._suspend(partitions)
        self._announced = partitions
        await self._call_back("on_partitions_assigned", partitions)
        self._announced = frozenset()
        self.membership.adopted(partitions)
        if taken_away := partitions - self.membership.owned:
            await self._call_back("on_partitions_lost", taken_away)
            self._read(frozenset(self._readers) - taken_away)
        self._suspend(frozenset())
        self._on_metadata()

    async def _call_back(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        this = asyncio.current_task()
        cancels = 0 if this is None else this.cancelling()
        try:
            await notify(self.listener, name, partitions)
            return
        except asyncio.CancelledError as error:
            # The callback may have waited for a task that the application cancelled: this task continues.
            if this is not None and this.cancelling() > cancels:
                raise
            raised: Exception = ClientError(f"{name} raised CancelledError")
            raised.__cause__ = error
        except Exception as error:
            raised = error
        logger.error("rebalance_listener_failed", group_id=self.config.group_id, method=name, exc_info=raised)
        self._listener_error = raised
        self._on_error()

    # What runs beside the steps

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.config.auto_commit_interval_ms / 1000)
            if self.membership.is_stable or not self.membership.is_subscribed:
                await self._commit_finished(frozenset(self._readers))

    async def _watch_polls(self) -> None:
        """Detect that the application has stopped reading, without a clock reading per record: it has the
        same records as before, asked for none, and waits for none."""
        interval_ms = self.config.max_poll_interval_ms
        known: object = None
        known_asked = 0
        idle_checks = 0
        while True:
            await asyncio.sleep(interval_ms / 1000 / _CHECKS_PER_POLL_INTERVAL)
            returned, asked = self._progress.returned, self._progress.asked
            is_same = returned is known and asked == known_asked
            is_idle = is_same and not self._progress.waiting and bool(self.membership.owned)
            idle_checks = idle_checks + 1 if is_idle else 0
            known, known_asked = returned, asked
            if idle_checks >= _CHECKS_PER_POLL_INTERVAL:
                self._poll_interval_exceeded(interval_ms)
                idle_checks = 0

    async def _commit_finished(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit what is finished of these, if commits are automatic. Logs what fails."""
        if not self.config.enable_auto_commit:
            return
        try:
            async with self._commit_turn:
                news = {
                    key: OffsetAndMetadata(offset, leader_epoch=self._readers[key].position_epoch)
                    for key, offset in self.finished().items()
                    if key in partitions and self._committed.get(key) != (self._position_id(key), offset)
                }
                await self._commit(news)
        except ClientError as error:
            self._not_committed(str(error))

    def _not_committed(self, why: str) -> None:
        logger.warning("auto_commit_failed", group_id=self.config.group_id, error=why)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises CommitFailedError or another ClientError."""
        async with self._commit_turn:
            await self._commit(offsets)

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await self.offsets.commit(offsets)
        self.commits += bool(offsets)
        self._committed.update((key, (self._position_id(key), each.offset)) for key, each in offsets.items())

    def _position_id(self, key: TopicPartition) -> UUID | None:
        """The id of the topic to which a position of the partition belongs."""
        reader = self._readers.get(key)
        own = None if reader is None else reader.topic_id
        return own or self._cluster.image.topic_id(key.topic)

    def finished(self) -> dict[TopicPartition, int]:
        """The offset up to which each partition is finished."""
        unfinished = self._progress.unfinished()
        return {
            key: unfinished.get(key, reader.position)
            for key, reader in self._readers.items()
            if reader.position is not None
        }

    def metadata(self) -> ConsumerGroupMetadata:
        """The identity of this member in a transaction. Raises CommitFailedError if it should be a member and
        is none now."""
        membership = self.membership
        member_id, generation = membership.identity
        if generation < 0 and membership.is_subscribed:
            refusal = membership.error or CommitFailedError("this consumer is no member of the group")
            raise refusal.with_traceback(None)
        if generation < 0:
            return ConsumerGroupMetadata(membership.group_id)
        return ConsumerGroupMetadata(membership.group_id, generation, member_id, membership.group_instance_id)

    # Reactions

    def _is_at_work_on(self, partitions: frozenset[TopicPartition]) -> bool:
        return not partitions.isdisjoint(self._progress.unfinished())

    def _react(self) -> None:
        """The membership changed: what it gives up is not read from this moment on."""
        step = self.membership.next_step()
        if isinstance(step, steps.Revoke):
            suspended = {key for key, reader in self._readers.items() if reader.is_suspended}
            self._suspend(step.partitions | suspended)
        super()._react()

    def _suspend(self, partitions: frozenset[TopicPartition]) -> None:
        """Read nothing of these, and of all others again."""
        was_suspended = {key for key, reader in self._readers.items() if reader.is_suspended}
        for key, reader in self._readers.items():
            reader.is_suspended = key in partitions
        if was_suspended != partitions & self._readers.keys():
            self._on_error()
        if was_suspended - partitions:
            self._fetch_more()


def _membership(config: ConsumerConfig) -> Membership | ConsumerMembership:
    group_id = config.group_id or ""
    if config.group_protocol == "consumer":
        return ConsumerMembership(
            group_id,
            str(uuid4()),
            group_instance_id=config.group_instance_id,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            assignor=config.group_remote_assignor,
        )
    return Membership(
        group_id,
        config.partition_assignment_strategy,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
    )
