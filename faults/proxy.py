"""A TCP proxy between Kafka clients and a broker that breaks the network on request.

Owns every connection that passes through it, and the requested faults. A broker announces its own address in
its metadata, so start it with `advertised.port` set to the proxy's port.

Invariants:
- Whole frames are forwarded in order and unchanged. A response is never lost alone: after one is dropped, all
  later ones on that connection are dropped too, as on a real network, until the connection is cut.
- A fault applies to a number of frames: requesting one returns a `Fault` whose `wait()` ends after the last.
- A cut resets (RST) both sides at once, except `cut_after_request`, which lets the broker finish its work.

Every method belongs to the event loop that ran `start()`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from faults.link import Action, Link, Policy, Request, open_stream, reset
from tidelog.protocol.schema import ApiKey

_READ_BUFFER_BYTES = 1024 * 1024


@dataclass(slots=True)
class ProxyCounters:
    """What the proxy has done since it started; requests and responses are whole frames."""

    connections_opened: int = 0
    connections_refused: int = 0
    connections_cut: int = 0
    upstream_failures: int = 0
    requests_forwarded: int = 0
    requests_dropped: int = 0
    responses_forwarded: int = 0
    responses_dropped: int = 0
    bytes_to_client: int = 0


@dataclass(eq=False, slots=True)
class Fault:
    """A requested fault: it still applies to `remaining` frames. `api_key` None means any frame.

    `links` are the connections that it has muted and that its end will cut.
    """

    action: Action
    api_key: int | None
    remaining: int
    patience_ms: float | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)
    links: set[Link] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None

    async def wait(self, timeout_ms: float = 120_000) -> None:
        """Return after it hit all its frames, or its patience ended. TimeoutError after `timeout_ms`."""
        async with asyncio.timeout(timeout_ms / 1000):
            await self.done.wait()


class FaultProxy(Policy):
    """Forwards 127.0.0.1:`port` (port 0: any free one) to the upstream address, and breaks on request.

    `delay_ms` may be set at any time: each response is held back that long, without loss of pipelining.
    While `refusing` is true, new connections are reset as soon as they are made. `tap`, if set, is called
    with each request before it goes to the broker.
    """

    def __init__(self, upstream_host: str, upstream_port: int, *, port: int = 0) -> None:
        self.upstream_host = upstream_host
        self.upstream_port = upstream_port
        self.host, self.port = "127.0.0.1", port
        self.delay_ms = 0.0
        self.refusing = False
        self.tap: Callable[[Request], None] | None = None
        self.counters = ProxyCounters()
        self._faults: list[Fault] = []
        self._links: set[Link] = set()
        self._accepted: set[asyncio.Task[None]] = set()
        self._held_api_keys: frozenset[int | None] = frozenset()
        self._released = asyncio.Event()
        self._changed = asyncio.Event()
        self._refusal: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen, and return the port. OSError if it is in use."""
        self._server = await asyncio.start_server(
            self._accept, self.host, self.port, limit=_READ_BUFFER_BYTES
        )
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def close(self) -> None:
        """Stop listening, cut what is open, and wait until all of it is closed."""
        if self._server is not None:
            self._server.close()
        for timer in [self._refusal, *(fault.timer for fault in self._faults)]:
            if timer is not None:
                timer.cancel()
        for link in list(self._links):
            link.cut()
        await asyncio.gather(*self._accepted, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def drop_responses(
        self, count: int, *, api_key: int | None = ApiKey.PRODUCE, patience_ms: float | None = 500
    ) -> Fault:
        """Drop the next `count` responses, then cut the connections that lost one.

        The broker has done the work, but the client gets no answer. If fewer are in flight, the cut comes
        `patience_ms` after the first dropped response. With None the connections stay open without responses
        after the count is reached, until the client's own request timeout.
        """
        return self._order(Fault(Action.SWALLOW, api_key, count, patience_ms))

    def cut_before_request(self, count: int = 1, *, api_key: int | None = ApiKey.PRODUCE) -> Fault:
        """Cut each connection that sends one of the next `count` requests; the broker never sees these."""
        return self._order(Fault(Action.CUT_BEFORE, api_key, count))

    def cut_within_request(self, count: int = 1, *, api_key: int | None = ApiKey.PRODUCE) -> Fault:
        """Forward half of each of the next `count` requests and cut: the broker must not execute them."""
        return self._order(Fault(Action.CUT_WITHIN, api_key, count))

    def cut_after_request(self, count: int = 1, *, api_key: int | None = ApiKey.PRODUCE) -> Fault:
        """Forward the next `count` requests and cut the client off at once, before the broker answers."""
        return self._order(Fault(Action.CUT_AFTER, api_key, count))

    def cut_connections(self) -> int:
        """Reset every open connection, now; return how many."""
        links = list(self._links)
        for link in links:
            self._cut(link)
        return len(links)

    def refuse_connections(self, duration_ms: float) -> None:
        """Reset new connections for `duration_ms`. Open ones continue: see `cut_connections`."""
        if self._refusal is not None:
            self._refusal.cancel()
        self.refusing = True
        self._refusal = asyncio.get_running_loop().call_later(duration_ms / 1000, self._accept_again)

    def retarget(self, port: int) -> None:
        """Send new connections to another broker. Open ones stay where they are: see `cut_connections`."""
        self.upstream_port = port

    def hold_responses(self, *, api_key: int = ApiKey.PRODUCE) -> None:
        """Keep responses to `api_key`, and what follows them, in the proxy until `release_responses`."""
        self._released.clear()
        self._held_api_keys |= {api_key}

    def release_responses(self) -> None:
        """Deliver what `hold_responses` kept, in order."""
        self._held_api_keys = frozenset()
        self._released.set()

    def heal(self) -> None:
        """Cancel the faults that are not done, and forward everything; mute connections are cut."""
        for fault in list(self._faults):
            self._finish(fault)
        for link in list(self._links):
            if link.muted:
                self._cut(link)
        if self._refusal is not None:
            self._refusal.cancel()
        self.delay_ms = 0.0
        self.refusing = False
        self.release_responses()

    def in_flight(self, api_key: int = ApiKey.PRODUCE) -> list[Request]:
        """Requests that went to the broker and whose response has not been written to the client."""
        every = (request for link in self._links for request in link.in_flight.values())
        return [request for request in every if request.api_key == api_key]

    def answered(self, api_key: int = ApiKey.PRODUCE) -> int:
        """Those of `in_flight` that the broker has answered, and the proxy still keeps."""
        return sum(list(link.answered.values()).count(api_key) for link in self._links)

    async def wait_until(self, condition: Callable[[], bool], timeout_ms: float = 120_000) -> None:
        """Return as soon as `condition` holds; checked after each frame and connection. TimeoutError."""
        async with asyncio.timeout(timeout_ms / 1000):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    # What a link asks (see `faults.link.Policy`).

    def on_request(self, link: Link, request: Request) -> Action:
        fault = self._next_fault(request.api_key, (Action.CUT_BEFORE, Action.CUT_WITHIN, Action.CUT_AFTER))
        if self.tap is not None and (fault is None or fault.action is Action.CUT_AFTER):
            self.tap(request)
        if fault is None:
            return Action.FORWARD
        self.counters.connections_cut += 1
        self._hit(fault)
        return fault.action

    def on_response(self, link: Link, api_key: int | None) -> Action:
        fault = self._next_fault(api_key, (Action.SWALLOW,))
        if fault is None:
            return Action.FORWARD
        fault.links.add(link)
        if fault.timer is None and fault.patience_ms is not None:
            loop = asyncio.get_running_loop()
            fault.timer = loop.call_later(fault.patience_ms / 1000, self._finish, fault)
        self._hit(fault)
        return fault.action

    def on_change(self) -> None:
        self._changed.set()

    def is_holding(self, api_key: int | None) -> bool:
        return api_key in self._held_api_keys

    async def released(self) -> None:
        await self._released.wait()

    def count(self, counter: str, amount: int = 1) -> None:
        setattr(self.counters, counter, getattr(self.counters, counter) + amount)

    def _order(self, fault: Fault) -> Fault:
        if fault.remaining <= 0:
            raise ValueError(f"a fault hits at least one frame, not {fault.remaining}")
        self._faults.append(fault)
        return fault

    def _next_fault(self, api_key: int | None, actions: tuple[Action, ...]) -> Fault | None:
        for fault in self._faults:
            if fault.action in actions and fault.api_key in (None, api_key):
                return fault
        return None

    def _hit(self, fault: Fault) -> None:
        fault.remaining -= 1
        if fault.remaining == 0:
            self._finish(fault)

    def _finish(self, fault: Fault) -> None:
        if fault not in self._faults:
            return
        self._faults.remove(fault)
        if fault.timer is not None:
            fault.timer.cancel()
            for link in fault.links & self._links:
                self._cut(link)
        fault.done.set()

    def _cut(self, link: Link) -> None:
        self.counters.connections_cut += 1
        link.cut()

    def _accept_again(self) -> None:
        self.refusing = False
        self.on_change()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._accepted.add(task)
            task.add_done_callback(self._accepted.discard)
        if self.refusing:
            self.counters.connections_refused += 1
            reset(writer)
            return
        try:
            broker = await open_stream(self.upstream_host, self.upstream_port)
        except OSError:
            self.counters.upstream_failures += 1
            reset(writer)
            return
        link = Link(self, (reader, writer), broker)
        self.counters.connections_opened += 1
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            self.on_change()
