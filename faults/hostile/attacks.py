"""What a peer can do besides one large request: announce sizes, wait, never read, send nonsense and bombs.

Owns the attacks. Each returns a description of what it did, and closes what it opened. The broker may defend
itself in any way: it may refuse, disconnect or not answer.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Final, NamedTuple

from faults.hostile.largest import Large, waiting_fetch
from faults.wire import Wire
from tidelog.protocol.compression import Compression
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey, encode_request

_HOST: Final = "127.0.0.1"
_READ_BYTES: Final = 1 << 16
_ANNOUNCED_BYTES: Final = 2 << 20
_ANNOUNCERS: Final = 400
_SILENT: Final = 40
_SILENT_REQUESTS: Final = 300
_PARKED: Final = 40
_PARKED_REPEATS: Final = 50_000
_PARKED_MS: Final = 3_000
_NONSENSE: Final = 200
_HOLD_S: Final = 1.0
_ANSWER_S: Final = 120.0
_SEND_S: Final = 10.0
_QUIET_S: Final = 5.0
_BOMBS: Final = 4
_BOMB_BYTES: Final = 150 << 20
_CROWD: Final = 100
_HEALTH_CHECKS: Final = 40
_HEALTH_S: Final = 10.0
_CROWDS: Final = (
    b"",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n",
    b"POST /faults HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YTpi\r\n\r\n",
)
"""What a peer of each kind sends before it waits: nothing, half a head, half a body, a password."""
_HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Ports(NamedTuple):
    """Where a broker listens."""

    kafka: int
    http: int


async def send_large(ports: Ports, large: Large) -> str:
    """Send one large request and take its answer, or the end of the connection."""
    async with _connections(ports.kafka, 1) as ((reader, writer),):
        writer.writelines(encode_request_frame(large.api, large.version, 1, "hostile", large.body))
        came = 0
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_ANSWER_S):
                size = int.from_bytes(await reader.readexactly(4), "big")
                while came < size and (piece := await reader.read(_READ_BYTES)):
                    came += len(piece)
    answer = f"answered with {came:,} bytes" if came else "refused"
    return f"{large}: {len(large.body):,} bytes {answer}"


async def announce(ports: Ports, topic: str, rng: random.Random) -> str:
    """Connections that announce a large frame and send one byte of it."""
    async with _connections(ports.kafka, _ANNOUNCERS) as peers:
        for _, writer in peers:
            writer.write(_ANNOUNCED_BYTES.to_bytes(4, "big") + b"x")
        await asyncio.sleep(_HOLD_S)
    return f"{_ANNOUNCERS} connections announced {_ANNOUNCED_BYTES:,} bytes each and sent one"


async def trickle(ports: Ports, topic: str, rng: random.Random) -> str:
    """Connections that send half of what they announced, and wait."""
    half = bytes(_ANNOUNCED_BYTES // 2)
    async with _connections(ports.kafka, _SILENT) as peers:
        for _, writer in peers:
            writer.write(_ANNOUNCED_BYTES.to_bytes(4, "big") + half)
        await _sent(peers)
        await asyncio.sleep(_HOLD_S)
    return f"{_SILENT} connections sent {len(half):,} of {_ANNOUNCED_BYTES:,} bytes"


async def never_read(ports: Ports, topic: str, rng: random.Random) -> str:
    """Connections that ask for everything there is, again and again, and read nothing."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}
    values = {
        "replica_id": -1,
        "max_bytes": 50 << 20,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }
    body = encode_request(ApiKey.FETCH, 11, values)
    asked = b"".join(encode_request_frame(ApiKey.FETCH, 11, 1, "hostile", body)) * _SILENT_REQUESTS
    async with _connections(ports.kafka, _SILENT) as peers:
        for _, writer in peers:
            writer.write(asked)
        await _sent(peers)
        await asyncio.sleep(_HOLD_S)
    return f"{_SILENT} connections asked {_SILENT_REQUESTS} times for all records and read nothing"


