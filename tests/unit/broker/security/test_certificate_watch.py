"""New certificates are used without a restart, and only those that can be."""

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from structlog.testing import capture_logs

from tests.certificates import Certificates
from tests.unit.broker.net.peers import Peer, serving
from tests.waiting import until
from tidelog.broker.security import certificate_watch
from tidelog.protocol.schema import ApiKey


def api_versions(context: Any, request: Any) -> Any:
    return {"error_code": 0}


async def served(port: int, certificates: Certificates) -> tuple[Peer, bytes]:
    """A connection that was served, and the certificate that it was shown."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificates.context())
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    peer = Peer(reader, writer)
    await answered(peer)
    return peer, shown


async def answered(peer: Peer) -> None:
    assert (await peer.ask(ApiKey.API_VERSIONS, 3)).error_code == 0


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as events:
        yield events


async def test_a_new_certificate_is_shown_to_new_connections_and_old_connections_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    monkeypatch.setattr(certificate_watch, "LOOK_SECONDS", 0.005)
    certificates = Certificates(tmp_path)
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": certificates.keystore}
    async with serving({ApiKey.API_VERSIONS: api_versions}, **settings) as server:
        before, shown = await served(server.port, certificates)
        issued = certificates.issue()
        await until(lambda: logged)
        after, shown_after = await served(server.port, certificates)
        assert shown_after == ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode()) != shown
        assert [event["event"] for event in logged] == ["certificate_taken"]

        (sample,) = (
            sample
            for family in server.metrics.collect()
            for sample in family.samples
            if sample.name == "tidelog_certificate_expiry_timestamp_seconds"
        )
        expires = issued_until(issued)
        assert (sample.labels, sample.value) == ({"listener": "SSL"}, expires.timestamp())

        for number, write in enumerate((spoil, expire, remove), 2):
            write(certificates)
            await until(lambda number=number: len(logged) == number)  # type: ignore[misc]
            assert logged[-1]["event"] == "certificate_not_taken"
            assert "-----" not in str(logged[-1])
            again, shown_again = await served(server.port, certificates)
            assert shown_again == shown_after
            await again.close()
        certificates.issue()
        await until(lambda: logged[-1]["event"] == "certificate_taken")
        for peer in (before, after):
            await answered(peer)
            await peer.close()


def issued_until(issued: trustme.LeafCert) -> datetime:
    return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).not_valid_after_utc


def spoil(certificates: Certificates) -> None:
    text = Path(certificates.keystore).read_text()
    Path(certificates.keystore).write_text(text[: len(text) // 2])


def expire(certificates: Certificates) -> None:
    certificates.issue(expires=datetime.now(UTC) - timedelta(days=1))


def remove(certificates: Certificates) -> None:
    Path(certificates.keystore).unlink()
