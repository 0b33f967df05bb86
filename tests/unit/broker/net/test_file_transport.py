"""Answers with ranges of files: every byte once and in order, whatever socket, disk and client do."""

import asyncio
import errno
import gc
import os
import random
import socket
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from unittest.mock import Mock

import pytest
import uvloop

from tests.unit.broker.handlers.conftest import LISTENER
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.broker.net.file_transport import FileTransport
from tidelog.broker.net.writing import WRITE_HIGH_WATER_BYTES
from tidelog.broker.storage.disk import Disk, OpenFile
from tidelog.broker.storage.file_range import FileRange

SIZE = 6_000_000
CONTENT = random.Random(17).randbytes(SIZE)
loops = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class OddDisk(Disk):
    """Counts what is sent from the page cache and what is read in threads.

    Nothing is cached while `is_cold` says so.
    """

    def __init__(self) -> None:
        self.is_cold: Callable[[], bool] = lambda: False
        self.sent = 0
        self.read_in_threads = 0
        self.closed: list[int] = []
        self._loop_thread = threading.get_ident()

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        return not self.is_cold() and super().is_cached(fd, position, size)

    def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
        if threading.get_ident() == self._loop_thread:
            assert flags, "the loop may wait for the disk"
            if self.is_cold():
                raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        else:
            self.read_in_threads += len(buffer)
        return super().preadv(fd, buffer, position)  # A file system in memory knows no flags.

    def send_file(self, socket_fd: int, fd: int, position: int, size: int) -> int:
        count = super().send_file(socket_fd, fd, position, size)
        self.sent += count
        return count

    def close(self, fd: int) -> None:
        self.closed.append(fd)
        super().close(fd)


class Accepted(asyncio.BufferedProtocol):
    """What FileTransport needs of a connection."""

    peer = "127.0.0.1:1"
    state = ConnectionState(1, LISTENER, SecurityProtocol.PLAINTEXT, "127.0.0.1")

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = bytearray()
        self.pauses: list[bool] = []
        self.events = Mock()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = bytearray(1000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = FileTransport(transport, self, self.events, is_paused=False)  # type: ignore[arg-type]

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def pause_writing(self) -> None:
        self.pauses.append(True)

    def resume_writing(self) -> None:
        self.pauses.append(False)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(None)


class World:
    """A connection, its client, and a file with CONTENT."""

    def __init__(self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.disk = OddDisk()
        path.write_bytes(CONTENT)
        self.file = OpenFile(self.disk, path, self.disk.open(path, os.O_RDWR))
        self.reader, self.writer = reader, writer
        self.accepted: Accepted

    @classmethod
    @asynccontextmanager
    async def opened(cls, path: Path) -> AsyncIterator[Self]:
        made: asyncio.Queue[Accepted] = asyncio.Queue()

        def accept() -> Accepted:
            made.put_nowait(accepted := Accepted())
            return accepted

        server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, server.sockets[0].getsockname())
        world = cls(path, *await asyncio.open_connection(sock=client, limit=1 << 16))
        world.accepted = await made.get()
        try:
            yield world
        finally:
            if not world.accepted.lost.done():
                world.accepted.transport.abort()
            world.writer.close()
            server.close()

    @property
    def transport(self) -> FileTransport:
        transport: FileTransport = self.accepted.transport
        return transport

    @property
    def failures(self) -> list[str]:
        """What was logged of files that could not be read."""
        return [call.kwargs["error"] for call in self.accepted.events.error.call_args_list]

    def stored(self, position: int, size: int) -> Any:
        assert self.file.acquire()
        return FileRange(self.file, position, size)

    async def read(self, size: int) -> bytes:
        return await self.reader.readexactly(size)


def run(new_loop: Any, path: Path, check: Callable[[World], Awaitable[None]]) -> None:
    async def checked() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), World.opened(path / "file") as world:
            await check(world)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(checked())


@loops
def test_ranges_and_buffers_arrive_whole_and_in_the_order_in_which_they_were_written(
    new_loop: Any, tmp_path: Path
) -> None:
    chance = random.Random(4)

    async def check(world: World) -> None:
        world.disk.is_cold = lambda: chance.random() < 0.2
        expected = bytearray()
        for number in range(12):
            if number == 6:  # From here on the socket is full most of the time.
                sender = world.transport.get_extra_info("socket")
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
            written: list[Any] = []
            for _ in range(chance.randrange(1, 5)):
                size = chance.choice((1, 100, 40_000, 1_500_000))
                start = chance.randrange(SIZE - size)
                piece = CONTENT[start : start + size]
                expected += piece
                written.append(world.stored(start, size) if chance.random() < 0.7 else piece)
            world.transport.writelines(written)
            part = chance.randrange(len(expected))
            assert await world.read(part) == expected[:part]
            del expected[:part]
        world.transport.close()
        assert await world.reader.read(-1) == expected
        assert world.disk.sent
        assert world.disk.read_in_threads

    run(new_loop, tmp_path, check)


