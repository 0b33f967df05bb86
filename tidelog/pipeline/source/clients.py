"""Connections that stay open between the calls of Spark: a Python worker reads task after task, and a
stream's planner asks for each micro-batch.

Owns the clients of this process, at most one idle per cluster, each with an event loop that runs only during
a call.

Invariants: a client has one user at a time. After an error, and after a read that was ended half-way, it is
closed, so that no request of an earlier user is in flight. At most `_MOST_IDLE` are kept, none that knows
more than `_MOST_TOPICS` topics. A client that was idle for `_IDLE_SECONDS` is not used again. Spark ends a
worker that is idle for a minute, and its connections with it. A forked process does not touch the clients of
its parent.
"""

import asyncio
import atexit
import os
import time
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.producer.session_lookup import repeat
from tidelog.wire.cluster import Cluster
from tidelog.wire.cluster_config import ClusterConfig

_MOST_IDLE = 4
_MOST_TOPICS = 1_000
_IDLE_SECONDS = 30.0

_Result = TypeVar("_Result")


class Client:
    """A view of a cluster with its event loop. Call `know` before the first request."""

    def __init__(self, config: ClusterConfig) -> None:
        self.cluster = Cluster(config, ASKED_APIS)
        self.idle_since = 0.0
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._is_started = False

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Wait for `work`. Raises what it raises.

        Not Runner.run: it formats the result, here megabytes of records, as text of its handler of SIGINT.
        """
        return self._runner.get_loop().run_until_complete(work)

    def begin(self, work: Coroutine[Any, Any, _Result]) -> "asyncio.Task[_Result]":
        """Begin `work`, which goes on whenever `run` is called: its first request is sent at once."""
        task = self._runner.get_loop().create_task(work)
        self.run(asyncio.sleep(0))
        return task

    async def know(self, topics: Iterable[str], *, anew: bool = False) -> None:
        """Be connected, and know these topics; `anew`: as they are now. Raises ClientError."""
        self.cluster.watch_topics(topics)
        if not self._is_started:
            await self.cluster.start()
            self._is_started = True
        elif anew:
            await repeat(self.cluster, self.cluster.refresh)

    def close(self) -> None:
        """Close the connections, and cancel what was begun."""
        try:
            self.run(self.cluster.close())
        finally:
            self._runner.close()


_idle: dict[ClusterConfig, Client] = {}
_of_parent: list[Client] = []
"""Those that a fork copied: even their collection would reach the parent's event loop."""


@contextmanager
def client_of(config: ClusterConfig) -> Iterator[Client]:
    """A client for this block only, connected already if an earlier one was kept."""
    _close_old()
    client = _idle.pop(config, None) or Client(config)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    # One that another thread has kept meanwhile.
    _close(config)
    if len(client.cluster.image.topics) > _MOST_TOPICS:
        client.close()
        return
    client.idle_since = time.monotonic()
    _idle[config] = client
    _close_old()


def _close_old() -> None:
    now = time.monotonic()
    for number, (config, client) in enumerate(reversed(list(_idle.items()))):
        if number >= _MOST_IDLE or now - client.idle_since > _IDLE_SECONDS:
            _close(config)


def _close(config: ClusterConfig) -> None:
    if (client := _idle.pop(config, None)) is not None:
        client.close()


def close_idle() -> None:
    """Close all clients that nobody uses."""
    for config in list(_idle):
        _close(config)


def _leave_to_parent() -> None:
    _of_parent.extend(_idle.values())
    _idle.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(close_idle)
