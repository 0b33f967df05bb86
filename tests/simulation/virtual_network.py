"""Connections between nodes on virtual time, which lose, delay and repeat what they carry.

Owns the transports. What a client writes at once is a request. What a network does: a connection carries
bytes in order with delays; it may be cut before a request arrives, or after; it may swallow all answers from
some moment on; a request that was under way, or a copy of one, may arrive much later by another path, where
nobody hears its answer. Invariant: nothing comes from or to a dead node, except what was under way.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.simulation.virtual_loop import NODE, Node, VirtualLoop

_NEVER_AT_ONCE_S = 1e-6


class NetworkFaults(NamedTuple):
    """Chances of each mishap per request, and the longest delays in seconds. With `ghost_s` 0 nothing arrives
    after its connection was cut."""

    cut_before: float = 0.0
    cut_after: float = 0.0
    swallow: float = 0.0
    repeat: float = 0.0
    delay_s: float = 0.004
    ghost_s: float = 4.0


CALM = NetworkFaults()


class Endpoint:
    """Where a broker listens: `accept` makes the protocol of one connection, None while nobody listens."""

    def __init__(self) -> None:
        self.accept: Callable[[], asyncio.BufferedProtocol] | None = None
        self.node: Node | None = None


class Network:
    """All connections to one endpoint."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.faults = CALM
        self.endpoint = Endpoint()
        self.links: dict[Link, None] = {}
        self.counts: dict[str, int] = {}
        loop.connect = self._connect

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def cut_of(self, node: Node) -> None:
        """The node has died: its connections end."""
        for link in [each for each in self.links if node in (each.client.node, each.server.node)]:
            link.cut()

    def delay_s(self) -> float:
        # Mostly short, now and then the longest.
        return self.faults.delay_s * self.rng.random() ** 3 + _NEVER_AT_ONCE_S

    async def _connect(self, factory: Callable[[], Any]) -> tuple[Any, Any]:
        await self.loop.after(self.delay_s())
        endpoint = self.endpoint
        if endpoint.accept is None or endpoint.node is None or endpoint.node.is_paused:
            raise ConnectionRefusedError("nobody listens")
        protocol = factory()
        link = Link(self, NODE.get(), protocol, endpoint.node, endpoint.accept)
        protocol.connection_made(link.client)
        return link.client, protocol

    def deliver_late(self, frame: bytes) -> None:
        """A request arrives by another path, long after; nobody hears the answer."""
        if not self.faults.ghost_s:
            return
        self.count("late requests of nobody")
        self.loop.call_later(self.rng.random() * self.faults.ghost_s, self._deliver_ghost, frame)

    def _deliver_ghost(self, frame: bytes) -> None:
        endpoint = self.endpoint
        if endpoint.accept is not None and endpoint.node is not None:
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
            self.server.protocol.connection_lost(None)

    def write(self, end: "End", data: bytes) -> None:
        if not self.is_open or (end.node is not None and end.node.is_dead):
            return
        if end is self.server:
            if not self.is_swallowing:
                self.client.receive_soon(data)
            return
        network, faults = self.network, self.network.faults
        drawn = network.rng.random()
        if drawn < faults.cut_before:
            network.count("requests lost")
            if network.rng.random() < 0.5:
                network.deliver_late(data)
            self.cut_soon()
            return
        drawn -= faults.cut_before
        if drawn < faults.repeat:
            network.deliver_late(data)
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

    def cut(self) -> None:
        """Both ends lose the connection; what is under way to the server may still be processed."""
        if not self.is_open:
            return
        self.is_open = False
        self.network.links.pop(self, None)
        for end in (self.client, self.server):
            end.lose()


class End(asyncio.Transport):
    """One end of a link."""

    def __init__(self, link: Link, node: Node | None, protocol: Any) -> None:
        super().__init__()
        self.link = link
        self.node = node
        self.protocol = protocol
        self._arrives = 0.0
        self._is_reading = True
        self._unread: list[bytes] = []

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
        self.link.cut()

    def abort(self) -> None:
        self.link.cut()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._flush()

    def receive_soon(self, data: bytes) -> None:
        """The bytes arrive after a delay, behind all that were sent before."""
        network = self.link.network
        loop = network.loop
        self._arrives = max(self._arrives + _NEVER_AT_ONCE_S, loop.time() + network.delay_s())
        context = None if self.node is None else self.node.context.copy()
        loop.call_at(self._arrives, self._receive, data, context=context)

    def _receive(self, data: bytes) -> None:
        # A server processes what had arrived at its machine, though the client is gone.
        may_be_late = self is self.link.server and self.link.network.faults.ghost_s
        if self.link.is_open or may_be_late:
            self._unread.append(data)
            self._flush()

    def _flush(self) -> None:
        while self._is_reading and self._unread and self.protocol is not None:
            view = memoryview(self._unread.pop(0))
            while view:
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
        self.link.network.loop.call_soon(
            self.protocol.connection_lost, None, context=self.node.context.copy()
        )
