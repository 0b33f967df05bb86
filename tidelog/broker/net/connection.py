"""One client's connection: frames in, answers out in the order of the requests, both bounded.

Owns the receive buffer, the socket and its timers; `request_queue` has the order of the answers, and decides
when nothing is dispatched. Invariants:
- once a frame waits, or while a request is still read from the receive buffer, the socket is not read;
- a client whose frames take `TURN_SECONDS` waits for its next turn (`broker.limits.turns`), so that one that
  sends thousands at once does not delay others;
- all answers that are ready in one step of the loop are sent in one writelines; large buffers are not copied;
- bytes that are not the protocol close this connection with exactly one log event; when a client disconnects,
  its long polls are cancelled and its appends never.

For the event loop only.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.broker.handlers.connection_state import USER, AuthenticationStep, ConnectionState, Principal
from tidelog.broker.limits.queued_memory import Held
from tidelog.broker.net.exchange import BadRequest
from tidelog.broker.net.memory_guard import has_ended, unread_bytes
from tidelog.broker.net.request_queue import RequestQueue, Waiting
from tidelog.broker.net.writing import (
    CLIENT_USER,
    RECEIVED_BYTES,
    WRITE_HIGH_WATER_BYTES,
    write_all,
    write_at_once,
)
from tidelog.broker.storage.disk import LEAST_MAPPED_BYTES, in_memory
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
_DISK_ADVICE = "check the disk that holds the data folder; the client connects again and asks again"
_FRAMES_PER_CLOCK_READ = 15  # Minus one: a mask.


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
        "_backlog", "_closing", "_dispatcher", "_drained", "_endpoint", "_flush_scheduled", "_guard",
        "_handed_bytes", "_handle", "_loop", "_memory", "_moved_at", "_mute_timer", "_out", "_paused",
        "_queue", "_reader", "_received_bytes", "_server", "_timer", "_transport", "_unsent_bytes",
        "connection_id", "get_buffer", "last_arrival", "last_produce", "opened", "peer", "requests", "routes",
        "state", "stream",
    )  # fmt: skip

    def __init__(self, server: Server, endpoint: Endpoint, connection_id: int) -> None:
        config = server.config
        self._server = server
        self._dispatcher = server.dispatcher
        self._endpoint = endpoint
        self._loop = server.loop
        self._guard = server.guard
        self._memory = server.guard.memory
        self._reader = FrameReader(config.socket_request_max_bytes, self._grant)
        self.get_buffer = self._reader.get_buffer  # type: ignore[method-assign]
        self._queue = RequestQueue(
            config.connection_queued_max_requests,
            config.connection_queued_max_bytes,
            config.fetch_max_bytes,
            self._memory,
        )
        self._out: list[Buffer] = []
        self._handle: int  # Of the socket.
        self._handed_bytes = 0  # Of all answers that were given to the transport.
        self._mute_timer: asyncio.TimerHandle | None = None  # Runs while the client is throttled.
        self._backlog: list[memoryview] | None = None  # Not yet dispatched; the last one arrived first.
        self._flush_scheduled = False
        self._paused = False
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
        self._handle = -1 if raw is None else raw.fileno()
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        listener = self._endpoint.listener_at(transport.get_extra_info("sockname"))
        protocol = self._endpoint.config.security_protocol
        self.state = ConnectionState(self.connection_id, listener, protocol, client_host)
        self.state.client_port = peer[1] if isinstance(peer, tuple) else 0
        self.state.sends_mapped = raw is not None and not protocol.has_tls
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
                self._queue.add_answer([])  # After the answer with the reason.

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
            if self._queue.holder is None:
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
        is_metered = dispatcher.meter is not None
        dispatch = dispatcher.dispatch_metered if is_metered else dispatcher.dispatch
        stream = None if is_metered else self.stream
        arrived = self.last_arrival
        ready_bytes = 0
        try:
            while frames:
                if not len(frames) & _FRAMES_PER_CLOCK_READ and time.perf_counter() - began >= TURN_SECONDS:
                    break
                answer: list[Buffer] | Waiting | None = None
                if stream is not None:
                    answer = stream.serve(frames, arrived, queue.room() if len(frames) > 1 else 1)
                if answer is None:
                    answer = dispatch(self, frames.pop(), arrived)
                    stream = None if is_metered else self.stream
                if not isinstance(answer, list):
                    held_bytes = queue.add(answer)
                    if held_bytes:
                        self._guard.took(held_bytes)
                    elif queue.room() > 0 and not (
                        queue.holder
                        or answer.reserved_bytes
                        or self._closing
                        or is_metered
                        or memory.is_short
                    ):
                        continue  # Nothing else that is checked below has changed.
                elif queue.waiting:
                    self._guard.took(queue.add_answer(in_memory(answer)))
                elif answer:
                    out += answer
                    ready_bytes += sum(map(len, answer))
                    if ready_bytes <= FLUSH_BYTES and not memory.is_short and self._mute_timer is None:
                        continue  # Nothing that is checked below has changed.
                    self._flush()
                    ready_bytes = 0
                else:
                    self.finish()
                if queue.holder is not None or queue.is_full() or self._closing:
                    break
            if not frames:
                self._backlog = None
        except BadRequest as error:
            self.bad_request(error)
        except OSError as error:
            self._unreadable(error)
        if self._closing:
            return
        if out:
            self._flush()
        if time.perf_counter() - began >= TURN_SECONDS and not queue.waits_for_turn:
            # Also if no frame is left: the loop may read many times before it looks at others.
            queue.waits_for_turn = True
            self._dispatcher.turns.next().add_done_callback(self._turn_came)
        # Mostly nothing changes.
        if queue.stops_reading(self._backlog) is not self._paused or self._reader.is_large:
            self._read_or_pause()

    def _turn_came(self, _: asyncio.Future[None]) -> None:
        self._queue.waits_for_turn = False
        self.go_on()

    def _read_or_pause(self) -> None:
        """Read the socket only while the bounds allow it and every received frame has been dispatched."""
        if self._closing:
            return
        pause = self._queue.stops_reading(self._backlog)
        if self._reader.is_large and not self._has_frames():
            self._reader.frames_served()
        if pause is not self._paused:
            self._paused = pause
            (self._transport.pause_reading if pause else self._transport.resume_reading)()

    def _has_frames(self) -> bool:
        """Whether the receive buffer holds frames that are still to be dispatched, or read."""
        holder = self._queue.holder
        return self._backlog is not None or (holder is not None and holder.keeps_frame)

    def go_on(self) -> None:
        """Call when frames may no longer have to wait: dispatches what was left, then reads again."""
        if self._backlog is not None and self._queue.holder is None and not self._queue.is_full():
            self._serve(self._backlog, time.perf_counter())
        else:
            self._read_or_pause()

    def holds(self, more_held_bytes: int, more_reserved_bytes: int) -> None:
        """For dispatch: a request in the queue holds and reserves so much more memory, or less."""
        self._queue.hold(more_held_bytes, more_reserved_bytes)
        self._guard.took(max(more_held_bytes, 0))
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
        self._queue.is_muted = True
        self._read_or_pause()

    def _unmute(self) -> None:
        self._mute_timer = None
        self._queue.is_muted = False
        self.go_on()

    # Answers

    def effect_taken(self, waiting: Waiting, freed_bytes: int) -> None:
        """For dispatch: a request in the queue no longer holds back later ones, nor so much memory."""
        if self._queue.effect_taken(waiting, freed_bytes) and self._paused:
            self.go_on()

    def answer_ready(self, waiting: Waiting) -> None:
        """For dispatch: a request in the queue has its answer."""
        queue, out = self._queue, self._out
        held_bytes = queue.answered(waiting, out)
        if queue.is_ended:
            self.finish()
            return
        if held_bytes:
            self._guard.took(held_bytes)
        elif not queue.waiting:
            self._flush()
        elif out and not self._flush_scheduled:
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
        if size >= LEAST_MAPPED_BYTES and self.state.sends_mapped:
            try:
                out = write_at_once(self._transport, self._handle, out)
            except OSError as error:
                self._unreadable(error)
                return
            size = sum(map(len, out))
        memory = self._memory
        memory.taken_bytes += size
        if memory.taken_bytes > memory.look_at_bytes:
            self._guard.passed()
        if out:
            write_all(self._transport, out)
        if self._drained is not None:
            self._check_drained()

    def pause_writing(self) -> None:
        self._queue.is_writing_paused = True
        self._read_or_pause()

    def resume_writing(self) -> None:
        self._queue.is_writing_paused = False
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
            + self._queue.held_bytes
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
            waiting=self._queue.held_bytes,
            handed=self._handed_bytes,
            completed=reader.completed,
            is_sending=lately or unread > 0,
            is_left=unread < missing and has_ended(self._transport),
        )

    def hold_back(self, is_held_back: bool) -> None:
        """Whether to read and dispatch nothing until the next call."""
        self._queue.is_held_back = is_held_back
        self.go_on()

    def cut(self) -> None:
        """End at once; nothing more is served or sent."""
        self._take_no_more()
        self._queue.abandon()
        self._transport.abort()

    # Endings

    def bad_request(self, error: BadRequest) -> None:
        """Close the connection, because the received bytes are not the protocol."""
        facts = error.facts() | {"peer": self.peer, "client_software": self.state.client_software}
        self._server.events.warning("connection_closed_bad_request", self.state.client_host, **facts)
        self._server.metrics.bad_request()
        self.finish()

    def _unreadable(self, error: OSError) -> None:
        """Close the connection, because records of an answer that has begun cannot be read."""
        host = self.state.client_host
        self._server.events.error(
            "connection_closed_unreadable_file", host, peer=self.peer, error=str(error), advice=_DISK_ADVICE
        )
        self.cut()

    def finish(self) -> None:
        """Send the answers that are ready, then answer nothing more."""
        self._take_no_more()
        self._flush()
        self._queue.abandon()
        self._transport.close()

    def _take_no_more(self) -> None:
        """What still arrives is discarded."""
        self._closing = True
        self._backlog = None
        self._reader.discard()

    def is_idle_since(self, moment: float) -> bool:
        """Whether nothing arrived since `moment` (time.perf_counter) and no answer is due or unsent."""
        is_due = self._queue.waiting or self._transport.get_write_buffer_size()
        return self.last_arrival < moment and not is_due

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
        self._take_no_more()
        self._queue.interrupt()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._check_drained()
        return self._drained

    def _check_drained(self) -> None:
        drained = self._drained
        if drained is not None and not (drained.done() or self._queue.waiting or self._out):
            drained.set_result(None)

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
        self._reader.close()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._out.clear()
        self._queue.abandon()
        self._queue.holder = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._server.connection_closed(self)
