"""The two ends around a proxy under test: a peer that answers every frame, and a client that sends them."""

import asyncio
import struct

from tests.waiting import DEADLINE_SECONDS

PRODUCE = 0
METADATA = 3


class AnsweringPeer:
    """Answers each request with its correlation id and `greeting`; remembers the correlation ids it saw, in
    order.

    While `quiet` is set it reads and does not answer.
    """

    def __init__(self, greeting: bytes = b"answer") -> None:
        self.greeting = greeting
        self.seen: list[int] = []
        self.quiet = False
        self.connections = 0
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def has_seen(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.seen) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                self.seen.append(correlation_id)
                if not self.quiet:
                    answer = struct.pack(">i", correlation_id) + self.greeting
                    writer.write(struct.pack(">i", len(answer)) + answer)
                async with self._changed:
                    self._changed.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class FrameClient:
    """A connection that sends request frames and reads the correlation ids of the responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> "FrameClient":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, correlation_id: int, api_key: int = PRODUCE, body: bytes = b"body") -> None:
        frame = struct.pack(">hhi", api_key, 9, correlation_id) + body
        self._writer.write(struct.pack(">i", len(frame)) + frame)

    async def receive(self) -> tuple[int, bytes]:
        """The next response; ConnectionError when the connection is gone."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            try:
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                frame = await self._reader.readexactly(size)
            except asyncio.IncompleteReadError as error:
                raise ConnectionError("closed") from error
        return struct.unpack_from(">i", frame)[0], frame[4:]

    async def is_cut(self) -> bool:
        """True when the connection ends without another byte."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._writer.close()
