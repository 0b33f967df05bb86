"""Containers with little memory and processor time: the broker serves, and the kernel never kills it.

`make container` runs it; it needs a container engine.
"""

import asyncio
import struct

import pytest

from tests.container.containers import container
from tests.container.images import broker_image
from tests.container.load import load

_MIB = 1 << 20
_CONNECTIONS = 40


@pytest.fixture(scope="module")
def image() -> str:
    return broker_image()


async def _hold(port: int, size_bytes: int) -> None:
    """Send all of a Produce request but its end, and wait until the broker ends the connection or 3 s."""
    head = struct.pack(">ihhih", size_bytes, 0, 9, 1, 1) + b"x\0"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head)
        for _ in range(size_bytes // 65536):
            writer.write(bytes(65536))
            await writer.drain()
        await asyncio.wait_for(reader.read(), 3)
    except (OSError, TimeoutError):
        pass  # It was cut off, or is held back.
    finally:
        writer.close()


async def test_128_mib_are_enough_for_producers_beside_clients_that_hold_memory(image: str) -> None:
    """What clients could hold with the defaults is four times the limit."""
    limited = ("--memory", str(128 * _MIB), "--memory-swap", str(128 * _MIB))
    with container(image, *limited) as broker:
        async with load(broker.bootstrap_servers) as writer:
            await asyncio.gather(*(_hold(broker.port, 7 * _MIB) for _ in range(_CONNECTIONS)))
            await writer.acknowledge_more()
        assert broker.inspect(".State.OOMKilled") == "false"
        assert broker.inspect(".RestartCount") == "0"
        cut = [each for each in broker.events() if each["event"] == "connection_cut_for_memory"]
        assert {each["queued_max_bytes"] for each in cut} == {16 * _MIB}


async def test_half_a_processor_is_enough(image: str) -> None:
    with container(image, "--cpus", "0.5") as broker:
        broker.wait_for_health("healthy")
        async with load(broker.bootstrap_servers) as writer:
            await writer.acknowledge_more(20_000)
