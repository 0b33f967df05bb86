"""Connections that have not finished their TLS handshake: how many, how long, and how they end.

Owns these connections until they are `ended`, and the one thread that does the costly steps (signatures), so
that neither the loop nor the threads that sync files wait for them. Invariants: at most `MOST` handshakes are
in progress, and a further one replaces the oldest, so that idle clients do not block others; those of an
address count among its connections; each ends within `DEADLINE_SECONDS`; a connection that fails causes one
throttled event.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.observability.metrics import Metrics

if TYPE_CHECKING:
    from tidelog.broker.security.tls import ListenerTls

MOST = 256
DEADLINE_SECONDS = 30.0


class Handshake(Protocol):
    """The transport of a connection whose handshake is in progress."""

    host: str

    def handshake_step(self) -> bool: ...

    def step_taken(self, is_done: bool, error: BaseException | None) -> None: ...

    def refuse(self, reason: str, advice: str = "") -> None: ...

    def abort(self) -> None: ...


class Handshakes:
    """Takes the steps of one broker's TLS handshakes, and bounds their number and their time."""

    def __init__(
        self, events: PeerEvents, metrics: Metrics, admits: Callable[[str, int], bool] = lambda *_: True
    ) -> None:
        """`admits` returns whether an address with this number of handshakes may begin one more."""
        self._admits = admits
        self._events = events
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[Handshake, asyncio.TimerHandle] = {}
        self._thread: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, one: Handshake) -> None:
        if not self._admits(one.host, sum(each.host == one.host for each in self._under_way)):
            one.abort()
            return
        if len(self._under_way) >= MOST:
            next(iter(self._under_way)).refuse(
                f"more than {MOST} handshakes are in progress, and this is the oldest"
            )
        self._under_way[one] = self._loop.call_later(DEADLINE_SECONDS, self._too_late, one)

    def _too_late(self, one: Handshake) -> None:
        one.refuse(f"the handshake took longer than {DEADLINE_SECONDS:g} seconds")

    def take_step(self, one: Handshake) -> None:
        """Do the next step of a handshake and report it to `one.step_taken`."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "tls-handshakes")
        self._loop.run_in_executor(self._thread, one.handshake_step).add_done_callback(_reporter(one))

    def refused(self, raw: asyncio.Transport, tls: ListenerTls, reason: str, advice: str) -> None:
        """The connection over `raw` is closed, because its TLS is not as it should be."""
        self._metrics.tls_failed()
        peer = raw.get_extra_info("peername")
        host, port = (str(peer[0]), peer[1]) if isinstance(peer, tuple) else ("", 0)
        fields = {"advice": advice} if advice else {}
        self._events.warning(
            "connection_closed_bad_tls",
            host,
            peer=f"{host}:{port}",
            listener=tls.name,
            reason=reason,
            **fields,
        )

    def ended(self, one: Handshake) -> None:
        """The handshake is done, or its connection is closed."""
        deadline = self._under_way.pop(one, None)
        if deadline is not None:
            deadline.cancel()

    def close(self) -> None:
        """Close the connections that have not finished their handshake."""
        for one in list(self._under_way):
            one.abort()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _reporter(one: Handshake) -> Callable[[asyncio.Future[bool]], None]:
    def report(step: asyncio.Future[bool]) -> None:
        if not step.cancelled():
            error = step.exception()
            one.step_taken(error is None and step.result(), error)

    return report
