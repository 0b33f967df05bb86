"""One consumer's membership in a share group: it carries out its steps.

Owns: the tasks of a member (steps, heartbeats, the watch on the application). Invariants: `assign` is called
with what the broker assigned, as soon as it is known; nothing waits for the application. One that does
nothing is no member. For one event loop.
"""

import asyncio
from collections.abc import Callable
from uuid import UUID, uuid4

from tidelog.client.groups import steps
from tidelog.client.groups.coordinator import GroupCoordinator
from tidelog.client.groups.heartbeats import Heartbeats
from tidelog.client.groups.subscription import TopicSubscription
from tidelog.client.share.config import ShareConsumerConfig
from tidelog.client.share.membership import ShareMembership
from tidelog.protocol.types import TopicPartition
from tidelog.wire.backoff import Backoff
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import ClientClosedError, ClientError, UnexpectedError
from tidelog.wire.events import logger

_CHECKS_PER_POLL_INTERVAL = 4


class ShareGroup:
    """Keeps one consumer a member of its share group. `start` it within its loop. `assign` gets the
    partitions to read."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        cluster: Cluster,
        assign: Callable[[frozenset[TopicPartition]], None],
        on_error: Callable[[], None],
    ) -> None:
        self.membership = ShareMembership(config.group_id, uuid4(), rack_id=config.client_rack)
        self._cluster = cluster
        self._assign = assign
        self._on_error = on_error
        self._coordinator = GroupCoordinator(cluster, config.group_id)
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
        self._beats = Heartbeats(
            self.membership,
            self._coordinator,
            self._backoff,
            self._react,
            timeout_ms=cluster.config.request_timeout_ms,
        )
        self._subscription: TopicSubscription | None = None
        # Why one of the topics is not read. Others stay readable.
        self._refusal: ClientError | None = None
        self._max_idle_ms = config.max_poll_interval_ms
        self._is_away = False
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, idle_seconds: Callable[[], float]) -> None:
        """Begin to work. The loop must run. `idle_seconds` says how long the application has done nothing."""
        self._cluster.add_listener(self._on_metadata)
        work = self._beats.run(), self._carry_out_steps(), self._watch_reads(idle_seconds)
        self._tasks = [asyncio.get_running_loop().create_task(each) for each in work]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def asked(self) -> None:
        """The application asks for records."""
        if self._is_away:
            self._is_away = False
            self.membership.polled()
            self._react()

    def subscribe(self, subscription: TopicSubscription | None) -> None:
        """Be a member that reads these topics; None: leave the group."""
        self._subscription = subscription
        if subscription is not None:
            self._cluster.watch_topics(subscription.names or ())
            self._cluster.request_refresh()
        self._on_metadata()

    def raise_error(self) -> None:
        """Raise what ended the membership, or once why a topic is not read."""
        raised, self._refusal = self._refusal, None
        if raised is not None:
            raise raised
        if self.membership.error is not None:
            raise self.membership.error.with_traceback(None)

    async def close(self) -> None:
        """Leave the group. Logs what fails. The coordinator has request_timeout_ms to answer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        membership = self.membership
        membership.subscribe(None)
        membership.revoked(membership.owned)
        step = membership.next_step()
        if isinstance(step, steps.Leave):
            try:
                async with asyncio.timeout(self._cluster.config.request_timeout_ms / 1000):
                    await self._leave(step)
            except (ClientError, TimeoutError) as error:
                logger.info("group_not_left", group_id=membership.group_id, error=str(error))

    async def _carry_out_steps(self) -> None:
        membership = self.membership
        while True:
            step = membership.next_step()
            self._changed.clear()
            try:
                if membership.failures and not isinstance(step, steps.Rest | steps.Revoke | steps.Adopt):
                    await asyncio.sleep(self._backoff.delay_ms(membership.failures) / 1000)
                await self._carry_out(step)
            except ClientClosedError:
                return
            except ClientError as error:
                logger.debug("group_request_failed", group_id=membership.group_id, error=str(error))
                membership.request_failed(error)
            if membership.error is not None:
                self._on_error()
            self._beats.send_if_due()

    async def _carry_out(self, step: steps.Step) -> None:
        membership = self.membership
        match step:
            case steps.FindCoordinator():
                membership.coordinator_found(await self._coordinator.find())
            case steps.Revoke(partitions):
                membership.revoked(partitions)
                self._assign(membership.owned)
            case steps.Adopt(partitions):
                membership.adopted(partitions)
                self._assign(membership.owned)
            case steps.Leave():
                await self._leave(step)
            case steps.ResolveTopics():
                if not membership.resolved(self._topic_ids()):
                    await self._cluster.refresh()
                    membership.failures += not membership.resolved(self._topic_ids())
            case _:
                await self._changed.wait()

    async def _watch_reads(self, idle_seconds: Callable[[], float]) -> None:
        """Leave the group while the application does nothing."""
        limit = self._max_idle_ms / 1000
        while True:
            await asyncio.sleep(max(limit - idle_seconds(), limit / _CHECKS_PER_POLL_INTERVAL))
            if idle_seconds() >= limit and self.membership.owned and not self._is_away:
                group_id = self.membership.group_id
                logger.warning("poll_interval_exceeded", group_id=group_id, limit_ms=self._max_idle_ms)
                self._is_away = True
                self.membership.poll_interval_exceeded()
                self._react()

    async def _leave(self, step: steps.Leave) -> None:
        node_id = await self._coordinator.find_for(self.membership)
        await self._coordinator.call(node_id, step.api_key, step.values)
        self.membership.left()

    def _topic_ids(self) -> dict[str, UUID]:
        return {name: info.topic_id for name, info in self._cluster.image.topics.items()}

    def _on_metadata(self) -> None:
        subscription = self._subscription
        if subscription is not None and (refusal := subscription.refusal(self._cluster.image)) is not None:
            self._refusal = refusal
            self._on_error()
        if subscription is not None and subscription.may_change(self._cluster.image):
            self._cluster.request_refresh()
        self.membership.subscribe(None if subscription is None else subscription.names)
        self._react()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("group_failed", group_id=self.membership.group_id, exc_info=error)
            self.membership.request_failed(UnexpectedError.of(error))
            self._on_error()

    def _react(self) -> None:
        self._changed.set()
        self._beats.send_if_due()
        if self.membership.error is not None:
            self._on_error()
