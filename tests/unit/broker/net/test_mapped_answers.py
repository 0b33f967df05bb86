"""Mapped records: every byte is sent once and in order; a client that does not read keeps no mapping."""

import asyncio
import gc
import os
import random
import socket
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.net.peers import Peer, serving
from tests.unit.broker.net.test_connection import Held, handlers_with
from tests.waiting import until
from tidelog.broker.handlers.context import LateAnswer
from tidelog.broker.storage.disk import WINDOW_BYTES, Disk, MappedWindow, OpenFile
from tidelog.protocol.hot import FetchPartitionResult, FetchResponse
from tidelog.protocol.schema import ApiKey

SIZE = 1 << 20
CONTENT = random.Random(6).randbytes(SIZE) * (WINDOW_BYTES // SIZE + 1)


class Stored:
    """A file, and a Fetch handler whose answer is its `views`th MiB, mapped."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(CONTENT)
        disk = Disk()
        self.file = OpenFile(disk, path, disk.open(path))
        self.views = 0
        self.sends_mapped: list[bool] = []
        self.windows: list[weakref.ref[MappedWindow]] = []
        self.answered: list[FetchResponse] = []

    def answer(self) -> FetchResponse:
        view = self.file.mapped(SIZE, self.views * SIZE)
        assert view is not None
        assert isinstance(view.obj, MappedWindow)
        self.windows.append(weakref.ref(view.obj))
        self.views += 1
        return FetchResponse(0, 0, 0, [("t", [FetchPartitionResult(0, 0, records=[view])])])

    def fetch(self, context: Any, request: Any) -> FetchResponse:
        self.sends_mapped.append(context.connection.sends_mapped)
        return self.answer()


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[Stored]:
    stored = Stored(tmp_path / "file")
    yield stored
    stored.file.close()


def records_of(response: Any) -> bytes:
    return bytes(response.responses[0].partitions[0].records)


async def slow_peer(port: int) -> Peer:
    """A client whose socket takes little of an answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    return Peer(*await asyncio.open_connection(sock=client, limit=1 << 16))


async def test_mapped_records_come_whole_between_the_answers_around_them(stored: Stored) -> None:
    async with (
        serving({**handlers_with(Held()), ApiKey.FETCH: stored.fetch}) as server,
        await slow_peer(server.port) as peer,
    ):
        for number in range(0, 12, 3):
            peer.request(ApiKey.API_VERSIONS, 3, {}, number)
            peer.request(ApiKey.FETCH, 12, {"topics": []}, number + 1)
            peer.request(ApiKey.API_VERSIONS, 3, {}, number + 2)
        for number in range(12):
            if number % 3 != 1:
                assert (await peer.answer(ApiKey.API_VERSIONS, 3))[0] == number
                continue
            correlation_id, response = await peer.answer(ApiKey.FETCH, 12)
            assert correlation_id == number
            start = number // 3 * SIZE
            assert records_of(response) == CONTENT[start : start + SIZE]
    assert stored.sends_mapped == [True] * 4


async def test_a_client_that_does_not_read_keeps_nothing_mapped(stored: Stored) -> None:
    async with (
        serving({ApiKey.FETCH: stored.fetch}) as server,
        await slow_peer(server.port) as peer,
    ):
        for _ in range(4):
            peer.request(ApiKey.FETCH, 12, {"topics": []})
        await until(lambda: bool(stored.views))
        (connection,) = server._connections
        await until(lambda: connection._transport.get_write_buffer_size() > 0)
        stored.file.path.unlink()
        stored.file.close()
        gc.collect()
        assert [window() for window in stored.windows] == [None] * len(stored.windows)
        assert connection.held_bytes() > 0
        for number in range(stored.views):
            _, response = await peer.answer(ApiKey.FETCH, 12)
            assert records_of(response) == CONTENT[number * SIZE : (number + 1) * SIZE]


async def test_an_answer_that_waits_for_an_earlier_one_is_in_memory(stored: Stored) -> None:
    held = Held()

    def fetch(context: Any, request: Any) -> Any:
        return stored.fetch(context, request) if held.futures else held.handle(context, request)

    async with serving({ApiKey.FETCH: fetch}) as server, await Peer.connect(server.port) as peer:
        for number in range(2):
            peer.request(ApiKey.FETCH, 12, {"max_bytes": SIZE, "topics": []}, number)
        await until(lambda: bool(stored.views))
        stored.file.close()
        os.truncate(stored.file.path, 0)  # As a follower does that has to.
        held.futures[0].set_result(FetchResponse(0, 0, 0, []))
        assert (await peer.answer(ApiKey.FETCH, 12))[0] == 0
        correlation_id, response = await peer.answer(ApiKey.FETCH, 12)
        assert correlation_id == 1
        assert records_of(response) == CONTENT[:SIZE]


async def test_records_that_cannot_be_sent_or_read_end_their_connection_only(stored: Stored) -> None:
    def fetch(context: Any, request: Any) -> FetchResponse:
        answer = stored.fetch(context, request)
        os.ftruncate(stored.file.fd, 0)
        return answer

    handlers = {**handlers_with(Held()), ApiKey.FETCH: fetch}
    async with serving(handlers) as server, await Peer.connect(server.port) as other:
        with capture_logs() as events:
            async with await Peer.connect(server.port) as peer:
                peer.request(ApiKey.FETCH, 12, {"topics": []})
                assert len(await peer.closed()) < SIZE
        assert [event["event"] for event in events] == ["connection_closed_unreadable_file"]
        assert f"{stored.file.path} ends within" in events[0]["error"]
        await other.ask(ApiKey.API_VERSIONS, 3)


async def test_a_late_answer_whose_file_was_closed_ends_its_connection(stored: Stored) -> None:
    late: list[LateAnswer] = []

    def fetch(context: Any, request: Any) -> LateAnswer:
        late.append(LateAnswer())
        return late[-1]

    async with serving({ApiKey.FETCH: fetch}) as server, await Peer.connect(server.port) as peer:
        peer.request(ApiKey.FETCH, 12, {"topics": []})
        await until(lambda: bool(late))
        late.pop().give(stored.answer())
        assert records_of((await peer.answer(ApiKey.FETCH, 12))[1]) == CONTENT[:SIZE]
        peer.request(ApiKey.FETCH, 12, {"topics": []})
        await until(lambda: bool(late))
        answer = stored.answer()
        stored.file.close()
        with capture_logs() as events:
            late.pop().give(answer)
            assert await peer.closed() == b""
    assert [event["event"] for event in events] == ["request_failed"]
