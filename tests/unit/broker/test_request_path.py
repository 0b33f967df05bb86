"""The way of a request through the broker, as its reader follows it: how many files it passes, and how often
it returns to one.

Owns the trace: each call of a function of the broker, in order. A hop is a call in another file than the call
before; a return is a hop to a file that was passed before.
"""

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tidelog
from tidelog.broker.testing.embedded import EmbeddedBroker
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import (
    FetchPartition,
    FetchRequest,
    ProduceRequest,
    encode_fetch_request,
    encode_produce_request,
)
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import Buffer

SOURCES = str(Path(tidelog.__file__).parent.resolve())
TRACES = 5
"""Timers of the broker may run within one: the shortest of so many counts."""


def frame(key: ApiKey, version: int, body: Iterable[Buffer] | bytes) -> bytes:
    return b"".join(encode_request_frame(key, version, 1, "client", body))  # type: ignore[arg-type]


def produce() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(time.time_ns() // 1_000_000, None, bytes(100))
    request = ProduceRequest(None, -1, 30_000, [("t", [(0, bytes(builder.build()))])])
    return frame(ApiKey.PRODUCE, 9, encode_produce_request(9, request))


def fetch() -> bytes:
    partition = FetchPartition(0, -1, 0, -1, -1, 1 << 20)
    request = FetchRequest(-1, 500, 1, 1 << 20, 0, 0, -1, [("t", [partition])])
    return frame(ApiKey.FETCH, 11, encode_fetch_request(11, request))


class Client:
    """A socket of this loop, which runs no code of the broker itself."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setblocking(False)

    async def ask(self, request: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, request)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            answer += await loop.sock_recv(self._socket, 1 << 16)
        return answer

    async def traced(self, request: bytes) -> list[str]:
        """The files of all calls until its answer has come, in order."""
        files: list[str] = []

        def note(caller: FrameType, event: str, _: Any) -> None:
            if event == "call" and caller.f_code.co_filename.startswith(SOURCES):
                files.append(caller.f_code.co_filename)

        sys.setprofile(note)
        try:
            await self.ask(request)
        finally:
            sys.setprofile(None)
        return [file for file, _ in groupby(files)]

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize(
    ("before", "request_of", "most_files", "most_returns"),
    [
        pytest.param([fetch], produce, 29, 25, id="Produce"),
        pytest.param([produce, produce], produce, 25, 21, id="Produce in a stream"),
        pytest.param([produce], fetch, 26, 18, id="Fetch"),
    ],
)
async def test_a_request_passes_few_files_and_seldom_returns_to_one(
    before: list[Callable[[], bytes]],
    request_of: Callable[[], bytes],
    most_files: int,
    most_returns: int,
    tmp_path: Path,
) -> None:
    ways: list[list[str]] = []
    # Faults are off, as where records are served.
    async with EmbeddedBroker(data_dir=tmp_path, settings={"faults.enable": False}) as broker:
        await broker.create_topic("t")
        for _ in range(TRACES):
            client = Client(broker.port)
            for request in before:
                await client.ask(request())
            ways.append(await client.traced(request_of()))
            client.close()
    way = min(ways, key=len)
    files = len(set(way))
    returns = len(way) - files
    print(f"{files} files, {len(way) - 1} hops, {returns} returns")
    assert files <= most_files
    assert returns <= most_returns
