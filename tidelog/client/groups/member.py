"""A member of a group, of any kind: the tasks that carry out the steps of its membership.

Owns: the tasks (steps, heartbeats, and those of its kind), what the application subscribed to, and why a
topic is not read. A kind of member says what it means to give up partitions and to take them over. Invariant:
a step is asked for anew after anything has changed. For one event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any
from uuid import UUID

from tidelog.client.groups import steps
from tidelog.client.groups.consumer_membership import ConsumerMembership
from tidelog.client.groups.coordinator import GroupCoordinator
from tidelog.client.groups.heartbeats import Heartbeats
from tidelog.client.groups.membership import Membership
from tidelog.client.groups.subscription import TopicSubscription
from tidelog.wire.backoff import Backoff
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import ClientClosedError, ClientError, UnexpectedError
from tidelog.wire.events import logger


class GroupMember:
    """`on_error` is called when waiting reads must look again; a heartbeat has `heartbeat_timeout_ms`."""

    def __init__(
        self,
        membership: Membership | ConsumerMembership,
        cluster: Cluster,
        on_error: Callable[[], None],
        heartbeat_timeout_ms: int,
    ) -> None:
        self.membership = membership
        self._cluster = cluster
        self._on_error = on_error
        self._coordinator = GroupCoordinator(cluster, membership.group_id)
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
        self._beats = Heartbeats(
            membership, self._coordinator, self._backoff, self._on_heartbeat, timeout_ms=heartbeat_timeout_ms
        )
        self._subscription: TopicSubscription | None = None
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._awaits_application = False
        self._is_closed = False
        # Why the group does not read one of its topics. Others stay readable.
        self._refusal: ClientError | None = None

    def _begin(self, *more: Coroutine[Any, Any, None]) -> None:
        """Begin to work. The loop must run. The first task sends heartbeats."""
        self._cluster.add_listener(self._on_metadata)
        work = self._beats.run(), self._carry_out_steps(), *more
        self._tasks = [asyncio.get_running_loop().create_task(each) for each in work]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def subscribe(self, subscription: TopicSubscription | None) -> None:
        """Be a member that reads these topics; None: leave the group."""
        self._subscription = subscription
        if subscription is not None and subscription.pattern is not None:
            self._cluster.watch_all_topics()
        elif subscription is not None:
            self._cluster.watch_topics(subscription.topics(self._cluster.image))
        self._on_metadata()

    def asked(self) -> None:
        """The application asks for records: it has finished those that it had."""
        if self._awaits_application:
            self._awaits_application = False
            self.membership.polled()
            self._react()

    def _poll_interval_exceeded(self, limit_ms: int) -> None:
        """The application has not asked for records for so long: leave the group until it does."""
        logger.warning("poll_interval_exceeded", group_id=self.membership.group_id, limit_ms=limit_ms)
        self._awaits_application = True
        self.membership.poll_interval_exceeded()
        self._react()

    def raise_error(self) -> None:
        """Raise what ended the membership, or once why a topic is not read."""
        raised, self._refusal = self._refusal, None
        if raised is not None:
            raise raised
        if self.membership.error is not None:
            raise self.membership.error.with_traceback(None)

    async def _end(self, tasks: Iterable["asyncio.Task[None]"]) -> None:
        self._is_closed = True
        # One of them, if a callback stops the consumer. It ends after the callback.
        others = [task for task in tasks if task is not asyncio.current_task()]
        for task in others:
            task.remove_done_callback(self._ended)
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("group_failed", group_id=self.membership.group_id, exc_info=error)
            self.membership.request_failed(UnexpectedError.of(error))
            self._on_error()

    async def _leave_within(self, seconds: float) -> None:
        """Leave the group, once it has no task any more. Logs what fails."""
        self.membership.subscribe(None)
        step = self.membership.next_step()
        if isinstance(step, steps.Leave):
            try:
                async with asyncio.timeout(seconds):
                    await self._leave(step)
            except (ClientError, TimeoutError) as error:
                logger.info("group_not_left", group_id=self.membership.group_id, error=str(error))

    def _next_step(self) -> steps.Step:
        return self.membership.next_step()

    async def _carry_out_steps(self) -> None:
        while not self._is_closed:
            step = self._next_step()
            self._changed.clear()
            try:
                if self.membership.failures and not isinstance(step, steps.Rest | steps.Revoke | steps.Adopt):
                    await asyncio.sleep(self._backoff.delay_ms(self.membership.failures) / 1000)
                await self._carry_out(step)
            except ClientClosedError:
                return
            except ClientError as error:
                logger.debug("group_request_failed", group_id=self.membership.group_id, error=str(error))
                self.membership.request_failed(error)
            if self.membership.error is not None:
                self._on_error()
            self._beats.send_if_due()

    async def _carry_out(self, step: steps.Step) -> None:
        membership = self.membership
        match step:
            case steps.FindCoordinator():
                membership.coordinator_found(await self._coordinator.find())
            case steps.Leave():
                await self._leave(step)
            case steps.ResolveTopics() if isinstance(membership, ConsumerMembership):
                if not membership.resolved(self._topic_ids()):
                    await self._cluster.refresh()
                    membership.failures += not membership.resolved(self._topic_ids())
            case _:
                await self._changed.wait()

    async def _leave(self, step: steps.Leave) -> None:
        node_id = await self._coordinator.find_for(self.membership)
        await self._coordinator.call(node_id, step.api_key, step.values)
        self.membership.left()

    def _topic_ids(self) -> dict[str, UUID]:
        return {name: info.topic_id for name, info in self._cluster.image.topics.items()}

    def _counts(self) -> dict[str, int]:
        return {name: len(info.partitions) for name, info in self._cluster.image.topics.items()}

    def _on_metadata(self) -> None:
        subscription, image = self._subscription, self._cluster.image
        self._refusal = None if subscription is None else subscription.refusal(image)
        if self._refusal is not None:
            self._on_error()
        if subscription is not None and subscription.may_change(image):
            self._cluster.request_refresh()
        self.membership.subscribe(None if subscription is None else subscription.topics(image))
        self.membership.metadata_changed(self._counts())
        self._react()

    def _react(self) -> None:
        self._changed.set()
        self._beats.send_if_due()

    def _on_heartbeat(self) -> None:
        self._react()
        if self.membership.error is not None:
            self._on_error()
