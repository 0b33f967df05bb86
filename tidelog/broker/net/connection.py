"""One client's connection: frames in, answers out in the order of the requests, both bounded.

Owns the receive buffer, the queue of requests that wait for their answers, the answers that are not sent yet,
and the decision when the socket is not read. Invariants:
- answers are sent in the order of their requests, in whatever order the handlers finish; an empty answer ends
  the connection at its place in that order;
- no frame is dispatched while an earlier request holds it back (`Waiting.holds_back`); once a frame waits for
  that, or while that request is still read from the receive buffer, the socket is not read;
- no frame is dispatched while `connection.queued.max.requests` wait, while `connection.queued.max.bytes` of
  answers are unsent (a waiting Fetch counts as the most that it may return), or while the transport's buffer
  is above its high-water mark;
- a client whose frames take `TURN_SECONDS` waits for its next turn (`broker.limits.turns`), so that one that
  sends thousands at once does not delay others;
- no frame is dispatched while this connection, or every connection, is held back because all together hold
  too much memory (`broker.limits.queued_memory`), or while the client waits because it is above a quota;
- all answers that are ready in one step of the loop are sent in one writelines; large buffers are not copied;
- bytes that are not the protocol close this connection with exactly one log event; when a client disconnects,
  its long polls are cancelled and its appends never.

For the event loop only.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.broker.handlers.connection_state import USER, AuthenticationStep, ConnectionState, Principal
from tidelog.broker.limits.queued_memory import Held
from tidelog.broker.net.exchange import BadRequest, Waiting
from tidelog.broker.net.memory_guard import has_ended, unread_bytes
from tidelog.broker.net.writing import CLIENT_USER, RECEIVED_BYTES, WRITE_HIGH_WATER_BYTES, write_all
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.framing import FrameReader
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.broker.configuration.broker_config import BrokerConfig
    from tidelog.broker.limits.peer_events import PeerEvents
    from tidelog.broker.net.dispatch import Dispatcher
    from tidelog.broker.net.endpoints import Endpoint
    from tidelog.broker.net.memory_guard import MemoryGuard
    from tidelog.broker.net.produce_stream import ProduceStream
    from tidelog.broker.net.routes import RouteTable
    from tidelog.broker.observability.metrics import Metrics

FLUSH_BYTES = 1 << 18
"""Answers to frames of one read that are given to the transport before the other frames are served."""
TURN_SECONDS = 0.002  # The time for which frames of one client are served while others wait.
_LATELY_SECONDS = 0.3
_LEAST_GROWTH_BYTES = 4096
_REQUEST_BYTES = 1024
"""Memory of a request that waits for its answer, without its frame and `Waiting.held_bytes`."""
_FRAMES_PER_CLOCK_READ = 15  # Minus one: a mask.
_DISCARDED = memoryview(bytearray(1 << 16))
"""The buffer for bytes that arrive after a connection has stopped reading; they are discarded."""


class Server(Protocol):
    """What a connection needs of the server that it belongs to."""

    dispatcher: Dispatcher
    events: PeerEvents
    guard: MemoryGuard
    loop: asyncio.AbstractEventLoop
    metrics: Metrics

    @property
    def config(self) -> BrokerConfig: ...

    def connection_opened(self, connection: Connection) -> bool: ...

    def connection_closed(self, connection: Connection) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket."""

    __slots__ = (
        "_backlog", "_closing", "_dispatcher", "_drained", "_endpoint", "_fetch_max_bytes",
        "_flush_scheduled", "_guard", "_handed_bytes", "_held_bytes", "_holder",
        "_is_held_back", "_joined_requests", "_loop", "_max_bytes", "_max_requests", "_memory", "_moved_at",
        "_mute_timer", "_out", "_parked_bytes", "_paused", "_queue", "_reader", "_received_bytes",
        "_reserved_bytes", "_server", "_timer", "_transport", "_unsent_bytes", "_waits_for_turn",
        "_writing_paused", "connection_id", "last_arrival", "last_produce", "opened", "peer", "requests",
        "routes", "state", "stream",
    )  # fmt: skip

    def __init__(self, server: Server, endpoint: Endpoint, connection_id: int) -> None:
        config = server.config
        self._server = server
        self._dispatcher = server.dispatcher
        self._endpoint = endpoint
        self._loop = server.loop
        self._max_requests = config.connection_queued_max_requests
        self._max_bytes = config.connection_queued_max_bytes
        self._fetch_max_bytes = config.fetch_max_bytes
        self._guard = server.guard
        self._memory = server.guard.memory
        self._reader = FrameReader(config.socket_request_max_bytes, self._grant)
        self._queue: deque[Waiting | list[Buffer]] = deque()
        self._out: list[Buffer] = []
        self._held_bytes = 0  # Of answers that wait for an earlier one.
        self._reserved_bytes = 0  # What waiting Fetches may return.
        self._parked_bytes = 0  # What they hold while they wait.
        self._handed_bytes = 0  # Of all answers that were given to the transport.
        self._is_held_back = False
        self._mute_timer: asyncio.TimerHandle | None = None  # Runs while the client is throttled.
        self._holder: Waiting | None = None  # The request that holds back later ones.
        self._backlog: list[memoryview] | None = None  # Not yet dispatched; the last one arrived first.
        self._joined_requests = 0  # How many more wait than `_queue` has elements.
        self._flush_scheduled = False
        self._paused = False
        self._writing_paused = False
        self._waits_for_turn = False
        self._closing = False
        self._drained: asyncio.Future[None] | None = None
        self._unsent_bytes = 0  # At the last check; `_moved_at`: when it last changed.
        self._moved_at = 0.0
        self._timer: asyncio.TimerHandle | None = None  # Ends an authentication, or a session.
        self._transport: asyncio.Transport
        self.connection_id = connection_id
        self.state: ConnectionState
        self.routes: RouteTable
        self.stream: ProduceStream | None = None
        self.last_produce: tuple[object, ...] = ()
        self.peer = ""
        self.opened = self.last_arrival = time.perf_counter()
        self.requests = 0
        """Frames that arrived."""

    # Arrival

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.last_arrival = time.perf_counter()
        peer = transport.get_extra_info("peername")
        client_host = ""
        if isinstance(peer, tuple):
            client_host = canonical_host(str(peer[0]))
            self.peer = f"{client_host}:{peer[1]}"
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        listener = self._endpoint.listener_at(transport.get_extra_info("sockname"))
        protocol = self._endpoint.config.security_protocol
        self.state = ConnectionState(self.connection_id, listener, protocol, client_host)
        self.state.client_port = peer[1] if isinstance(peer, tuple) else 0
        if user := transport.get_extra_info(CLIENT_USER):
            self.state.principal = Principal(USER, user)
        self._received_bytes = transport.get_extra_info(RECEIVED_BYTES) or int
        self.routes = self._dispatcher.routes_at(self.state.authentication)
        if not self._server.connection_opened(self):
            self._closing = True
            self._transport.abort()
        elif self.state.authentication is not AuthenticationStep.NOT_REQUIRED:
            self._reader.max_frame_bytes = self._server.config.sasl_server_max_receive_size
            self.state.when_moved = self._moved
            self._call_later(self._authentication_timeout_ms(), self._too_late)

    # Authentication

    def _moved(self, step: AuthenticationStep) -> None:
        """The state has gone to another step of authentication."""
        if self._closing:
            return
        self.routes = self._dispatcher.routes_at(step)
        self.stream = None
        match step:
            case AuthenticationStep.AUTHENTICATED:
                self._reader.max_frame_bytes = self._server.config.socket_request_max_bytes
                self._call_later(self.state.session_lifetime_ms, self._session_ended)
            case AuthenticationStep.REAUTHENTICATING:
                self._call_later(self._authentication_timeout_ms(), self._too_late)
            case AuthenticationStep.FAILED:
                self._queue.append([])  # After the answer with the reason.

    def _authentication_timeout_ms(self) -> int:
        config = self._server.config.of_listener(self._endpoint.config.name)
        return config.connection_authentication_timeout_ms

    def _call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call in place of what the timer would call; 0 milliseconds: never."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_ms / 1000, call) if delay_ms else None

    def _session_ended(self) -> None:
        self.state.move_to(AuthenticationStep.EXPIRED)

    def _too_late(self) -> None:
        """The client was not authenticated in time."""
        if self._closing:
            return
        self._server.events.info(
            "connection_closed_not_authenticated",
            self.state.client_host,
            peer=self.peer,
            listener=self.state.listener.name,
            step=self.state.authentication.name,
            reason="the client was not authenticated within connection.authentication.timeout.ms",
        )
        self.finish()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _DISCARDED if self._closing else self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        self.last_arrival = time.perf_counter()
        try:
            frames = self._reader.buffer_updated(nbytes)
        except ProtocolError as error:
            self.bad_request(BadRequest(str(error)))
            return
        if frames:
            self.requests += len(frames)
            self._backlog = frames = frames[::-1]
            if self._holder is None:
                self._serve(frames, self.last_arrival)
            else:
                self._read_or_pause()
        elif self._memory.is_short and self._lacks_room():
            self._guard.hold_back_until_looked_at(self)

    def _serve(self, frames: list[memoryview], began: float) -> None:
        """Dispatch frames, the last one first, until none is left, something holds back the rest, or the turn
        ends that `began` (time.perf_counter)."""
        queue = self._queue
        out = self._out
        memory = self._memory
        dispatcher = self._dispatcher
        is_metered = dispatcher.answers.meter is not None
        dispatch = dispatcher.dispatch_metered if is_metered else dispatcher.dispatch
        stream = None if is_metered else self.stream
        arrived = self.last_arrival
        ready_bytes = 0
        try:
            while frames:
                if not len(frames) & _FRAMES_PER_CLOCK_READ and time.perf_counter() - began >= TURN_SECONDS:
                    break
                answer: list[Buffer] | Waiting | None
                answer = None if stream is None else stream.serve(frames, arrived, self._may_wait())
                if answer is None:
                    answer = dispatch(self, frames.pop(), arrived)
                    stream = None if is_metered else self.stream
                if not isinstance(answer, list):
                    queue.append(answer)
                    self._joined_requests += answer.requests - 1
                    if answer.holds_back:
                        self._holder = answer
                    if answer.reserved_bytes or answer.held_bytes:
                        self._park(answer)
                    elif self._may_wait() > 0 and not (
                        self._holder or self._closing or is_metered or memory.is_short
                    ):
                        continue  # Nothing else that is checked below has changed.
                elif queue:
                    queue.append(answer)
                    size = sum(map(len, answer))
                    self._held_bytes += size
                    self._guard.took(size)
                elif answer:
                    out += answer
                    ready_bytes += sum(map(len, answer))
                    if ready_bytes <= FLUSH_BYTES and not memory.is_short and self._mute_timer is None:
                        continue  # Nothing that is checked below has changed.
                    self._flush()
                    ready_bytes = 0
                else:
                    self.finish()
                if self._holder is not None or self._is_full() or self._closing:
                    break
            if not frames:
                self._backlog = None
        except BadRequest as error:
            self.bad_request(error)
        if self._closing:
            return
        self._flush()
        if time.perf_counter() - began >= TURN_SECONDS and not self._waits_for_turn:
            # Also if no frame is left: the loop may read many times before it looks at others.
            self._waits_for_turn = True
            self._dispatcher.turns.next().add_done_callback(self._turn_came)
        self._read_or_pause()

    def _turn_came(self, _: asyncio.Future[None]) -> None:
        self._waits_for_turn = False
        self.go_on()

    def _park(self, pending: Waiting) -> None:
        """Count the memory that a request holds while it waits, and the size that its answer may have."""
        pending.reserved_bytes = min(pending.reserved_bytes, self._fetch_max_bytes)
        self._reserved_bytes += pending.reserved_bytes
        self._parked_bytes += pending.held_bytes
        self._guard.took(pending.held_bytes)

    def _may_wait(self) -> int:
        """How many more requests may wait for their answers."""
        return self._max_requests - len(self._queue) - self._joined_requests

    def _is_full(self) -> bool:
        return (
            self._writing_paused
            or self._waits_for_turn
            or self._is_held_back
            or self._mute_timer is not None
            or self._may_wait() <= 0
            or self._held_bytes + self._reserved_bytes > self._max_bytes
            or (self._memory.is_short and self._is_above_share())
        )

    def _is_above_share(self) -> bool:
        """Whether memory is short, and this connection holds more than its share or all hold too much."""
        memory = self._memory
        return memory.is_exhausted or self._held_bytes + self._parked_bytes > memory.share_bytes

    def _read_or_pause(self) -> None:
        """Read the socket only while the bounds allow it and every received frame has been dispatched."""
        if self._closing:
            return
        has_frames = self._has_frames()
        if not has_frames:
            self._reader.frames_served()
        pause = has_frames or self._is_full()
        if pause is not self._paused:
            self._paused = pause
            (self._transport.pause_reading if pause else self._transport.resume_reading)()

    def _has_frames(self) -> bool:
        """Whether the receive buffer holds frames that are still to be dispatched, or read."""
        return self._backlog is not None or (self._holder is not None and self._holder.keeps_frame)

    def go_on(self) -> None:
        """Call when frames may no longer have to wait: dispatches what was left, then reads again."""
        if self._backlog is not None and self._holder is None and not self._is_full():
            self._serve(self._backlog, time.perf_counter())
        else:
            self._read_or_pause()

    def holds(self, more_held_bytes: int, more_reserved_bytes: int) -> None:
        """For dispatch: a request in the queue holds and reserves so much more memory, or less."""
        self._parked_bytes += more_held_bytes
        self._guard.took(max(more_held_bytes, 0))
        self._reserved_bytes += more_reserved_bytes
        if self._paused:
            self.go_on()

    def mute(self, seconds: float) -> None:
        """For dispatch: the client is above a quota. It is neither read nor served for this time."""
        if self._closing:
            return
        ends_at = self._loop.time() + seconds
        if self._mute_timer is not None:
            if self._mute_timer.when() >= ends_at:
                return
            self._mute_timer.cancel()
        self._mute_timer = self._loop.call_at(ends_at, self._unmute)
        self._read_or_pause()

    def _unmute(self) -> None:
        self._mute_timer = None
        self.go_on()

    # Answers

    def effect_taken(self, pending: Waiting, freed_bytes: int) -> None:
        """For dispatch: a request in the queue no longer holds back later ones, nor so much memory."""
        self._parked_bytes -= freed_bytes
        if pending is self._holder:
            self._holder = None
            if self._paused:
                self.go_on()

    def answer_ready(self, pending: Waiting) -> None:
        """For dispatch: a request in the queue has its answer."""
        queue = self._queue
        answer = pending.answer
        self._reserved_bytes -= pending.reserved_bytes
        self._parked_bytes -= pending.held_bytes
        self._joined_requests -= pending.requests - 1
        if pending is self._holder:
            self._holder = None
        if answer is None or queue[0] is not pending:
            size = sum(map(len, answer or ()))
            self._held_bytes += size
            self._guard.took(size)
            if self._paused:
                self.go_on()
            return
        queue.popleft()
        if not answer:
            self.finish()
            return
        out = self._out
        out += answer
        while queue:
            head = queue[0]
            held = head if isinstance(head, list) else head.answer
            if held is None:
                break
            queue.popleft()
            if not held:
                self.finish()
                return
            self._held_bytes -= sum(map(len, held))
            out += held
        if not queue:
            self._flush()
        elif not self._flush_scheduled:
            # More answers may follow in this step of the loop: all are sent together.
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_later)
        if self._paused:
            self.go_on()

    def _flush_later(self) -> None:
        self._flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        if not self._out:
            return
        out = self._out.copy()
        # Emptied first: a transport may call resume_writing from within the write, which calls this method
        # again.
        self._out.clear()
        size = sum(map(len, out))
        self._handed_bytes += size
        memory = self._memory
        memory.taken_bytes += size
        if memory.taken_bytes > memory.look_at_bytes:
            self._guard.passed()
        write_all(self._transport, out)
        if self._drained is not None:
            self._check_drained()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._read_or_pause()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.go_on()

    # Memory

    def _grant(self, count: int) -> int:
        """For the reader: `count` more bytes of memory, or only a few while the socket is not to be read."""
        if self._memory.is_short and self._lacks_room():
            count = min(count, _LEAST_GROWTH_BYTES)
        self._guard.took(count)
        return count

    def _lacks_room(self) -> bool:
        """Whether memory is short, and the arriving frame would take more than is left before its turn."""
        memory, capacity, wanted = self._memory, self._reader.capacity_bytes, self._reader.wanted_bytes
        return (
            wanted > memory.share_bytes
            and wanted - capacity > max(0, memory.room_bytes)
            and not self._guard.has_turn(self)
        )

    def release_unused(self) -> None:
        """Free memory that holds no data."""
        if not self._has_frames():
            self._reader.release()

    def held_bytes(self) -> int:
        """Bytes of memory that this connection holds."""
        return (
            self._reader.capacity_bytes
            + self._received_bytes()
            + self._transport.get_write_buffer_size()
            + self._held_bytes
            + self._parked_bytes
            + _REQUEST_BYTES * len(self._queue)
        )

    def held(self) -> Held:
        """The parts of `held_bytes`."""
        reader = self._reader
        lately = time.perf_counter() - self.last_arrival < _LATELY_SECONDS
        missing = reader.missing_bytes if reader.pending_bytes and self._backlog is None else 0
        unread = self._received_bytes() + unread_bytes(self._transport)
        return Held(
            receiving=reader.capacity_bytes + self._received_bytes(),
            missing=missing,
            unsent=self._transport.get_write_buffer_size(),
            waiting=self._held_bytes + self._parked_bytes + _REQUEST_BYTES * len(self._queue),
            handed=self._handed_bytes,
            completed=reader.completed,
            is_sending=lately or unread > 0,
            is_left=unread < missing and has_ended(self._transport),
        )

    def hold_back(self, is_held_back: bool) -> None:
        """Whether to read and dispatch nothing until the next call."""
        self._is_held_back = is_held_back
        self.go_on()

    def cut(self) -> None:
        """End at once; nothing more is served or sent."""
        self._closing = True
        self._backlog = None
        self._abandon_all()
        self._transport.abort()

    # Endings

    def bad_request(self, error: BadRequest) -> None:
        """Close the connection, because the received bytes are not the protocol."""
        facts = error.facts() | {"peer": self.peer, "client_software": self.state.client_software}
        self._server.events.warning("connection_closed_bad_request", self.state.client_host, **facts)
        self._server.metrics.bad_request()
        self.finish()

    def finish(self) -> None:
        """Send the answers that are ready, then answer nothing more."""
        self._closing = True
        self._backlog = None
        self._flush()
        self._abandon_all()
        self._transport.close()

    def _abandon_all(self) -> None:
        for waiting in self._queue:
            if isinstance(waiting, Waiting):
                waiting.abandon()
        self._queue.clear()
        self._held_bytes = self._reserved_bytes = self._parked_bytes = self._joined_requests = 0

    def is_idle_since(self, moment: float) -> bool:
        """Whether nothing arrived since `moment` (time.perf_counter) and no answer is due or unsent."""
        return self.last_arrival < moment and not self._queue and not self._transport.get_write_buffer_size()

    def is_stuck_since(self, moment: float) -> bool:
        """Whether no unsent byte was sent since `moment`: the client does not read. Call it often."""
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._moved_at = unsent_bytes, time.perf_counter()
        return unsent_bytes > 0 and self._moved_at < moment

    def drain(self) -> asyncio.Future[None]:
        """Take no more requests; done once the answers of all taken requests have been handed to the system.

        Bytes that still arrive are discarded: the kernel drops answers of a socket with unread data.
        """
        if self._drained is None:
            self._drained = self._loop.create_future()
        self._backlog = None
        self._closing = True
        for waiting in self._queue:
            if isinstance(waiting, Waiting):
                waiting.interrupt()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._check_drained()
        return self._drained

    def _check_drained(self) -> None:
        if self._drained is not None and not self._drained.done() and not self._queue and not self._out:
            self._drained.set_result(None)

    def close(self) -> None:
        """Send what the transport already has, then close."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self.state.when_moved = None
        self.state.close()
        self.stream = None  # It refers to this.
        self._backlog = None
        self._holder = None
        self._reader.close()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._out.clear()
        self._abandon_all()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._server.connection_closed(self)
