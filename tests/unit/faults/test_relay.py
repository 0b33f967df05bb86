"""The way to etcd that can be blocked: what is sent meanwhile arrives late, or is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from faults.relay import Relay
from tests.waiting import DEADLINE_SECONDS


class Echo:
    """Answers with what it got, and remembers it."""

    def __init__(self) -> None:
        self.got = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(100):
                self.got += data
                writer.write(data)
        except ConnectionError:
            pass  # The relay has reset it.
        finally:
            writer.close()


@asynccontextmanager
async def through_relay() -> AsyncIterator[tuple[Relay, Echo, asyncio.StreamReader, asyncio.StreamWriter]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with (
        server,
        Relay([server.sockets[0].getsockname()[1]]) as relay,
        asyncio.timeout(DEADLINE_SECONDS),
    ):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(relay.endpoints[0].rpartition(":")[2])
        )
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        yield relay, echo, reader, writer
        writer.close()


async def test_what_is_sent_while_it_is_blocked_arrives_afterwards() -> None:
    async with through_relay() as (relay, echo, reader, writer):
        relay.block()
        writer.write(b"two")
        await writer.drain()
        assert echo.got == b"one"
        relay.heal()
        assert await reader.readexactly(3) == b"two"


async def test_or_is_lost_and_a_new_connection_passes() -> None:
    async with through_relay() as (relay, echo, reader, writer):
        relay.block()
        writer.write(b"two")
        relay.heal(lose=True)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(3)
        again, to_again = await asyncio.open_connection(*writer.get_extra_info("peername"))
        to_again.write(b"three")
        assert await again.readexactly(5) == b"three"
        to_again.close()
        assert echo.got == b"onethree"
