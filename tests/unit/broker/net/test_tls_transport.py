"""TLS on a real socket: bytes and their order, back-pressure in both directions, and handshakes that fail."""

import asyncio
import fcntl
import random
import socket
import ssl
import sys
import termios
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from structlog.testing import capture_logs

from tests.certificates import Certificates
from tests.unit.broker.net.peers import Peer, produce_frame, request_frame, serving
from tests.unit.broker.observability.test_metrics import value
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.net import handshakes as handshakes_module
from tidelog.broker.net import tls_transport as tls_transport_module
from tidelog.broker.net.endpoints import bind
from tidelog.broker.net.handshakes import Handshakes
from tidelog.broker.net.http import HttpServer
from tidelog.broker.net.tls_transport import RECEIVE_BYTES, TlsTransport
from tidelog.broker.net.writing import RECEIVED_BYTES
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.security.tls import ListenerTls
from tidelog.protocol.schema import ApiKey

LARGE = 5 << 20
FUZZ_SEEDS = range(30)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Echo(asyncio.BufferedProtocol):
    """Sends back what it gets, in pieces of any size, and stops reading now and then."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.buffer = bytearray(1)
        self.transport: Any
        self.is_lost = asyncio.Event()
        self.is_writing_paused = False
        self.pauses = 0
        self.goes_on = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=1 << 20)

    def get_buffer(self, sizehint: int) -> bytearray:
        self.buffer = bytearray(self.choice.choice((1, 700, 20_000, 300_000)) if self.goes_on else 1)
        return memoryview(self.buffer)  # type: ignore[return-value]

    def buffer_updated(self, nbytes: int) -> None:
        got = bytes(self.buffer[:nbytes])
        cuts = sorted(self.choice.randrange(nbytes + 1) for _ in range(self.choice.randrange(4)))
        pieces = [got[begin:end] for begin, end in zip([0, *cuts], [*cuts, nbytes], strict=True)]
        self.transport.writelines(pieces)
        if self.choice.random() < 0.3 or not self.goes_on:
            self.transport.pause_reading()
            if self.goes_on:
                asyncio.get_running_loop().call_soon(self.transport.resume_reading)

    def pause_writing(self) -> None:
        self.is_writing_paused = True
        self.pauses += 1

    def resume_writing(self) -> None:
        self.is_writing_paused = False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost.set()


@asynccontextmanager
async def echoing(
    certificates: Certificates, seed: int, **settings: Any
) -> AsyncIterator[tuple[int, list[Echo]]]:
    """(port, connections) of a server whose connections echo."""
    config = BrokerConfig(ssl_keystore_location=certificates.keystore, **settings)
    tls = ListenerTls(config, "SSL")
    handshakes = Handshakes(PeerEvents(), Metrics())
    made: list[Echo] = []

    def make() -> Echo:
        made.append(Echo(random.Random(seed)))
        return made[-1]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: TlsTransport(tls, handshakes, make), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], made
    finally:
        server.close()
        handshakes.close()
        for each in made:
            each.transport.abort()
            await each.is_lost.wait()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_what_a_client_sends_arrives_whole_and_in_order_and_so_does_what_it_is_sent(
    certificates: Certificates, version: str
) -> None:
    sent = random.Random(version).randbytes(LARGE)
    async with echoing(certificates, 1, ssl_enabled_protocols=(version,)) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificates.context())
        assert writer.get_extra_info("ssl_object").version() == version
        writer.write(sent)
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await reader.readexactly(LARGE) == sent
        writer.close()


async def test_a_client_that_does_not_read_is_not_encrypted_for_in_advance(
    certificates: Certificates,
) -> None:
    async with echoing(certificates, 1) as (port, made):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificates.context(), limit=1)
        await until(lambda: made)
        echo = made[0]
        sent = random.Random(1).randbytes(4 * LARGE)
        echo.transport.writelines([sent[:100], memoryview(sent)[100:]])
        assert echo.is_writing_paused
        assert echo.transport.get_write_buffer_size() > 3 * LARGE
        assert echo.transport._raw.get_write_buffer_size() < 3 * tls_transport_module._AHEAD_BYTES
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await reader.readexactly(len(sent)) == sent
        await until(lambda: not echo.is_writing_paused and not echo.transport.get_write_buffer_size())
        assert echo.pauses == 1
        writer.close()


async def test_a_connection_that_does_not_read_keeps_at_most_one_read_of_the_socket(
    certificates: Certificates,
) -> None:
    async with echoing(certificates, 2) as (port, made):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificates.context())
        await until(lambda: made)
        transport = made[0].transport
        made[0].goes_on = False
        sent = random.Random(2).randbytes(4 * LARGE)
        writer.write(sent)
        received = transport.get_extra_info(RECEIVED_BYTES)
        await until(received)
        await until(lambda: waiting_in_the_kernel(transport) > 16 * 1024)
        assert 0 < received() <= RECEIVE_BYTES + 2 * 16 * 1024
        made[0].goes_on = True
        transport.resume_reading()
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await reader.readexactly(len(sent)) == sent
        writer.close()


def waiting_in_the_kernel(transport: Any) -> int:
    size = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))
    return int.from_bytes(size, sys.byteorder)


async def test_what_was_written_before_a_close_is_sent_and_the_end_is_announced(
    certificates: Certificates,
) -> None:
    async with echoing(certificates, 3) as (port, made):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificates.context())
        await until(lambda: made)
        sent = bytes(LARGE)
        made[0].transport.write(sent)
        made[0].transport.close()
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await reader.read() == sent  # Without the announcement this is an error of ssl.
        writer.close()


def tls_settings(certificates: Certificates) -> dict[str, object]:
    return {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": certificates.keystore}


def api_versions(context: Any, request: Any) -> Any:
    return {"error_code": 0}


HANDLERS = {ApiKey.API_VERSIONS: api_versions}


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as events:
        yield events


async def test_a_client_without_tls_is_disconnected_with_one_event_that_says_so(
    certificates: Certificates, logged: list[Any]
) -> None:
    async with (
        serving(HANDLERS, **tls_settings(certificates)) as server,
        await Peer.connect(server.port) as peer,
    ):
        peer.request(ApiKey.API_VERSIONS, 3, {})
        assert await peer.closed() == b""
    (event,) = logged
    assert event["event"] == "connection_closed_bad_tls"
    assert event["listener"] == "SSL"
    assert event["reason"].startswith("the client does not begin with TLS (first bytes 00 00 00")
    assert "security.protocol" in event["advice"]


async def test_a_client_with_tls_at_a_port_without_it_is_disconnected_with_one_event_that_says_so(
    certificates: Certificates, logged: list[Any]
) -> None:
    async with serving(HANDLERS) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", server.port, ssl=certificates.context())
    (event,) = logged
    assert event["event"] == "connection_closed_bad_request"
    assert "the peer uses TLS, and this port does not" in event["reason"]


async def test_what_is_encrypted_is_not_mapped(certificates: Certificates) -> None:
    sends_mapped: list[bool] = []

    def handle(context: Any, request: Any) -> Any:
        sends_mapped.append(context.connection.sends_mapped)
        return api_versions(context, request)

    async with serving({ApiKey.API_VERSIONS: handle}, **tls_settings(certificates)) as server:
        streams = await asyncio.open_connection("127.0.0.1", server.port, ssl=certificates.context())
        async with Peer(*streams) as peer:
            await peer.ask(ApiKey.API_VERSIONS, 3)
    assert sends_mapped == [False]


async def test_a_handshake_has_a_deadline(
    certificates: Certificates, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes_module, "DEADLINE_SECONDS", 0.05)
    async with (
        serving(HANDLERS, **tls_settings(certificates)) as server,
        await Peer.connect(server.port) as peer,
    ):
        peer.send(b"\x16\x03\x01\x02\x00\x01")
        assert await peer.closed() == b""
        assert len(server.handshakes) == 0
    (event,) = logged
    assert event["reason"] == "the handshake took longer than 0.05 seconds"


async def test_a_handshake_takes_bounded_memory(
    certificates: Certificates, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport_module, "_MOST_HANDSHAKE_BYTES", 1000)
    async with (
        serving(HANDLERS, **tls_settings(certificates)) as server,
        await Peer.connect(server.port) as peer,
    ):
        peer.send(b"\x16\x03\x01\x3f\xff\x01\x00\xff\xff" + bytes(2000))
        await peer.closed()
    (event,) = logged
    assert event["reason"] == "the handshake is longer than 1000 bytes"


async def test_of_too_many_handshakes_the_oldest_ends_and_the_newest_is_served(
    certificates: Certificates, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes_module, "MOST", 2)
    async with (
        serving(HANDLERS, **tls_settings(certificates)) as server,
        await Peer.connect(server.port) as first,
        await Peer.connect(server.port) as second,
    ):
        await until(lambda: len(server.handshakes) == 2)
        streams = await asyncio.open_connection("127.0.0.1", server.port, ssl=certificates.context())
        assert (await Peer(*streams).ask(ApiKey.API_VERSIONS, 3)).error_code == 0
        assert await first.closed() == b""
        assert len(server.handshakes) == 1
        await second.close()
        await until(lambda: not len(server.handshakes))
        streams[1].close()
    (event,) = logged  # A client that only connects and leaves, as a health check does, is no event.
    assert event["reason"].startswith("more than 2 handshakes are in progress")


async def test_of_too_many_handshakes_that_begin_at_once_only_the_newest_go_on(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes_module, "MOST", 2)
    async with serving(HANDLERS, **tls_settings(certificates)) as server:
        peers = await asyncio.gather(*(Peer.connect(server.port) for _ in range(8)))
        for peer in peers[:6]:
            assert await peer.closed() == b""
        assert len(server.handshakes) == 2
        assert value(server.metrics, "tidelog_tls_failures_total") == 6
        for peer in peers:
            await peer.close()


async def test_handshakes_count_among_the_connections_of_their_address(
    certificates: Certificates, logged: list[Any]
) -> None:
    async with (
        serving(HANDLERS, max_connections_per_ip=2, **tls_settings(certificates)) as server,
        await Peer.connect(server.port) as first,
    ):
        await until(lambda: len(server.handshakes) == 1)
        streams = await asyncio.open_connection("127.0.0.1", server.port, ssl=certificates.context())
        async with Peer(*streams) as second:
            assert (await second.ask(ApiKey.API_VERSIONS, 3)).error_code == 0
            async with await Peer.connect(server.port) as third:
                assert await third.closed() == b""
            assert len(server.handshakes) == 1
        await first.close()
    (event,) = logged
    assert (event["event"], event["max_connections_per_ip"]) == ("connection_refused", 2)


async def test_connections_in_their_handshake_count_among_the_file_handles(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(HANDLERS, **tls_settings(certificates)) as server:
        asked: list[int] = []
        monkeypatch.setattr(server._handles, "admits", lambda count: asked.append(count) or True)
        async with await Peer.connect(server.port):
            await until(lambda: len(server.handshakes) == 1)
            async with await Peer.connect(server.port):
                await until(lambda: len(server.handshakes) == 2)
    assert asked == [0, 1]


def damaged(choice: random.Random, flight: bytes) -> bytes:
    """Bytes flipped, cut, inserted, repeated or exchanged, or noise after the header of a record."""
    at, end = sorted(choice.randrange(len(flight) + 1) for _ in range(2))
    kind = choice.randrange(6)
    if kind == 0:
        flipped = bytearray(flight)
        for _ in range(choice.randrange(1, 6)):
            flipped[choice.randrange(len(flight))] ^= 1 << choice.randrange(8)
        return bytes(flipped)
    noise = choice.randbytes(choice.choice((1, 100, 40_000)))
    return (
        flight[:at],
        flight[:at] + noise + flight[at:],
        flight[:end] + flight[at:],
        flight[end:] + flight[:end],
        flight * choice.randrange(2) + b"\x16\x03\x03" + noise,
    )[kind - 1]


async def damage_one_flight(port: int, context: ssl.SSLContext, choice: random.Random) -> None:
    """Its greeting, the end of its handshake or its first request; the client is disconnected."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    goes_well = choice.randrange(3)
    async with await Peer.connect(port) as peer:
        for flight in range(goes_well + 1):
            is_done = False
            while not is_done and (flight == 2 or not outgoing.pending):
                try:
                    tls.do_handshake()
                    is_done = True
                except ssl.SSLWantReadError:
                    if not outgoing.pending:
                        incoming.write(await peer.reader.read(1 << 16))
            if flight == 2:
                tls.write(request_frame(ApiKey.API_VERSIONS, 3, {}))
            sent = outgoing.read()
            peer.send(damaged(choice, sent) if flight == goes_well else sent)
        peer.writer.write_eof()
        assert len(await peer.closed()) < 50_000


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_damaged_bytes_of_tls_end_only_their_connection(
    certificates: Certificates, logged: list[Any], version: ssl.TLSVersion
) -> None:
    """At each step, with a client's certificate, which TLS 1.2 sends in clear text."""
    context = certificates.context(certificates.client("alice"))
    context.maximum_version = version
    settings = {"ssl.client.auth": "required", "ssl.truststore.location": certificates.authority}
    async with serving(HANDLERS, **tls_settings(certificates), **settings) as server:
        for seed in FUZZ_SEEDS:
            await damage_one_flight(server.port, context, random.Random(seed))
        await until(lambda: not len(server.handshakes) and not server._connections)
        good = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        assert (await Peer(*good).ask(ApiKey.API_VERSIONS, 3)).error_code == 0
        good[1].close()
    refused = [event["reason"] for event in logged if event["event"] == "connection_closed_bad_tls"]
    assert refused
    assert not {"", "SSLError"} & set(refused)
    assert {event["event"] for event in logged} <= {"connection_closed_bad_tls", "events_held_back"}


