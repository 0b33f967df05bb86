"""TLS of a listener from its settings and files: what is accepted, and what is said of what is not."""

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from tests.certificates import Certificates
from tests.unit.broker.net.peers import Peer, serving
from tests.waiting import until
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.security import tls
from tidelog.broker.security.tls import ListenerTls
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.settings import ConfigError


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def tls_with(**settings: Any) -> ListenerTls:
    return ListenerTls(BrokerConfig(**settings), "SSL")


def complaint_about(**settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        tls_with(**settings)
    assert "-----" not in str(caught.value)
    assert "sesame" not in str(caught.value)
    return str(caught.value)


def as_text(certificates: Certificates, password: bytes = b"") -> tuple[str, str]:
    """(certificate chain, key) of a new certificate."""
    issued = certificates.issue()
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    algorithm: Any = (
        serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, algorithm)
    return "".join(each.bytes().decode() for each in issued.cert_chain_pems), pem.decode()


def test_the_certificate_and_its_key_come_from_one_file_or_as_text(certificates: Certificates) -> None:
    from_file = tls_with(ssl_keystore_location=certificates.keystore)
    chain, key = as_text(certificates)
    from_text = tls_with(ssl_keystore_certificate_chain=chain, ssl_keystore_key=key)
    in_one_line = tls_with(
        ssl_keystore_certificate_chain=chain.replace("\n", "\\n"), ssl_keystore_key=key.replace("\n", "\\n")
    )
    assert from_file.certificate.expires == from_text.certificate.expires
    assert from_text.certificate == in_one_line.certificate


def test_an_encrypted_key_needs_its_password_and_nobody_is_asked_for_it(certificates: Certificates) -> None:
    chain, key = as_text(certificates, b"sesame")
    given = {"ssl_keystore_certificate_chain": chain, "ssl_keystore_key": key}
    assert tls_with(**given, ssl_key_password="sesame")
    assert complaint_about(**given) == "the private key is encrypted: set ssl.key.password"
    assert "a private key that ssl.key.password decrypts" in complaint_about(
        **given, ssl_key_password="barley"
    )


def test_what_does_not_fit_together_is_refused_with_what_was_expected(certificates: Certificates) -> None:
    chain, _ = as_text(certificates)
    _, other_key = as_text(certificates)
    given = {"ssl_keystore_certificate_chain": chain, "ssl_keystore_key": other_key}
    assert "the private key is not that of the first certificate" in complaint_about(**given)
    assert "cannot be set together" in complaint_about(**given, ssl_keystore_location=certificates.keystore)
    assert "needs ssl.keystore.location, or both" in complaint_about(ssl_keystore_key=other_key)
    assert "as PEM, a private key and its certificate chain" in complaint_about(
        ssl_keystore_location=certificates.authority
    )
    assert "cannot read nowhere.pem (ssl.keystore.location)" in complaint_about(
        ssl_keystore_location="nowhere.pem"
    )


def test_a_certificate_that_openssl_finds_too_weak_is_refused_with_its_reason(
    certificates: Certificates,
) -> None:
    weak = certificates.issue_with_sha1()
    assert "insecure: ca md too weak" in complaint_about(ssl_keystore_location=weak)


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_clients_certificates_are_checked_against_authorities_that_are_named(
    certificates: Certificates, auth: str
) -> None:
    given = {"ssl_keystore_location": certificates.keystore, "ssl_client_auth": auth}
    assert tls_with(**given, ssl_truststore_location=certificates.authority)
    assert tls_with(**given, ssl_truststore_certificates=Path(certificates.authority).read_text())
    assert f"ssl.client.auth={auth} needs ssl.truststore.location" in complaint_about(**given)
    key_only = certificates.client("alice")
    Path(key_only).write_text("sesame")
    assert "expected certificates as PEM" in complaint_about(**given, ssl_truststore_location=key_only)


def test_a_certificate_names_a_user_or_its_connection_is_refused(certificates: Certificates) -> None:
    class Connection:
        def getpeercert(self, *, binary_form: bool) -> bytes:
            return ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERT") :])

    pem = "".join(Path(certificates.client("alice")).read_text().partition("-----END CERTIFICATE-----\n")[:2])
    given = {"ssl_keystore_location": certificates.keystore, "ssl_client_auth": "requested"}
    given["ssl_truststore_location"] = certificates.authority

    def user_by(rules: str) -> str:
        return tls_with(**given, ssl_principal_mapping_rules=rules).user_of(Connection())  # type: ignore[arg-type]

    assert user_by("RULE:.*CN=([a-z]+).*/$1/") == "alice"
    for rules in ("RULE:.*CN=([0-9]*).*/$1/", "RULE:CN=bob/bob/"):
        with pytest.raises(ValueError, match="matches the client's certificate"):
            user_by(rules)


def test_a_broker_whose_certificate_has_expired_starts_and_says_so(certificates: Certificates) -> None:
    expired = datetime.now(UTC) - timedelta(days=1)
    certificates.issue(expires=expired)
    with capture_logs() as logged:
        tls_with(ssl_keystore_location=certificates.keystore)
    (event,) = logged
    assert event["event"] == "certificate_expired"
    assert event["expires"][:10] == expired.isoformat()[:10]


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
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.005)
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