@loops
def test_a_reader_that_takes_all_gets_all_from_the_page_cache_but_a_small_part(
    new_loop: Any, tmp_path: Path
) -> None:
    async def check(world: World) -> None:
        world.transport.writelines([b"head", world.stored(0, SIZE), b"tail"])
        assert await world.read(SIZE + 8) == b"head" + CONTENT + b"tail"
        assert world.disk.sent > SIZE // 2
        assert world.disk.read_in_threads == 0
        assert world.transport.get_write_buffer_size() == 0

    run(new_loop, tmp_path, check)


@loops
def test_unsent_ranges_count_as_unsent_and_pause_the_connection(new_loop: Any, tmp_path: Path) -> None:
    async def check(world: World) -> None:
        world.transport.write(b"small")
        assert world.accepted.pauses == []
        for _ in range(3):
            world.transport.writelines([world.stored(0, SIZE)])
        assert world.accepted.pauses == [True]
        assert world.transport.get_write_buffer_size() > WRITE_HIGH_WATER_BYTES
        await world.read(5 + 3 * SIZE)
        await until(lambda: world.accepted.pauses == [True, False])

    run(new_loop, tmp_path, check)


@loops
@pytest.mark.parametrize("is_cold", [False, True])
def test_a_deleted_file_is_sent_to_its_end_and_closed_then(
    new_loop: Any, tmp_path: Path, is_cold: bool
) -> None:
    async def check(world: World) -> None:
        world.disk.is_cold = lambda: is_cold
        world.transport.writelines([b"head", world.stored(0, SIZE)])
        world.file.path.unlink()
        world.file.close()
        assert world.disk.closed == []
        assert await world.read(SIZE + 4) == b"head" + CONTENT
        await until(lambda: world.disk.closed == [world.file.fd])

    run(new_loop, tmp_path, check)


@loops
def test_nothing_is_sent_of_bytes_that_changed_and_the_client_is_disconnected(
    new_loop: Any, tmp_path: Path
) -> None:
    async def check(world: World) -> None:
        world.transport.writelines([world.stored(0, SIZE), b"tail"])
        world.file.revoke()
        world.file.close()
        with world.file.path.open("r+b") as file:
            file.truncate(0)
            file.write(bytes(SIZE))
        sent = await world.reader.read(-1)
        assert sent == CONTENT[: len(sent)]
        assert len(sent) < SIZE
        assert world.failures == [f"{world.file.path} is being truncated"]
        assert world.disk.closed == [world.file.fd]

    run(new_loop, tmp_path, check)


@loops
def test_a_file_that_is_too_short_disconnects_the_client(new_loop: Any, tmp_path: Path) -> None:
    async def check(world: World) -> None:
        os.truncate(world.file.path, 100_000)
        world.transport.writelines([b"head", world.stored(0, SIZE)])
        await world.accepted.lost
        assert len(world.failures) == 1

    run(new_loop, tmp_path, check)


@loops
@pytest.mark.parametrize("is_cold", [False, True])
def test_a_client_that_goes_away_leaves_no_file_open(new_loop: Any, tmp_path: Path, is_cold: bool) -> None:
    async def check(world: World) -> None:
        world.disk.is_cold = lambda: is_cold
        world.transport.writelines([world.stored(0, SIZE), b"x", world.stored(0, SIZE)])
        world.file.close()
        await world.read(1)
        world.writer.transport.abort()
        await world.accepted.lost
        await until(lambda: world.disk.closed == [world.file.fd])
        assert world.failures == []

    run(new_loop, tmp_path, check)


@loops
def test_a_connection_that_is_lost_is_freed_at_once(new_loop: Any, tmp_path: Path) -> None:
    async def check(world: World) -> None:
        world.transport.writelines([world.stored(0, SIZE)])
        world.writer.transport.abort()
        lost, connection = world.accepted.lost, weakref.ref(world.accepted)
        gc.disable()
        try:
            await lost
            world.accepted = Mock(lost=lost)
            await until(lambda: connection() is None)
        finally:
            gc.enable()

    run(new_loop, tmp_path, check)


@loops
def test_a_client_that_sends_no_more_still_gets_what_was_written(new_loop: Any, tmp_path: Path) -> None:
    async def check(world: World) -> None:
        world.transport.writelines([world.stored(0, SIZE), b"tail"])
        world.writer.write(b"last request")
        world.writer.write_eof()
        assert await world.reader.read(1) == CONTENT[:1]
        await until(world.transport.is_closing)
        assert world.accepted.received == b"last request"
        assert await world.read(SIZE + 3) == CONTENT[1:] + b"tail"
        assert await world.reader.read() == b""
        await world.accepted.lost

    run(new_loop, tmp_path, check)
