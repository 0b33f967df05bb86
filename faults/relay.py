"""The way of one broker to the members of etcd, which can be blocked without a sign to either side.

Owns a listener per member, and every connection through it. Invariants: while it is blocked no byte passes;
afterwards what was sent arrives late, or with `lose` its connections are reset.

Event loop only.
"""

import asyncio
from collections.abc import Sequence
from typing import Self

from faults.link import reset

_READ_BYTES = 65_536


class Relay:
    """`endpoints` are what the broker is told; `ports` are those of the members on this machine."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.endpoints: list[str] = []
        self._ports = ports
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def block(self) -> None:
        self._is_open.clear()

    def heal(self, *, lose: bool = False) -> None:
        if lose and not self._is_open.is_set():
            for writer in self._writers:
                reset(writer)
        self._is_open.set()

    async def __aenter__(self) -> Self:
        for port in self._ports:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int = port) -> None:
                task = asyncio.create_task(self._serve(reader, writer, port))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            self._servers.append(server)
            self.endpoints.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        own = [writer]
        self._writers.add(writer)
        try:
            await self._is_open.wait()
            to_read, to_write = await asyncio.open_connection("127.0.0.1", port)
            own.append(to_write)
            self._writers.add(to_write)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, to_write))
                both.create_task(self._carry(to_read, writer))
        except (OSError, ExceptionGroup):  # One side is gone.
            pass
        finally:
            for each in own:
                self._writers.discard(each)
                each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            await self._is_open.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionError("closed")
