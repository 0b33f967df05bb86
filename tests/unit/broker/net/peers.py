"""A server over handlers that a test writes, and a client that speaks frames over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import pytest

from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.handlers.context import Handler
from tidelog.broker.limits.connection_limits import ConnectionLimits
from tidelog.broker.limits.handle_budget import HandleBudget
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.queued_memory import QueuedMemory
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.endpoints import Endpoint, bind_endpoints
from tidelog.broker.net.server import Server
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.storage.disk import Disk
from tidelog.protocol.framing import decode_response_header, encode_request_frame
from tidelog.protocol.hot import ProduceRequest, TopicKey, encode_produce_request
from tidelog.protocol.schema import ApiKey, decode_response, encode_request


class Running(Server):
    """A started server; `port` is its first endpoint's."""

    port: int
    endpoints: list[Endpoint]

    @classmethod
    async def start_with(cls, handlers: Mapping[ApiKey, Handler], settings: Mapping[str, object]) -> Self:
        chosen_port = {} if "listeners" in settings else {"port": 0}
        config = BrokerConfig().with_settings({**chosen_port, **settings})
        metrics = Metrics()
        events = PeerEvents()
        handles = HandleBudget(Disk(), lambda: 0)
        memory = QueuedMemory(config.queued_max_bytes)
        dispatcher = Dispatcher(handlers, metrics, events)
        limits = ConnectionLimits(burst_seconds=1.0)
        server = cls(BrokerSettings(config), dispatcher, metrics, events, handles, memory, limits)
        server.endpoints = bind_endpoints(config)
        server.start(server.endpoints)
        server.port = server.endpoints[0].port
        return server


@asynccontextmanager
async def serving(handlers: Mapping[ApiKey, Handler], **settings: object) -> AsyncIterator[Running]:
    """A server over `handlers`; settings by attribute."""
    server = await Running.start_with(handlers, settings)
    try:
        yield server
    finally:
        await server.stop(1000)


def measured_by_the_loop(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Their times are those of the loop's clock, which leaves out when the machine runs something else."""
    clock = SimpleNamespace(perf_counter=asyncio.get_running_loop().time)
    for module in modules:
        monkeypatch.setattr(module, "time", clock)


class Peer:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, limit: int = 1 << 26) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=limit))

    def send(self, frame: bytes) -> None:
        self.writer.write(frame)

    def request(
        self, api_key: ApiKey, version: int, values: Mapping[str, object], correlation_id: int = 0
    ) -> None:
        self.send(request_frame(api_key, version, values, correlation_id))

    async def frame(self) -> bytes:
        """The next whole frame without its size prefix. asyncio.IncompleteReadError at the end."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def answer(self, api_key: ApiKey, version: int) -> tuple[int, Any]:
        """(correlation id, response) of the next frame."""
        frame = await self.frame()
        correlation_id, position = decode_response_header(api_key, version, frame)
        return correlation_id, decode_response(api_key, version, frame[position:])

    async def ask(self, api_key: ApiKey, version: int, values: Mapping[str, object] | None = None) -> Any:
        self.request(api_key, version, values or {})
        _, response = await self.answer(api_key, version)
        return response

    async def closed(self) -> bytes:
        """Everything up to the end of the stream."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def request_frame(
    api_key: ApiKey, version: int, values: Mapping[str, object], correlation_id: int = 0
) -> bytes:
    body = encode_request(api_key, version, values)
    return b"".join(encode_request_frame(api_key, version, correlation_id, "test", body))


def produce_frame(
    version: int,
    topics: list[tuple[TopicKey, list[tuple[int, bytes]]]],
    acks: int = -1,
    correlation_id: int = 0,
) -> bytes:
    request = ProduceRequest(None, acks, 30_000, topics)
    body = encode_produce_request(version, request)
    return b"".join(encode_request_frame(ApiKey.PRODUCE, version, correlation_id, "test", body))
