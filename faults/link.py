"""One client connection through the fault proxy, and its connection to the broker.

Owns both sockets, the order of frames and the requests in flight. For each request and response its `Policy`
(the proxy) decides what to do.

Invariants: frames leave in the order in which they came; `in_flight` holds the requests that went to the
broker and whose response has not been written to the client; once `muted`, no later response reaches the
client.
"""

import asyncio
import socket
import struct
from enum import Enum
from typing import NamedTuple, Protocol

_SIZE = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")
_LARGEST_FRAME_BYTES = 512 * 1024 * 1024
_READ_BUFFER_BYTES = 1024 * 1024
_LAST_ANSWER_SECONDS = 10.0

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Action(Enum):
    """What to do with a frame."""

    FORWARD = "forward"
    SWALLOW = "swallow"
    CUT_BEFORE = "cut before"
    CUT_WITHIN = "cut within"
    CUT_AFTER = "cut after"


class Request(NamedTuple):
    """A request: its api key and its whole frame, without the size prefix."""

    api_key: int
    frame: bytes


class Policy(Protocol):
    """The decisions and notifications that a link needs from its owner."""

    delay_ms: float

    def on_request(self, link: "Link", request: Request) -> Action: ...
    def on_response(self, link: "Link", api_key: int | None) -> Action: ...
    def on_change(self) -> None: ...
    def is_holding(self, api_key: int | None) -> bool: ...
    async def released(self) -> None: ...
    def count(self, counter: str, amount: int = 1) -> None: ...


class _Response(NamedTuple):
    due: float
    api_key: int | None
    correlation_id: int
    frame: bytes


async def open_stream(host: str, port: int) -> Stream:
    """Connect as the client would. Raises OSError if no process listens."""
    return await asyncio.open_connection(host, port, limit=_READ_BUFFER_BYTES)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN, like a host that died or a firewall that lost its state."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Link:
    """A pair of connections. `run()` ends when both are closed."""

    def __init__(self, policy: Policy, client: Stream, broker: Stream) -> None:
        self._policy = policy
        self._client_reader, self._client_writer = client
        self._broker_reader, self._broker_writer = broker
        self._outbox: asyncio.Queue[_Response | None] = asyncio.Queue()
        self._last_answer: int | None = None
        self.in_flight: dict[int, Request] = {}
        self.answered: dict[int, int] = {}
        self.muted = False

    async def run(self) -> None:
        """Forward frames both ways until either side closes or the link is cut."""
        requests = asyncio.create_task(self._carry_requests())
        responses = asyncio.create_task(self._read_responses())
        answers = asyncio.create_task(self._write_responses())
        try:
            await asyncio.wait((requests, responses, answers), return_when=asyncio.FIRST_COMPLETED)
            if self._last_answer is not None:
                await asyncio.wait((responses,), timeout=_LAST_ANSWER_SECONDS)
            elif responses.done() and not self._is_stuck():
                self._outbox.put_nowait(None)
                await asyncio.wait((requests, answers), return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = (requests, responses, answers)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.in_flight.clear()
            self.answered.clear()
            self._client_writer.close()
            self._broker_writer.close()
            self._policy.on_change()

    def cut(self) -> None:
        """Reset both connections now. Frames that were read and not yet written are lost."""
        self.muted = True
        reset(self._client_writer)
        reset(self._broker_writer)

    def _is_stuck(self) -> bool:
        """True if responses of the broker are not delivered: they are held back or dropped."""
        return self.muted or any(self._policy.is_holding(api_key) for api_key in self.answered.values())

    async def _carry_requests(self) -> None:
        while (frame := await _read_frame(self._client_reader, _REQUEST_START.size)) is not None:
            api_key, _, correlation_id = _REQUEST_START.unpack_from(frame)
            request = Request(api_key, frame)
            action = self._policy.on_request(self, request)
            if action is Action.CUT_BEFORE:
                self._policy.count("requests_dropped")
                self.cut()
                return
            if action is Action.CUT_WITHIN:
                self._policy.count("requests_dropped")
                self._broker_writer.writelines((_SIZE.pack(len(frame)), frame[: len(frame) // 2]))
                self.muted = True
                # FIN after the half frame, so that the broker reads it before the connection ends.
                self._broker_writer.close()
                reset(self._client_writer)
                return
            self.in_flight[correlation_id] = request
            self._broker_writer.writelines((_SIZE.pack(len(frame)), frame))
            self._policy.count("requests_forwarded")
            self._policy.on_change()
            if action is Action.CUT_AFTER:
                self._last_answer = correlation_id
                self.muted = True
                reset(self._client_writer)
                return
            await _drain(self._broker_writer)

    async def _read_responses(self) -> None:
        while (frame := await _read_frame(self._broker_reader, _CORRELATION.size)) is not None:
            due = asyncio.get_running_loop().time() + self._policy.delay_ms / 1000
            (correlation_id,) = _CORRELATION.unpack_from(frame)
            request = self.in_flight.get(correlation_id)
            api_key = None if request is None else request.api_key
            action = self._policy.on_response(self, api_key)
            if self.muted or action is Action.SWALLOW:
                self.muted = True
                self._policy.count("responses_dropped")
            else:
                self.answered[correlation_id] = -1 if api_key is None else api_key
                self._outbox.put_nowait(_Response(due, api_key, correlation_id, frame))
            self._policy.on_change()
            if correlation_id == self._last_answer:
                return

    async def _write_responses(self) -> None:
        loop = asyncio.get_running_loop()
        while (response := await self._outbox.get()) is not None:
            if (wait_seconds := response.due - loop.time()) > 0:
                await asyncio.sleep(wait_seconds)
            while self._policy.is_holding(response.api_key):
                await self._policy.released()
            self._client_writer.writelines((_SIZE.pack(len(response.frame)), response.frame))
            self._policy.count("responses_forwarded")
            self._policy.count("bytes_to_client", len(response.frame) + _SIZE.size)
            self._deliver(response.correlation_id)
            await _drain(self._client_writer)

    def _deliver(self, correlation_id: int) -> None:
        """Forget a request and the earlier ones: responses come in order, so theirs never come (acks=0)."""
        self.answered.pop(correlation_id, None)
        if correlation_id in self.in_flight:
            for earlier in list(self.in_flight):
                del self.in_flight[earlier]
                if earlier == correlation_id:
                    break
        self._policy.on_change()


async def _drain(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        await writer.drain()


async def _read_frame(reader: asyncio.StreamReader, smallest: int) -> bytes | None:
    """One frame without its size prefix; None if the peer closed or does not use Kafka's protocol."""
    try:
        (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        if not smallest <= size <= _LARGEST_FRAME_BYTES:
            return None
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, OSError):
        return None