async def park(ports: Ports, topic: str, rng: random.Random) -> str:
    """Fetches of one empty partition, repeated within each, that wait for a record."""
    large = waiting_fetch(f"{topic}-empty", _PARKED_REPEATS, _PARKED_MS)
    frame = b"".join(encode_request_frame(large.api, large.version, 1, "hostile", large.body))
    async with _connections(ports.kafka, _PARKED) as peers:
        for _, writer in peers:
            writer.write(frame)
        await _sent(peers)
        await asyncio.sleep(_HOLD_S)
    return f"{_PARKED} fetches wait for {large.elements:,} × the same partition each"


async def talk_nonsense(ports: Ports, topic: str, rng: random.Random) -> str:
    """Frames of random bytes, some with a header that is right."""
    for _ in range(_NONSENSE):
        async with _connections(ports.kafka, 1) as ((reader, writer),):
            data = rng.randbytes(rng.randrange(1, 2000))
            if rng.random() < 0.5:
                head = rng.randrange(70).to_bytes(2, "big") + rng.randrange(12).to_bytes(2, "big")
                data = head + bytes(4) + b"\xff\xff" + data
            if rng.random() < 0.8:
                data = len(data).to_bytes(4, "big") + data
            writer.write(data)
            with contextlib.suppress(OSError):
                writer.write_eof()
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(_QUIET_S):
                    while await reader.read(_READ_BYTES):
                        pass
    return f"{_NONSENSE} connections sent random bytes"


@cache
def _bomb(codec: Compression) -> bytes:
    """A small batch whose one record has `_BOMB_BYTES`."""
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, bytes(_BOMB_BYTES))
    return bytes(builder.build(codec))


async def send_bombs(ports: Ports, topic: str, rng: random.Random) -> str:
    """Batches of each codec that yield more than the broker accepts, several times."""
    codecs = list(Compression)[1:]
    async with Wire.connected(ports.kafka) as wire:
        for codec in rng.sample(codecs, len(codecs)):
            for _ in range(_BOMBS):
                await wire.append(topic, {0: _bomb(codec)})
    return f"{_BOMBS} batches of each of {len(codecs)} codecs yield {_BOMB_BYTES:,} bytes each"


async def crowd_http(ports: Ports, topic: str, rng: random.Random) -> str:
    """Connections to the HTTP port that wait, beside health checks. OSError and TimeoutError if one fails."""
    for begun in _CROWDS:
        async with _connections(ports.http, _CROWD) as peers:
            for _, writer in peers:
                writer.write(begun)
            for _ in range(_HEALTH_CHECKS):
                await _check_health(ports.http)
    return f"{_HEALTH_CHECKS} health checks beside {_CROWD} connections of each of {len(_CROWDS)} kinds"


async def _check_health(port: int) -> None:
    async with _connections(port, 1) as ((reader, writer),), asyncio.timeout(_HEALTH_S):
        writer.write(_HEALTH)
        answer = await reader.read()
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"/healthz was answered with {answer[:80]!r}")


ATTACKS: Final[Mapping[str, Callable[[Ports, str, random.Random], Awaitable[str]]]] = {
    "announced and not sent": announce,
    "sent by half": trickle,
    "answers never read": never_read,
    "fetches that wait": park,
    "nonsense": talk_nonsense,
    "compression bombs": send_bombs,
    "crowds at the HTTP port": crowd_http,
}


@asynccontextmanager
async def _connections(port: int, count: int) -> AsyncIterator[list[Stream]]:
    peers: list[Stream] = []
    try:
        while len(peers) < count:
            peers.append(await asyncio.open_connection(_HOST, port, limit=_READ_BYTES))
        yield peers
    finally:
        for _, writer in peers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for _, writer in peers), return_exceptions=True)


async def _sent(peers: list[Stream]) -> None:
    """Wait until the broker has taken what it takes: all of it, or as long as it takes any."""

    async def drained(writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_SEND_S):
                await writer.drain()

    await asyncio.gather(*(drained(writer) for _, writer in peers))
