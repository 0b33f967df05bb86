"""The way to the cluster: which broker leads what, and a connection to it.

Owns: the metadata, refreshed when it is too old and whenever somebody found it wrong, and whom to ask.
Invariants:
- one metadata request is under way at a time; whoever asks meanwhile shares the next one;
- refreshes that somebody asked for and that tell nothing new come more and more slowly;
- `start`, `refresh` and `topic` name the servers, or the broker's refusal, when nothing comes of them;
- listeners are called on every change that may let a waiting request go: new metadata, a connection made or
  lost. They are called from the event loop and must not block or raise.
For one event loop.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self

from tidelog.client.backoff import Backoff
from tidelog.client.cluster_config import ClusterConfig
from tidelog.client.connection import Connection
from tidelog.client.errors import (
    BrokerUnavailableError,
    ClientClosedError,
    ClientError,
    UnsupportedVersionError,
    broker_error,
)
from tidelog.client.events import logger
from tidelog.client.links import Address, Links, result_of
from tidelog.client.metadata import EMPTY, ClusterImage, TopicInfo, apply_metadata
from tidelog.client.metrics import ClientMetrics
from tidelog.client.types import TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

__all__ = ["Cluster"]

_LONGEST_NAME_BYTES = 32_767
"""Of any text in the protocol; what brokers allow is for them to say."""
_PATIENT_LOOKS = 3
"""How often a topic that no broker would create is looked for before it is called unknown."""


class Cluster:
    """One per client. `start` before use, `close` at the end. With `allow_auto_create_topics` a broker may
    create a topic that is asked for."""

    def __init__(
        self,
        config: ClusterConfig,
        rng: random.Random | None = None,
        *,
        allow_auto_create_topics: bool = False,
    ) -> None:
        self.config = config
        self._allow_auto_create_topics = allow_auto_create_topics
        self.image: ClusterImage = EMPTY
        self.metrics = ClientMetrics()
        self._rng = rng or random.Random()
        self._retry = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng)
        self._links = Links(
            config,
            self.metrics,
            self._rng,
            spawn=self._spawn,
            on_change=self._notify,
            on_trouble=self.request_refresh,
        )
        self._topics: set[str] = set()
        # Topics are watched that no request named yet: nothing is known to be wrong with them.
        self._is_unasked = False
        self._listeners: list[Callable[[], None]] = []
        self._refresh_task: asyncio.Task[None] | None = None
        self._refreshed_at = 0.0
        self._is_refresh_wanted = False
        # Refreshes in a row, close to each other, that failed or told nothing new.
        self._useless_refreshes = 0
        self._age_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Find a broker and learn who else there is.

        Raises BrokerUnavailableError, which names the servers, after request_timeout_ms without an answer; at
        once what no retry can mend (UnsupportedVersionError).
        """
        self._loop = asyncio.get_running_loop()
        trouble: ClientError | None = None
        failures = 0
        try:
            async with asyncio.timeout(self.config.request_timeout_ms / 1000):
                while True:
                    try:
                        await self.refresh()
                        return
                    except ClientError as error:
                        if not error.retriable:
                            raise
                        trouble = error
                    failures += 1
                    await asyncio.sleep(self._retry.delay_ms(failures) / 1000)
        except TimeoutError:
            await self.close()
            raise self._unavailable(trouble) from trouble
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close every connection. Harmless when closed."""
        self._is_closed = True
        if self._age_timer is not None:
            self._age_timer.cancel()
        self._links.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` on each change of metadata or connections."""
        self._listeners.append(listener)

    # Metadata

    def watch_topics(self, topics: Iterable[str]) -> None:
        """Keep the metadata of these topics from the next refresh on, which a new one need not wait for."""
        new = {_checked(name) for name in topics} - self._topics
        if new:
            self._topics |= new
            self._is_unasked = True

    def request_refresh(self) -> None:
        """Somebody found the metadata wrong: refresh it soon, at most once every retry_backoff_ms, and less
        often as long as it tells nothing new; but at once for topics that no request named yet."""
        self._is_refresh_wanted = True
        if self._refresh_task is None and not self._is_closed:
            since = self._loop.time() - self._refreshed_at
            if since > self.config.retry_backoff_max_ms / 1000:
                self._useless_refreshes = 0
            pause = 0.0 if self._is_unasked else self._retry.delay_ms(self._useless_refreshes) / 1000
            self._refresh_task = self._spawn(self._refresh_after(max(0.0, pause - since)))

    async def refresh(self) -> ClusterImage:
        """The metadata as of now or later. Raises BrokerUnavailableError or what the broker refused with."""
        if self._refresh_task is not None:
            # It may have been asked before the caller's topics were watched.
            await asyncio.wait([self._refresh_task])
        if self._refresh_task is None:
            self._require_open()
            self._refresh_task = self._spawn(self._refresh_after(0.0))
        await result_of(self._refresh_task)
        return self.image

    async def topic(self, name: str) -> TopicInfo:
        """The topic with at least one partition, waiting up to request_timeout_ms for it to appear.

        Raises UnknownTopicError, AuthorizationError or another BrokerError; BrokerUnavailableError when it
        could not be asked for; TypeError or ValueError for what is no name.
        """
        _checked(name)
        deadline = self._loop.time() + self.config.request_timeout_ms / 1000
        trouble: ClientError | None = None
        was_answered = False
        failures = 0
        while True:
            info = self.image.topics.get(name)
            if info is not None and info.partitions and info.error is ErrorCode.NONE:
                return info
            if info is not None and not info.error.retriable and info.error is not ErrorCode.NONE:
                self._topics.discard(name)
                raise broker_error(info.error, f"topic {name!r}")
            is_hopeless = info is not None and not self._allow_auto_create_topics
            delay = self._retry.delay_ms(failures) / 1000 if failures else 0.0
            if self._loop.time() + delay >= deadline or (is_hopeless and failures > _PATIENT_LOOKS):
                self._topics.discard(name)
                # Where a broker answered at all, its answer says more than what went wrong later.
                raise _absent(name, info) if was_answered or trouble is None else trouble
            failures += 1
            if delay:
                await asyncio.sleep(delay)
            self._topics.add(name)
            trouble = await self._try_refresh(deadline)
            was_answered |= trouble is None

    async def _try_refresh(self, deadline: float) -> ClientError | None:
        """Refresh, or say what is in the way and may pass."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.refresh()
        except TimeoutError:
            return self._unavailable(None)
        except ClientError as error:
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
                # Asked for while this one was about to fail.
                self.request_refresh()
            self._notify()

    async def _fetch_metadata(self) -> None:
        topics = sorted(self._topics)
        self._is_unasked = False
        answer = await self.call_any(
            ApiKey.METADATA,
            {
                "topics": [{"name": name} for name in topics],
                "allow_auto_topic_creation": self._allow_auto_create_topics,
            },
        )
        self.image = apply_metadata(self.image, answer)
        if self.image.nodes:
            self._links.keep_only({(node.host, node.port) for node in self.image.nodes.values()})

    def _arm_age_timer(self) -> None:
        if self._age_timer is not None:
            self._age_timer.cancel()
        if not self._is_closed:
            age = self.config.metadata_max_age_ms / 1000
            self._age_timer = self._loop.call_later(age, self.request_refresh)

    # Connections

    def connection(self, node_id: int) -> Connection | None:
        """A connection to the node that is ready; None while there is none, and then one is being made."""
        if self._is_closed:
            return None
        node = self.image.nodes.get(node_id)
        if node is None:
            self.request_refresh()
            return None
        return self._links.ready(Address(node.host, node.port))

    async def connected(self, node_id: int, lane: str = "") -> Connection:
        """A connection to the node, one for each lane: brokers answer in order, so that what waits long (a
        fetch) needs its own. Raises BrokerUnavailableError."""
        self._require_open()
        node = self.image.nodes.get(node_id)
        if node is None:
            self.request_refresh()
            raise BrokerUnavailableError(f"no broker has the id {node_id}")
        return await self._links.connected(Address(node.host, node.port, lane))

    async def leader_connection(self, key: TopicPartition) -> Connection:
        """A connection to the partition's leader. Raises BrokerUnavailableError when it has none now."""
        leader = self.image.leader(key)
        if leader < 0:
            self.request_refresh()
            raise BrokerUnavailableError(f"{key.topic}-{key.partition} has no leader at the moment")
        return await self.connected(leader)

    async def call_any(self, api_key: ApiKey, values: dict[str, object]) -> Any:
        """Ask any broker, one after the other.

        Raises the last error when none answers; but where one lacks the API, that, for it says more than that
        another cannot be reached.
        """
        error: ClientError = BrokerUnavailableError("no broker is known")
        for address in self._candidates():
            try:
                self._require_open()
                connection = await self._links.connected(address)
                return await connection.call(api_key, values)
            except ClientError as caught:
                if not isinstance(error, UnsupportedVersionError):
                    error = caught
        raise error

    def _candidates(self) -> list[Address]:
        """Addresses to try: connected nodes first, then the other nodes, then the bootstrap servers; those
        that failed just now last."""
        nodes = [Address(node.host, node.port) for node in self.image.nodes.values()]
        bootstrap = [Address(host, port) for host, port in self.config.addresses]
        self._rng.shuffle(nodes)
        self._rng.shuffle(bootstrap)
        return self._links.by_readiness(dict.fromkeys(nodes + bootstrap))

    def _unavailable(self, trouble: ClientError | None) -> BrokerUnavailableError:
        last = f" ({trouble.message})" if trouble is not None else ""
        waited = f"within {self.config.request_timeout_ms} ms"
        return BrokerUnavailableError(f"no broker of {self.config} answered {waited}{last}")

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the client was closed")

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            if not isinstance(error, ClientError):
                logger.error("background_task_failed", exc_info=error)


def _checked(name: str) -> str:
    """`name`, if a request can hold it: else it would fail those for all other topics too."""
    if type(name) is not str:
        raise TypeError(f"a topic is named {name!r}, expected a str")
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"topic {name!r}: expected text that UTF-8 can hold") from error
    if size_bytes > _LONGEST_NAME_BYTES:
        raise ValueError(f"a topic's name has {size_bytes} bytes, expected at most {_LONGEST_NAME_BYTES}")
    return name


def _absent(name: str, info: TopicInfo | None) -> ClientError:
    code = info.error if info is not None else ErrorCode.NONE
    if code is ErrorCode.NONE:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return broker_error(code, f"topic {name!r}")
