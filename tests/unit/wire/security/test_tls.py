"""Over TLS the client believes the right broker only, and each failure says what to do."""

import asyncio
import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import pytest
import trustme

from tests.certificates import Certificates as BrokerCertificates
from tests.unit.wire.clusters import opened
from tests.unit.wire.scripted import TOPIC, ScriptedBroker
from tests.unit.wire.security.scripted_sasl import Sasl, user
from tests.unit.wire.test_connection import NO_TOPICS, Opened
from tidelog.client.producer.producer import Producer
from tidelog.protocol.schema import ApiKey
from tidelog.wire.errors import BrokerUnavailableError, TlsError
from tidelog.wire.security.tls import create_ssl_context

LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
LATER = datetime.datetime(2090, 1, 1, tzinfo=datetime.UTC)


class Certificates:
    """A CA, and the files of a client whose certificate it signed."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.cafile = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.cafile)
        issued = self.authority.issue_cert("client")
        self.both, self.certfile, self.keyfile = (
            str(folder / name) for name in ("client.pem", "client.crt", "client.key")
        )
        issued.private_key_and_cert_chain_pem.write_to_path(self.both)
        issued.private_key_pem.write_to_path(self.keyfile)
        Path(self.certfile).write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        self.garbage = str(folder / "garbage.jks")
        Path(self.garbage).write_bytes(b"\xfe\xed\xfe\xed" * 10)

    def of_server(self, host: str = "127.0.0.1", **times: datetime.datetime) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(host, **times).configure_cert(context)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker()
    broker.ssl = context
    async with broker:
        yield broker


class OpenSslServer:
    """One handshake, after which OpenSSL tells the client why it failed. asyncio's servers only hang up."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with self._context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        ) as handshaking:
            with contextlib.suppress(ssl.SSLError):
                handshaking.do_handshake()
            # A close with unread bytes would reset the connection before the client reads the reason.
            while socket.socket.recv(handshaking, 1000):
                pass


async def refused(broker: ScriptedBroker | OpenSslServer, **settings: object) -> TlsError:
    """The error of a start that no retry prolongs."""
    with pytest.raises(TlsError) as caught:
        async with opened(broker.address, **{"security_protocol": "SSL", **settings}):
            pass
    assert not caught.value.retriable
    return caught.value


async def test_a_certificate_of_a_known_ca_for_the_host_is_accepted(certificates: Certificates) -> None:
    async with serving(certificates.of_server()) as broker:
        async with Producer(
            bootstrap_servers=broker.address, security_protocol="SSL", ssl_cafile=certificates.cafile
        ) as producer:
            await producer.send_and_wait(TOPIC, b"x", partition=0)
        assert broker.seen(ApiKey.PRODUCE)


async def test_an_application_may_give_its_own_context(certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.cafile)
    async with (
        serving(certificates.of_server()) as broker,
        Opened(broker, security_protocol="SSL", ssl_context=context) as opening,
    ):
        await opening.connection.call(ApiKey.METADATA, NO_TOPICS)


async def test_a_user_is_authenticated_within_tls(certificates: Certificates) -> None:
    async with serving(certificates.of_server()) as broker:
        Sasl(broker, "SCRAM-SHA-512")
        settings = user("SCRAM-SHA-512", security_protocol="SASL_SSL", ssl_cafile=certificates.cafile)
        async with Opened(broker, **settings) as opening:
            await opening.connection.call(ApiKey.METADATA, NO_TOPICS)


async def test_an_expired_certificate_is_named(certificates: Certificates) -> None:
    old = certificates.of_server(not_before=LONG_AGO, not_after=LONG_AGO + datetime.timedelta(days=1))
    async with serving(old) as broker:
        error = await refused(broker, ssl_cafile=certificates.cafile)
        assert f"{broker.address}: the broker's certificate has expired" in str(error)
    future = certificates.of_server(not_before=LATER, not_after=LATER + datetime.timedelta(days=1))
    async with serving(future) as broker:
        assert "Check the clocks" in str(await refused(broker, ssl_cafile=certificates.cafile))