class RecordsByHand:
    """A client of TLS 1.3 that has finished its handshake, and makes its further records itself (RFC 8446).

    Python's ssl cannot ask for new keys.
    """

    def __init__(self, peer: Peer, secret: bytes) -> None:
        self.peer, self._secret, self._sent = peer, secret, 0

    @classmethod
    async def connect(cls, port: int, certificates: Certificates, folder: Path) -> "RecordsByHand":
        context = certificates.context()
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(folder / "keys")
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
        small.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1_000)
        small.connect(("127.0.0.1", port))
        peer = Peer(*await asyncio.open_connection(sock=small, limit=1_000))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                peer.send(outgoing.read())
                incoming.write(await peer.reader.read(1 << 16))
        peer.send(outgoing.read())
        lines = (folder / "keys").read_text().splitlines()
        (secret,) = (line.split()[2] for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0"))
        return cls(peer, bytes.fromhex(secret))

    def _derive(self, label: bytes, size: int) -> bytes:
        label = b"tls13 " + label
        info = size.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
        return HKDFExpand(SHA384(), size, info).derive(self._secret)

    def record(self, content: bytes, kind: int = 23) -> bytes:
        nonce = int.from_bytes(self._derive(b"iv", 12), "big") ^ self._sent
        self._sent += 1
        header = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2, "big")
        key = AESGCM(self._derive(b"key", 32))
        return header + key.encrypt(nonce.to_bytes(12, "big"), content + bytes([kind]), header)

    def key_update(self) -> bytes:
        """The broker has to answer with new keys of its own."""
        record = self.record(b"\x18\0\0\x01\x01", kind=22)
        self._secret, self._sent = self._derive(b"traffic upd", 48), 0
        return record


