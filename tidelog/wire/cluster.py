"""The client's view of the cluster: the leader of each partition, and connections to brokers.

Owns: the metadata and the choice of the broker for a request. Invariants:
- at most one metadata request is in flight; callers that need one meanwhile share the next one;
- requested refreshes back off while they bring no news;
- the errors of `start`, `refresh` and `topic` name the servers or the broker's error;
- listeners are called on every change after which a waiting request may be sent: new metadata, a connection
  opened or lost. They are called from the event loop and must not block or raise.
For one event loop.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import starmap
from typing import Any, Self, TypeGuard

from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire import errors
from tidelog.wire.asked_apis import AskedApis
from tidelog.wire.backoff import Backoff
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.connection import Connection
from tidelog.wire.events import logger
from tidelog.wire.links import Address, Links, result_of
from tidelog.wire.metadata import EMPTY, ClusterImage, Node, TopicInfo, apply_metadata, with_leaders
from tidelog.wire.metrics import RequestMetrics

_LONGEST_NAME_BYTES = 32_767
"""Of any string in the protocol. Brokers may allow less."""
_PATIENT_LOOKS = 3
"""How often a topic that brokers may not create is requested before it counts as unknown."""
_ANSWERS_BEFORE_WARNING = _PATIENT_LOOKS + 2
FAILURES_BEFORE_WARNING = 3
_REBOOTSTRAP = "rebootstrap"
_HEDGE_SECONDS = 1.0
"""Time without an answer after which another broker is asked as well, because the first one may hang."""
_REPEATABLE = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID})
"""Requests that two brokers may execute. An unused id does no harm."""


class Cluster:
    """Keeps the metadata and the connections of one client. Call `start` first and `close` at the end. With
    `allow_auto_create_topics` a broker may create a topic while a caller wants it: one that was deleted does
    not come back by a refresh."""

    def __init__(
        self,
        config: ClusterConfig,
        asked: AskedApis,
        rng: random.Random | None = None,
        *,
        metrics: RequestMetrics | None = None,
        allow_auto_create_topics: bool = False,
    ) -> None:
        self.config = config
        self._allow_auto_create_topics = allow_auto_create_topics
        self.image: ClusterImage = EMPTY
        self.metrics = metrics or RequestMetrics()
        self._rng = rng or random.Random()
        self._retry = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng)
        self._links = Links(
            config,
            asked,
            self.metrics,
            self._rng,
            spawn=self.spawn,
            on_change=self._notify,
            on_trouble=self.request_refresh,
            on_silence=self.request_refresh,
        )
        self._topics: set[str] = set()
        # Those that a caller wants to exist, for the next request only.
        self._wanted: set[str] = set()
        self._watches_all = False
        # How many answers in a row had no such topic, for the watched ones.
        self._unknown: dict[str, int] = {}
        # Some watched topics were not in a request yet, so nothing is known to be wrong with them.
        self._is_unasked = False
        self._listeners: list[Callable[[], None]] = []
        self._refresh_task: asyncio.Task[None] | None = None
        self._refreshed_at = 0.0
        self._is_refresh_wanted = False
        # Refreshes in a row, close to each other, that failed or brought no news.
        self._useless_refreshes = 0
        self._age_timer: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._failure: errors.UnexpectedError | None = None
        self.on_failure: Callable[[], None] = lambda: None
        """Called when `raise_failure` has an error."""
        # Also before `start`.
        self._is_closed = True
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Find a broker and fetch the metadata.

        Raises BrokerUnavailableError, which names the servers, after request_timeout_ms without an answer,
        and after bootstrap_refused_timeout_ms if all servers refuse the connection. An error that is not
        retriable (AuthenticationError, UnsupportedVersionError) is raised at once. After an error it can be
        called again.
        """
        self._loop = asyncio.get_running_loop()
        self._is_closed = self._links.is_closed = False
        trouble: errors.ClientError | None = None
        failures = 0
        refused_since = self._loop.time()
        try:
            async with asyncio.timeout(self.config.request_timeout_ms / 1000):
                while True:
                    try:
                        await self.refresh()
                        return
                    except errors.ClientError as error:
                        if not error.retriable:
                            raise
                        trouble = error
                    failures += 1
                    if not _is_refused(trouble):
                        refused_since = self._loop.time()
                    elif self._loop.time() - refused_since >= self.config.bootstrap_refused_timeout_ms / 1000:
                        raise trouble.tls_error or self._unavailable(trouble, has_waited=False) from trouble
                    if failures == FAILURES_BEFORE_WARNING:
                        limit_ms = self.config.request_timeout_ms
                        logger.warning(
                            "broker_not_reached", error=trouble.message, request_timeout_ms=limit_ms
                        )
                    await asyncio.sleep(self._retry.delay_ms(failures) / 1000)
        except TimeoutError:
            await self.close()
            raise self._unavailable(trouble) from trouble
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close every connection. A second call does nothing."""
        self.require_loop()
        self._is_closed = True
        if self._age_timer is not None:
            self._age_timer.cancel()
        self._links.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Also if it was cancelled before its first step.
        self._refresh_task = None

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` on each change of metadata or connections."""
        self._listeners.append(listener)

    # Metadata

    def watch_topics(self, topics: Iterable[str]) -> None:
        """Include these topics in each refresh. The next requested refresh for new ones starts at once."""
        new = {checked_topic_name(name) for name in topics} - self._topics
        if new:
            self._topics |= new
            self._is_unasked = True

    def watch_all_topics(self) -> None:
        """Include every topic in each refresh from now on, and refresh soon."""
        if not self._watches_all:
            self._watches_all = self._is_unasked = True
            self.request_refresh()

    def request_refresh(self, wanted: str | None = None) -> None:
        """The caller found the metadata wrong: refresh it soon, at most once every retry_backoff_ms, and less
        often while it brings no news; but at once if watched topics were not in a request yet. `wanted`: a
        topic that the broker may create, because there are records for it."""
        self._is_refresh_wanted = True
        if wanted is not None:
            self._wanted.add(wanted)
        if self._refresh_task is None and not self._is_closed:
            since = self._loop.time() - self._refreshed_at
            if since > self.config.retry_backoff_max_ms / 1000:
                self._useless_refreshes = 0
            pause = 0.0 if self._is_unasked else self._retry.delay_ms(self._useless_refreshes) / 1000
            self._refresh_task = self.spawn(self._refresh_after(max(0.0, pause - since)))

    async def refresh(self) -> ClusterImage:
        """The metadata as of now or later. Raises BrokerUnavailableError or the broker's error."""
        if self._refresh_task is not None:
            # It may have been sent before the caller's topics were watched.
            await asyncio.wait([self._refresh_task])
        if self._refresh_task is None:
            self._require_open()
            self._refresh_task = self.spawn(self._refresh_after(0.0))
        await result_of(self._refresh_task)
        return self.image

    async def topic(self, name: str) -> TopicInfo:
        """The topic, with at least one partition. Waits up to request_timeout_ms until it exists.

        Raises UnknownTopicError, AuthorizationError or another BrokerError; BrokerUnavailableError if no
        broker answered; TypeError or ValueError if `name` cannot be a name.
        """
        unwatched = {checked_topic_name(name)} - self._topics
        deadline = self._loop.time() + self.config.request_timeout_ms / 1000
        trouble: errors.ClientError | None = None
        was_answered = False
        failures = 0
        while True:
            info = self.image.topics.get(name)
            if info is not None and info.partitions and info.error is ErrorCode.NONE:
                return info
            is_refused = info is not None and not info.error.retriable and info.error is not ErrorCode.NONE
            # Not by an answer to an earlier call: the permission may have been given since.
            if info is not None and is_refused and failures:
                self._topics -= unwatched
                raise errors.broker_error(info.error, f"topic {name!r}")
            is_hopeless = info is not None and not self._allow_auto_create_topics
            delay = self._retry.delay_ms(failures) / 1000 if failures else 0.0
            if self._loop.time() + delay >= deadline or (is_hopeless and failures > _PATIENT_LOOKS):
                self._topics -= unwatched
                # If a broker answered at all, its answer says more than a later failure.
                raise _absent(name, info) if was_answered or trouble is None else trouble
            failures += 1
            if delay:
                await asyncio.sleep(delay)
            self._wanted.add(name)
            trouble = await self._try_refresh(deadline)
            was_answered |= trouble is None

    async def _try_refresh(self, deadline: float) -> errors.ClientError | None:
        """Refresh. Returns the error if it is retriable, raises it if not."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.refresh()
        except TimeoutError:
            return self._unavailable(None)
        except errors.ClientError as error:
            if not error.retriable:
                raise
            return error
        return None

    async def _refresh_after(self, delay: float) -> None:
        before = self.image
        try:
            if delay:
                await asyncio.sleep(delay)
            self._is_refresh_wanted = False
            await self._fetch_metadata()
            self._is_refresh_wanted = False
        finally:
            self._useless_refreshes = self._useless_refreshes + 1 if self.image == before else 0
            self._refresh_task = None
            self._refreshed_at = self._loop.time()
            self._arm_age_timer()
            if self._is_refresh_wanted:
                # It was requested while this refresh was failing.
                self.request_refresh()
            self._notify()

    async def _fetch_metadata(self) -> None:
        wanted, self._wanted = self._wanted, set()
        self._topics |= wanted
        self._is_unasked = False
        if not self._allow_auto_create_topics:
            wanted = set()
        if wanted:
            await self._ask_for(wanted, may_create=True)
        others = self._topics - wanted
        if others or not wanted or self._watches_all:
            await self._ask_for(None if self._watches_all else others, may_create=False)
        if self._allow_auto_create_topics:
            # Nothing is sent to them, or they would be wanted.
            self._topics -= {name for name in others if self._is_unknown(name)}
        self._warn_of_unknown()
        if self.image.nodes:
            self._links.keep_only({(node.host, node.port) for node in self.image.nodes.values()})

    async def _ask_for(self, names: set[str] | None, *, may_create: bool) -> None:
        """Fetch the metadata of these topics; None: of all."""
        topics: list[DictOf[types.MetadataRequestTopic]] | None = (
            None if names is None else [{"name": name} for name in sorted(names)]
        )
        values: DictOf[types.MetadataRequest] = {
            "topics": topics,
            "allow_auto_topic_creation": may_create,
        }
        answer: types.MetadataResponse = await self.call_any(ApiKey.METADATA, values)
        code = error_code(answer.error_code)
        if code is ErrorCode.REBOOTSTRAP_REQUIRED and self.config.metadata_recovery_strategy == _REBOOTSTRAP:
            self.image = self.image._replace(nodes={})
            answer = await self.call_any(ApiKey.METADATA, values)
            code = error_code(answer.error_code)
        if code is not ErrorCode.NONE:
            raise errors.broker_error(code, "the metadata")
        image = apply_metadata(self.image, answer)
        if topics is None:
            named = {each.name for each in answer.topics}
            kept = {name: info for name, info in image.topics.items() if name in named}
            image = image._replace(topics=kept)
        self.image = image

    def leaders_named(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], endpoints: Iterable[tuple[Any, ...]]
    ) -> None:
        """An answer names leaders by (node id, epoch), and (node id, host, port, rack) of nodes (KIP-951)."""
        image = with_leaders(self.image, leaders, starmap(Node, endpoints))
        if image is not self.image:
            self.image = image
            self._notify()

    def _warn_of_unknown(self) -> None:
        """Once for each topic that stays unknown: who reads it waits until it is created."""
        unknown = filter(self._is_unknown, self._topics)
        self._unknown = {name: self._unknown.get(name, 0) + 1 for name in unknown}
        for name, answers in self._unknown.items():
            if answers == _ANSWERS_BEFORE_WARNING:
                logger.warning("topic_not_found", topic=name)

    def _is_unknown(self, name: str) -> bool:
        info = self.image.topics.get(name)
        return info is not None and info.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _arm_age_timer(self) -> None:
        if self._age_timer is not None:
            self._age_timer.cancel()
        if not self._is_closed:
            age = self.config.metadata_max_age_ms / 1000
            self._age_timer = self._loop.call_later(age, self.request_refresh)

    # Connections

    @property
    def refusal(self) -> errors.AuthenticationError | None:
        """Why a broker did not accept this client the last time; None if the last one accepted it."""
        return self._links.refusal

    def connection(self, node_id: int) -> Connection | None:
        """A ready connection to the node. If there is none, None, and one is being opened."""
        if self._is_closed:
            return None
        node = self.image.nodes.get(node_id)
        if node is None:
            self.request_refresh()
            return None
        return self._links.ready(Address(node.host, node.port))

    async def connected(self, node_id: int, lane: str = "") -> Connection:
        """A connection to the node, one per lane: brokers answer in order, so a request that waits long (a
        fetch) needs its own connection. Raises BrokerUnavailableError."""
        self._require_open()
        node = self.image.nodes.get(node_id)
        if node is None:
            self.request_refresh()
            raise errors.BrokerUnavailableError(f"the metadata names no broker with id {node_id}")
        return await self._links.connected(Address(node.host, node.port, lane))

    async def leader_connection(self, key: TopicPartition) -> Connection:
        """A connection to the partition's leader. Raises BrokerUnavailableError if it has no leader now."""
        leader = self.image.leader(key)
        if leader < 0:
            self.request_refresh()
            raise errors.BrokerUnavailableError(f"{key.topic}-{key.partition} has no leader at the moment")
        return await self.connected(leader)

    async def call_any(self, api_key: ApiKey, values: Mapping[str, object]) -> Any:
        """Send the request to one broker after the other until one answers.

        If none answers, raises an error that no retry changes (a broker lacks the API, or refuses the user),
        because that says more than a connection error; else the last error, of brokers that may answer later
        if there are any.
        """
        self._require_open()
        error: errors.ClientError | None = None
        candidates = self._candidates()
        asked: list[asyncio.Task[Any]] = []
        try:
            while candidates or asked:
                if candidates:
                    asked.append(self._loop.create_task(self._ask(candidates.pop(0), api_key, values)))
                patience = _HEDGE_SECONDS if candidates and api_key in _REPEATABLE else None
                await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                done = [each for each in asked if each.done()]
                asked = [each for each in asked if each not in done]
                for task, failure in [(each, each.exception()) for each in done]:
                    if failure is None:
                        return task.result()
                    if not isinstance(failure, errors.ClientError):
                        raise failure
                    if error is None or (
                        error.retriable and (_is_refused(error) or not _is_refused(failure))
                    ):
                        error = failure
            raise error or errors.BrokerUnavailableError("no broker is known")
        finally:
            for task in asked:
                task.cancel()

    async def _ask(self, address: Address, api_key: ApiKey, values: Mapping[str, object]) -> Any:
        self._require_open()
        return await (await self._links.connected(address)).call(api_key, values)

    def _candidates(self) -> list[Address]:
        """Addresses to try: connected nodes, then other nodes, then the bootstrap servers; addresses that
        failed a short time ago come last. Source: KIP-899, which bootstraps again when all nodes have failed.
        """
        nodes = [Address(node.host, node.port) for node in self.image.nodes.values()]
        may_bootstrap = not nodes or self.config.metadata_recovery_strategy == _REBOOTSTRAP
        bootstrap = [Address(host, port) for host, port in self.config.addresses if may_bootstrap]
        self._rng.shuffle(nodes)
        self._rng.shuffle(bootstrap)
        return self._links.by_readiness(dict.fromkeys(nodes + bootstrap))

    def _unavailable(
        self, trouble: errors.ClientError | None, *, has_waited: bool = True
    ) -> errors.BrokerUnavailableError:
        last = f" ({trouble.message})" if trouble is not None else ""
        waited = f" within {self.config.request_timeout_ms} ms" if has_waited else ""
        return errors.BrokerUnavailableError(f"no broker of {self.config} answered{waited}{last}")

    def require_loop(self) -> None:
        """Raises RuntimeError on another event loop than that of `start`, where nothing would wake a call."""
        if getattr(self, "_loop", running := asyncio.get_running_loop()) is not running:
            raise RuntimeError(
                "this client was started on another event loop. Call it on that loop (from other threads with"
                " asyncio.run_coroutine_threadsafe), or start one client per loop"
            )

    def _require_open(self) -> None:
        if self._is_closed:
            raise errors.ClientClosedError("the client is not open")
        self.require_loop()

    def _notify(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception as error:
                self._failed(error)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run `work` beside the calls of the application, until `close`. An error that is no ClientError is
        logged, and is for `raise_failure`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: "asyncio.Task[Any]") -> None:
        del self._tasks[task]
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, errors.UnexpectedError) or not isinstance(error, errors.ClientError):
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        logger.error("background_task_failed", exc_info=error)
        self._failure = errors.UnexpectedError.of(error)
        self.on_failure()

    def raise_failure(self) -> None:
        """Raise once what ended work of this client, which may have waited for it."""
        failure, self._failure = self._failure, None
        if failure is not None:
            self._notify()  # What ended begins again.
            raise failure


def checked_topic_name(name: object) -> str:
    """`name`, if a request can hold it. Else the requests for all other topics would fail too."""
    if type(name) is not str:
        raise TypeError(f"expected a str as topic name, got {name!r}")
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"expected a topic name that UTF-8 can encode, got {name!r}") from error
    if size_bytes > _LONGEST_NAME_BYTES:
        raise ValueError(f"expected a topic name of at most {_LONGEST_NAME_BYTES} bytes, got {size_bytes}")
    return name


def _is_refused(error: errors.ClientError | None) -> TypeGuard[errors.BrokerUnavailableError]:
    return isinstance(error, errors.BrokerUnavailableError) and error.is_refused


def _absent(name: str, info: TopicInfo | None) -> errors.ClientError:
    code = info.error if info is not None else ErrorCode.NONE
    if code is ErrorCode.NONE:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return errors.broker_error(code, f"topic {name!r}")