async def test_a_certificate_of_another_host_is_named_unless_names_are_not_checked(
    certificates: Certificates,
) -> None:
    async with serving(certificates.of_server("kafka.example")) as broker:
        error = await refused(broker, ssl_cafile=certificates.cafile)
        assert "is for another host" in str(error)
        assert "ssl_check_hostname=False" in str(error)
        async with Opened(
            broker, security_protocol="SSL", ssl_cafile=certificates.cafile, ssl_check_hostname=False
        ):
            pass


async def test_an_unknown_ca_is_named(certificates: Certificates) -> None:
    async with serving(certificates.of_server()) as broker:
        assert "no known CA has signed the broker's certificate" in str(await refused(broker))


@pytest.mark.parametrize("last", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_broker_that_wants_a_certificate_gets_it_or_says_why_not(
    certificates: Certificates, last: ssl.TLSVersion
) -> None:
    context = certificates.of_server()
    context.maximum_version = last
    context.verify_mode = ssl.CERT_REQUIRED
    certificates.authority.configure_trust(context)
    settings = {"security_protocol": "SSL", "ssl_cafile": certificates.cafile}
    async with serving(context) as broker:
        for files in (
            {"ssl_certfile": certificates.both},
            {"ssl_certfile": certificates.certfile, "ssl_keyfile": certificates.keyfile},
        ):
            async with Opened(broker, **settings, **files) as opening:
                await opening.connection.call(ApiKey.METADATA, NO_TOPICS)
    with OpenSslServer(context) as server:
        error = await refused(server, **settings)
        assert "the broker refuses the" in str(error)
        assert "certificate" in str(error)
        assert "ssl_certfile" in str(error)


async def test_a_port_without_tls_is_named() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # As a broker that finds a frame of 369 MB.
        await reader.read(5)
        writer.close()

    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read(5)

    for answer, error, text in (
        (hang_up, BrokerUnavailableError, "Does the port use TLS"),
        (speak_http, TlsError, "does not use TLS"),
    ):
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        broker = ScriptedBroker()
        broker.port = server.sockets[0].getsockname()[1]
        with pytest.raises(error, match=text):
            async with Opened(broker, security_protocol="SSL"):
                pass
        server.close()


async def test_a_client_without_tls_at_a_port_with_it_is_told_to_change_the_protocol(
    certificates: Certificates,
) -> None:
    async with serving(certificates.of_server()) as broker:
        with pytest.raises(BrokerUnavailableError, match="Does the port need another security_protocol"):
            async with Opened(broker):
                pass


async def test_files_that_cannot_be_used_are_named(certificates: Certificates, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    key = trustme.CA().issue_cert("x")
    from cryptography.hazmat.primitives import serialization

    loaded = serialization.load_pem_private_key(key.private_key_pem.bytes(), None)
    locked.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hunter2"),
        )
    )
    certfile = tmp_path / "locked.crt"
    certfile.write_bytes(key.cert_chain_pems[0].bytes())
    files = {"ssl_certfile": str(certfile), "ssl_keyfile": str(locked)}
    async with serving(certificates.of_server()) as broker:
        assert "absent.pem does not exist" in str(await refused(broker, ssl_cafile="absent.pem"))
        assert "expected PEM text" in str(await refused(broker, ssl_cafile=certificates.garbage))
        assert "expected PEM text" in str(await refused(broker, ssl_certfile=certificates.certfile))
        weak = BrokerCertificates(tmp_path).issue_with_sha1()
        assert "insecure (CA_MD_TOO_WEAK)" in str(await refused(broker, ssl_certfile=weak))
        assert "needs ssl_password" in str(await refused(broker, **files))
        wrong = await refused(broker, **files, ssl_password="secret")
        assert "does not open with ssl_password" in str(wrong)
        assert "secret" not in f"{wrong!r} {wrong}"
        right = {**files, "ssl_password": "hunter2", "ssl_cafile": certificates.cafile}
        async with Opened(broker, security_protocol="SSL", **right):
            pass
        context = create_ssl_context(
            cafile=certificates.cafile, certfile=certfile, keyfile=locked, password="hunter2"
        )
        async with Opened(broker, security_protocol="SSL", ssl_context=context):
            pass
        with pytest.raises(OSError, match="SSL"):
            create_ssl_context(certfile=certfile, keyfile=locked)
