"""Connections between machines on virtual time, which lose, delay and repeat what they carry.

Owns the transports, and which ways between machines are cut. What a node writes at once is a request. What a
network does: a connection carries bytes in order with delays; it may be cut before a request arrives, or
after; it may swallow all answers from some moment on; a request that was under way, or a copy of one, may
arrive much later by another path, where nobody hears its answer. A way may be closed in one direction: what
is sent meanwhile arrives once it is open again, as TCP repeats it, and whoever gave up the connection before
has sent it all the same. Invariant: nothing comes from or to a dead node, except what was under way.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, NamedTuple

from tests.simulation.virtual_loop import NODE, Node, VirtualLoop
from tidelog.protocol.schema import ApiKey

_NEVER_AT_ONCE_S = 1e-6
_WITHIN_THE_NEXT_TRANSACTION_S = 0.5
_Sent = tuple[Callable[..., None], tuple[Any, ...], Context]
"""What to call, with what, and as whom."""


class NetworkFaults(NamedTuple):
    """Chances of each mishap per request, and the longest delays in seconds. With `ghost_s` 0 nothing of a
    client arrives after its connection was cut."""

    cut_before: float = 0.0
    cut_after: float = 0.0
    swallow: float = 0.0
    repeat: float = 0.0
    late_marker: float = 0.0
    """A copy of a broker's request for markers arrives late."""
    delay_s: float = 0.004
    ghost_s: float = 4.0


CALM = NetworkFaults()


class Endpoint:
    """Where a broker listens: `accept` makes the protocol of one connection, None while nobody listens."""

    def __init__(self) -> None:
        self.accept: Callable[[], asyncio.BufferedProtocol] | None = None
        self.node: Node | None = None


