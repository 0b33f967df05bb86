"""A proxy before a peer that answers every frame; and no process outlives the test that started it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from faults.proxy import FaultProxy
from tests.faults.peers import AnsweringPeer
from tests.processes import none_left


@pytest.fixture
async def peer() -> AsyncIterator[AnsweringPeer]:
    peer = AnsweringPeer()
    yield peer
    await peer.close()


@pytest.fixture
async def proxy(peer: AnsweringPeer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy("127.0.0.1", await peer.start()) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    with none_left():
        yield