async def test_a_client_that_asks_for_new_keys_again_and_again_is_disconnected(
    certificates: Certificates, logged: list[Any], tmp_path: Path
) -> None:
    async with serving(HANDLERS, **tls_settings(certificates)) as server:
        client = await RecordsByHand.connect(server.port, certificates, tmp_path)
        async with client.peer as peer:
            peer.send(b"".join(client.key_update() for _ in range(100)))
            await peer.closed()
    (event,) = logged
    assert event["reason"] == "the client requests key updates too often"


async def test_nor_does_the_http_port_answer_such_a_client_without_end(
    certificates: Certificates, logged: list[Any], tmp_path: Path
) -> None:
    tls = ListenerTls(BrokerConfig.load(tls_settings(certificates)), "HTTP")
    server = HttpServer(bind("127.0.0.1", 0, "http.port"), Metrics(), lambda: True, PeerEvents(), tls=tls)
    server.start()
    try:
        client = await RecordsByHand.connect(server.port, certificates, tmp_path)
        async with client.peer as peer:
            peer.send(b"".join(client.key_update() for _ in range(100)))
            await peer.closed()
    finally:
        await server.stop()
    (event,) = logged
    assert (event["reason"], event["listener"]) == ("the client requests key updates too often", "HTTP")


def are_read(connection: Any, size: int) -> Callable[[], bool]:
    """Whether the broker has read so many bytes of the client's next frame, or reads no more."""
    return lambda: connection._reader.pending_bytes >= size or not connection._transport._raw.is_reading()