class Network:
    """All connections, and the ways between machines."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.faults = CALM
        self.endpoints: dict[str, Endpoint] = {}
        self.links: dict[Link, None] = {}
        self.counts: dict[str, int] = {}
        self.in_order: set[str] = set()
        """Machines of which nothing arrives late."""
        self.loses: Callable[[Node, bytes], bool] | None = None
        """Whether a request of a node is lost with its connection; None where only chance decides."""
        self._closed: dict[tuple[str, str], list[_Sent]] = {}
        self._context = Context()

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def cut_of(self, node: Node) -> None:
        """The node has died: its connections end."""
        for link in [each for each in self.links if node in (each.client.node, each.server.node)]:
            link.cut(link.client if node is link.client.node else link.server)

    def delay_s(self) -> float:
        # Mostly short, now and then the longest.
        return self.faults.delay_s * self.rng.random() ** 3 + _NEVER_AT_ONCE_S

    def close_way(self, source: str, target: str) -> None:
        """Let nothing from one machine reach the other, until `open_way`."""
        self._closed.setdefault((source, target), [])

    def open_way(self, source: str, target: str) -> None:
        for callback, arguments, context in self._closed.pop((source, target), ()):
            self.loop.call_soon(callback, *arguments, context=context)

    def open_all_ways(self) -> None:
        for source, target in list(self._closed):
            self.open_way(source, target)

    def carry(
        self,
        source: str,
        target: str,
        when: float,
        callback: Callable[..., None],
        *arguments: Any,
        context: Context | None = None,
    ) -> None:
        """Call at this time, or when the way is open."""
        sent = (callback, arguments, context or Context())
        self.loop.call_at(when, self._arrive, (source, target), sent, context=self._context)

    def _arrive(self, way: tuple[str, str], sent: _Sent) -> None:
        if (waiting := self._closed.get(way)) is not None:
            waiting.append(sent)
        else:
            callback, arguments, context = sent
            self.loop.call_soon(callback, *arguments, context=context)

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """`create_connection` of the loop."""
        node = NODE.get()
        assert node is not None
        ready: asyncio.Future[None] = self.loop.create_future()

        def answer() -> None:
            if not ready.done():
                ready.set_result(None)

        back = node.context.copy()
        soon = self.loop.time() + self.delay_s()
        # The handshake of TCP needs both ways.
        self.carry(
            node.machine, host, soon, lambda: self.carry(host, node.machine, soon, answer, context=back)
        )
        await ready
        endpoint = self.endpoints[f"{host}:{port}"]
        if endpoint.accept is None or endpoint.node is None:
            raise ConnectionRefusedError("nobody listens")
        protocol = factory()
        link = Link(self, node, protocol, endpoint.node, endpoint.accept)
        protocol.connection_made(link.client)
        return link.client, protocol

    def deliver_late(self, link: "Link", frame: bytes, longest_s: float) -> None:
        """A request arrives by another path, long after; nobody hears the answer."""
        if not link.has_ghosts or link.server.node is None:
            return
        self.count("late requests of nobody")
        machine = link.server.node.machine
        self.loop.call_later(self.rng.random() * longest_s, self.deliver, machine, frame)

    def deliver(self, machine: str, frame: bytes) -> None:
        """A request arrives at a broker, and nobody hears the answer."""
        for endpoint in self.endpoints.values():
            if endpoint.accept is not None and endpoint.node is not None and endpoint.node.machine == machine:
                link = Link(self, None, None, endpoint.node, endpoint.accept)
                link.server.receive_soon(frame)


class Link:
    """One connection. `client` and `server` are its two ends."""

    def __init__(
        self,
        network: Network,
        client_node: Node | None,
        client: Any,
        server_node: Node,
        accept: Callable[[], asyncio.BufferedProtocol],
    ) -> None:
        self.network = network
        self.is_open = True
        self.is_swallowing = client is None
        self.client = End(self, client_node, client)
        self.server = End(self, server_node, None)
        network.links[self] = None
        network.loop.call_soon(self._accept, accept, context=server_node.context.copy())

    def _accept(self, accept: Callable[[], asyncio.BufferedProtocol]) -> None:
        self.server.protocol = accept()
        self.server.protocol.connection_made(self.server)
        if not self.is_open:
            self.server._lost()

    @property
    def has_ghosts(self) -> bool:
        """Whether requests of the client may arrive late."""
        client = self.client.node
        if client is not None and client.machine in self.network.in_order:
            return False
        return self.network.faults.ghost_s > 0

    def way_to(self, end: "End") -> tuple[str, str]:
        """The machines from the other end to this one."""
        client = "" if self.client.node is None else self.client.node.machine
        server = "" if self.server.node is None else self.server.node.machine
        return (client, server) if end is self.server else (server, client)

    def write(self, end: "End", data: bytes) -> None:
        if not self.is_open or (end.node is not None and end.node.is_dead):
            return
        if end is self.server:
            if not self.is_swallowing:
                self.client.receive_soon(data)
            return
        network, faults = self.network, self.network.faults
        if network.loses is not None and end.node is not None and network.loses(end.node, data):
            self.cut_soon()
            return
        if _is_of_markers(data) and network.rng.random() < faults.late_marker:
            network.deliver_late(self, data, _WITHIN_THE_NEXT_TRANSACTION_S)
        drawn = network.rng.random()
        if drawn < faults.cut_before:
            network.count("requests lost")
            if network.rng.random() < 0.5:
                network.deliver_late(self, data, faults.ghost_s)
            self.cut_soon()
            return
        drawn -= faults.cut_before
        if drawn < faults.repeat:
            network.deliver_late(self, data, faults.ghost_s)
        self.server.receive_soon(data)
        drawn -= faults.repeat
        if drawn < faults.cut_after:
            network.count("answers lost")
            self.is_swallowing = True
            network.loop.call_later(2 * network.delay_s(), self.cut)
        elif drawn - faults.cut_after < faults.swallow:
            network.count("answers swallowed")
            self.is_swallowing = True

    def cut_soon(self) -> None:
        self.network.loop.call_later(self.network.delay_s(), self.cut)

    def cut(self, by: "End | None" = None) -> None:
        """Both ends lose the connection; what is under way to the server may still be processed.

        The other end hears of it when the way is open.
        """
        if not self.is_open:
            return
        self.is_open = False
        self.network.links.pop(self, None)
        for end in (self.client, self.server):
            if by is None or end is by:
                end.lose()
            else:
                self.network.carry(*self.way_to(end), self.network.loop.time(), end.lose)


def _is_of_markers(frame: bytes) -> bool:
    return int.from_bytes(frame[4:6], "big") == ApiKey.WRITE_TXN_MARKERS


class End(asyncio.Transport):
    """One end of a link."""

    def __init__(self, link: Link, node: Node | None, protocol: Any) -> None:
        super().__init__()
        self.link = link
        self.node = node
        self.protocol = protocol
        self._arrives = 0.0
        self._is_reading = True
        self._is_closed = False
        """Whether its protocol has closed it, or knows that it is lost: then that gets nothing more."""
        self._under_way: deque[bytes] = deque()
        self._unread: deque[bytes] = deque()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("virtual", 1) if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.link.write(self, bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return not self.link.is_open

    def close(self) -> None:
        self._is_closed = True
        self.link.cut(self)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._flush()

    def receive_soon(self, data: bytes) -> None:
        """The bytes arrive after a delay, behind all that were sent before."""
        network = self.link.network
        self._arrives = max(self._arrives + _NEVER_AT_ONCE_S, network.loop.time() + network.delay_s())
        self._under_way.append(data)
        context = Context() if self.node is None else self.node.context.copy()
        network.carry(*self.link.way_to(self), self._arrives, self._receive, context=context)

    def _receive(self) -> None:
        # The oldest, whichever this was: what waited for the way must not be overtaken.
        data = self._under_way.popleft()
        if self.link.is_open or self._may_be_late:
            self._unread.append(data)
            self._flush()

    @property
    def _may_be_late(self) -> bool:
        """A server processes what had arrived at its machine, though the client is gone."""
        if self is not self.link.server:
            return False
        client = self.link.client.node
        is_of_dead_broker = client is not None and client.is_dead and client.machine.startswith("broker")
        return self.link.has_ghosts or is_of_dead_broker

    def _flush(self) -> None:
        while self._is_reading and not self._is_closed and self._unread and self.protocol is not None:
            data = self._unread.popleft()
            if isinstance(self.protocol, asyncio.Protocol):
                self.protocol.data_received(data)
                continue
            view = memoryview(data)
            while view and not self._is_closed:
                buffer = self.protocol.get_buffer(len(view))
                count = min(len(buffer), len(view))
                buffer[:count] = view[:count]
                self.protocol.buffer_updated(count)
                view = view[count:]

    def lose(self) -> None:
        if self.protocol is None:
            return
        if self.node is None:
            return
        self.link.network.loop.call_soon(self._lost, context=self.node.context.copy())

    def _lost(self) -> None:
        self._is_closed = True
        self.protocol.connection_lost(None)
