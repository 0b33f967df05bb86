"""A refused request leaves nothing behind: what it held is freed at once, not when the collector runs."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

import pytest

from faults.hostile.largest import largest_requests
from tests.certificates import Certificates
from tests.conformance.raw import batch, connected
from tests.unit.broker.net.peers import Peer, produce_frame
from tests.waiting import until
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.broker.storage import batch_inspection
from tidelog.broker.testing.embedded import EmbeddedBroker
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.records import RecordBatchBuilder, inspectable
from tidelog.protocol.schema import ApiKey, encode_request
from tidelog.protocol.types import Buffer

TOPIC = "t"
VERSIONS = {key: served.last for key, served in SERVED_APIS.items()}
OPEN: Mapping[str, Any] = {"auto.create.topics.enable": False}
ELEMENTS = 3
BOMB_BYTES = 2 << 20
_LEFT_SECONDS = 20.0


def alive() -> Counter[str]:
    """Tidelog's objects by class, and the tracebacks of its frames by place.

    Other libraries have threads with errors of their own, such as py4j's.
    """
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        if kind is TracebackType:
            frame = each.tb_frame
            if str(frame.f_globals.get("__name__")).startswith("tidelog."):
                found[f"{frame.f_code.co_qualname}:{each.tb_lineno}"] += 1
        elif str(kind.__module__).startswith("tidelog."):
            found[kind.__qualname__] += 1
    return found


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """What is done inside leaves no object and no frame of an error: nothing waits for the collector."""
    gc.collect()
    gc.disable()
    before = alive()
    try:
        yield
        with suppress(TimeoutError):  # A thread may still end what is answered already.
            await until(lambda: not alive() - before, _LEFT_SECONDS)
        assert alive() - before == Counter()
    finally:
        gc.enable()


def frame(key: ApiKey, body: bytes) -> bytes:
    return b"".join(encode_request_frame(key, VERSIONS[key], 1, "refused", body))


def requests(key: ApiKey) -> Iterator[bytes]:
    """Of one API: one with defaults, one per list with elements, and one that ends early."""
    if key is ApiKey.PRODUCE:
        for acks in (-1, 1, 0):
            yield produce_frame(VERSIONS[key], [(UUID(int=1), [(0, batch("x", 1, 0))])], acks=acks)
    elif key is not ApiKey.FETCH:
        # A client without an instance id gets one, which stays.
        values = {"client_instance_id": UUID(int=1)} if key is ApiKey.GET_TELEMETRY_SUBSCRIPTIONS else {}
        yield frame(key, encode_request(key, VERSIONS[key], values))
    for large in largest_requests(TOPIC, {key: VERSIONS[key]}, ELEMENTS):
        yield frame(key, large.body)
        yield frame(key, large.body[:-3])


async def exchange(port: int, data: bytes) -> None:
    """Send it twice, because the second of two like requests may take another way, and close."""
    async with await Peer.connect(port) as peer:
        peer.send(data * 2)
        peer.writer.write_eof()
        await peer.closed()


@pytest.mark.parametrize(
    "settings",
    [
        OPEN,
        {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"},
        {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"},
    ],
    ids=["unknown or wrong", "without a right", "without a user"],
)
async def test_no_refusal_of_any_api_leaves_an_object(settings: Mapping[str, Any]) -> None:
    async with EmbeddedBroker(settings=settings) as broker:
        await broker.create_topic(TOPIC)
        every = [request for key in SERVED_APIS for request in requests(key)]
        for request in every:  # The first of a kind makes what stays, such as its metrics.
            await exchange(broker.port, request)
        async with nothing_left():
            for request in every:
                await exchange(broker.port, request)


def bomb(codec: Compression) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, bytes(BOMB_BYTES))
    return bytes(builder.build(codec))


async def test_a_batch_that_yields_more_than_memory_allows_is_refused_and_freed() -> None:
    settings = {**OPEN, "socket.request.max.bytes": BOMB_BYTES, "queued.max.bytes": 2 * BOMB_BYTES}
    async with EmbeddedBroker(settings=settings) as broker, connected(broker.port) as client:
        for stored_as in ("producer", "uncompressed"):
            await broker.create_topic(stored_as, configs={"compression.type": stored_as})
        codecs = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
        bombs = list(zip(map(bomb, codecs), ("producer", "uncompressed") * 2, strict=True))

        async def be_refused() -> None:
            for data, topic in bombs * 3:  # The third of like requests takes another way.
                assert await client.produce(data, topic=topic) == (ErrorCode.MESSAGE_TOO_LARGE, -1)

        await be_refused()
        async with nothing_left():
            await be_refused()


async def test_a_refusal_over_tls_leaves_nothing(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": certificates.keystore}
    async with EmbeddedBroker(settings=settings) as broker:

        async def be_refused() -> None:
            tls = certificates.context()
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=tls)
            async with Peer(reader, writer) as peer:
                peer.send(frame(ApiKey.METADATA, b"not a request"))
                await peer.closed()

        await be_refused()
        async with nothing_left():
            await be_refused()


async def test_what_a_thread_decompresses_counts_as_queued_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async with EmbeddedBroker() as broker, connected(broker.port) as client:
        await broker.create_topic(TOPIC)
        guard = broker.broker._server.guard
        counted: list[int] = []

        def noting(data: Buffer) -> bytes:
            counted.append(guard._total_bytes())
            return inspectable(data)

        monkeypatch.setattr(batch_inspection, "inspectable", noting)
        assert await client.produce(bomb(Compression.ZSTD)) == (ErrorCode.NONE, 0)
        assert counted[0] > 2 * BOMB_BYTES > BOMB_BYTES > guard._total_bytes()