async def test_a_client_that_does_not_read_what_tls_answers_is_not_read(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport_module, "_AHEAD_BYTES", 10_000)
    async with serving(HANDLERS, **tls_settings(certificates)) as server:
        client = await RecordsByHand.connect(server.port, certificates, tmp_path)
        async with client.peer as peer:
            await until(lambda: server._connections)
            (connection,) = server._connections
            raw = connection._transport._raw  # type: ignore[attr-defined]
            raw.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            peer.send(client.record((1 << 16).to_bytes(4, "big")))  # A frame that never ends.
            await until(lambda: connection._reader.pending_bytes == 4)
            while raw.is_reading():
                before = connection._reader.pending_bytes
                peer.send(b"".join(client.record(b"x") + client.key_update() for _ in range(20)))
                await until(are_read(connection, before + 20))
            assert 10_000 < raw.get_write_buffer_size() < 20_000
            while not raw.is_reading():
                await peer.reader.read(1 << 16)
            assert raw.get_write_buffer_size() < 10_000


async def test_what_tls_holds_counts_as_memory_of_its_connection(certificates: Certificates) -> None:
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    settings = {**tls_settings(certificates), "connection.queued.max.requests": 1}
    async with serving({ApiKey.PRODUCE: lambda context, request: waiting}, **settings) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=certificates.context())
        frame = produce_frame(9, [("t", [(0, bytes(100))])])
        writer.write(frame * 20_000)
        await until(lambda: server._connections)
        (connection,) = server._connections
        await until(connection._received_bytes)
        received = connection._received_bytes()
        assert connection.held().receiving == connection._reader.capacity_bytes + received
        assert connection.held_bytes() >= connection._reader.capacity_bytes + received
        assert connection.held().is_sending
        writer.transport.abort()
        waiting.cancel()


async def test_a_server_that_stops_does_not_wait_for_handshakes(
    certificates: Certificates, tmp_path: Path
) -> None:
    async with (
        serving(HANDLERS, **tls_settings(certificates)) as server,
        await Peer.connect(server.port) as peer,
    ):
        await until(lambda: len(server.handshakes) == 1)
        await server.stop(60_000)
        assert await peer.closed() == b""
