"""TLS of one listener: the settings of OpenSSL, from the settings `ssl.*` and the files that they name.

Owns the context that new connections use, and when new files replace it. Invariants: a context is replaced
as a whole, by one that was made from files which fit together; if new files do not, the old context stays,
and one event says why. Files are read again only when they changed and then stayed the same from one look to
the next, so that they are not read half-written. Existing connections keep the context that they began with.
No message contains a key, its password or a line of a PEM file.

TLSv1.3 sessions are not resumed, so every connection shows its certificate and has it checked.

Source: KIP-651 (PEM), KIP-684 (client certificates beside SASL), Kafka's DefaultSslEngineFactory.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tidelog.broker.configuration.security_settings import NO_CLIENT_CERTIFICATE, TLS_1_2
from tidelog.broker.security.certificates import Certificate, read
from tidelog.broker.security.cipher_suites import openssl_names, versions
from tidelog.broker.tasks import kept
from tidelog.protocol.settings import ConfigError

if TYPE_CHECKING:
    from tidelog.broker.configuration.broker_config import BrokerConfig
    from tidelog.broker.security.principal_mapping import PrincipalMapping

logger = structlog.get_logger(__name__)

_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_CERTIFICATE_END: Final = "-----END CERTIFICATE-----"
_VERIFY = {"requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_MOST_FILE_BYTES: Final = 1 << 20


class _Pem(NamedTuple):
    """The certificates and keys of a listener as PEM text."""

    chain_and_key: str
    trusted: str


class ListenerTls:
    """TLS of the listener called `name`. Raises ConfigError for settings and files that cannot be used.

    `names_users`: whether the certificates of clients name their users; beside SASL they do not.
    """

    def __init__(self, config: BrokerConfig, name: str, *, names_users: bool = True) -> None:
        self._config = config
        self.name = name
        self._refused: _Pem | None = None
        self._mapping: PrincipalMapping | None = None
        if names_users and config.ssl_client_auth != NO_CLIENT_CERTIFICATE:
            # Imports RE2, which no other listener needs.
            from tidelog.broker.security.principal_mapping import PrincipalMapping

            self._mapping = PrincipalMapping(config.ssl_principal_mapping_rules)
        self._pem = _read(config)
        self.context = _context(config, self._pem)
        self.certificate = _own_certificate(self._pem)
        if self.certificate.expires < datetime.now(UTC):
            logger.error("certificate_expired", **self._described(self.certificate))

    def user_of(self, connection: ssl.SSLObject) -> str:
        """The name of the user that this connection's certificate names; empty if it names none.

        Raises ValueError if no rule of `ssl.principal.mapping.rules` names the user, or one gives an empty
        name: that would be the name ANONYMOUS.
        """
        certificate = connection.getpeercert(binary_form=True)
        if certificate is None or self._mapping is None:
            return ""
        subject = read(certificate).subject
        name = self._mapping.name(subject)
        if not name:
            raise ValueError(
                f"no rule of ssl.principal.mapping.rules matches the client's certificate, {subject}"
            )
        return name

    def reload(self) -> None:
        """Use the files as they are now, if they changed and can be used. It blocks."""
        try:
            pem = _read(self._config)
            if pem in (self._pem, self._refused):
                return
            self._refused = pem
            certificate = _own_certificate(pem)
            context = _context(self._config, pem)
            if certificate.expires < datetime.now(UTC):
                raise ConfigError(
                    f"the certificate of {certificate.subject} expired at {certificate.expires}"
                )
        except ConfigError as error:
            logger.error(
                "certificate_not_taken",
                listener=self.name,
                reason=str(error),
                advice="the earlier certificate is still used: write the files again",
            )
            return
        self._pem, self.context, self.certificate = pem, context, certificate
        self._refused = None
        logger.info("certificate_taken", **self._described(certificate))

    def _described(self, certificate: Certificate) -> dict[str, str]:
        return {
            "listener": self.name,
            "subject": certificate.subject,
            "expires": certificate.expires.isoformat(),
        }

    def fingerprint(self) -> list[tuple[int, ...]]:
        """Changes when a file changes. It blocks."""
        found: list[tuple[int, ...]] = []
        for location in (self._config.ssl_keystore_location, self._config.ssl_truststore_location):
            if location:
                try:
                    status = os.stat(location)
                    found.append((status.st_ino, status.st_size, status.st_mtime_ns))
                except OSError:
                    found.append(())
        return found


def _read(config: BrokerConfig) -> _Pem:
    location = config.ssl_keystore_location
    given = config.ssl_keystore_certificate_chain, config.ssl_keystore_key
    if location and any(given):
        raise ConfigError(
            "ssl.keystore.location cannot be set together with ssl.keystore.certificate.chain and "
            "ssl.keystore.key: use either the file or the text"
        )
    if not location and not all(given):
        raise ConfigError(
            "a listener with TLS needs ssl.keystore.location, or both ssl.keystore.certificate.chain and "
            "ssl.keystore.key"
        )
    chain_and_key = _text(location, "ssl.keystore.location") if location else _lines("\n".join(given))
    trusted = ""
    if config.ssl_client_auth != NO_CLIENT_CERTIFICATE:
        trusted = config.ssl_truststore_certificates
        if not trusted and not config.ssl_truststore_location:
            raise ConfigError(
                f"ssl.client.auth={config.ssl_client_auth} needs ssl.truststore.location or "
                "ssl.truststore.certificates: the authorities that clients' certificates are checked against"
            )
        if config.ssl_truststore_location:
            trusted = _text(config.ssl_truststore_location, "ssl.truststore.location")
    return _Pem(chain_and_key, _lines(trusted))


def _text(location: str, setting: str) -> str:
    try:
        with Path(location).open("rb") as file:
            data = file.read(_MOST_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {location} ({setting}): {error.strerror}") from None
    return data.decode("latin-1")


def _lines(pem: str) -> str:
    """Text from the environment may have `\\n` in place of ends of lines."""
    return pem.replace("\\n", "\n")


def _context(config: BrokerConfig, pem: _Pem) -> ssl.SSLContext:
    """Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served = versions(config.ssl_enabled_protocols, config.ssl_cipher_suites)
    context.minimum_version = getattr(ssl.TLSVersion, served[0].replace(".", "_"))
    context.maximum_version = getattr(ssl.TLSVersion, served[-1].replace(".", "_"))
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    if TLS_1_2 in served and config.ssl_cipher_suites:
        _set_ciphers(context, openssl_names(config.ssl_cipher_suites))
    with _as_file(pem.chain_and_key) as path:
        _load_own(context, config, path)
    if config.ssl_client_auth != NO_CLIENT_CERTIFICATE:
        context.verify_mode = _VERIFY[config.ssl_client_auth]
        # As in Java, a trusted certificate needs no authority above it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=pem.trusted)
        except (ssl.SSLError, ValueError):
            where = config.ssl_truststore_location or "ssl.truststore.certificates"
            raise ConfigError(f"cannot use {where}: expected certificates as PEM") from None
    return context


def _set_ciphers(context: ssl.SSLContext, names: list[str]) -> None:
    for name in names:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites names {name} (OpenSSL's name), which this system lacks"
            ) from None
    context.set_ciphers(":".join(names))


def _load_own(context: ssl.SSLContext, config: BrokerConfig, path: str) -> None:
    def password() -> str:
        # Without it OpenSSL would ask on the terminal.
        if not config.ssl_key_password:
            raise ConfigError("the private key is encrypted: set ssl.key.password")
        return config.ssl_key_password

    try:
        context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        where = config.ssl_keystore_location or "ssl.keystore.certificate.chain and ssl.keystore.key"
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"cannot use {where}: the private key is not that of the first certificate"
            ) from None
        if error.reason and error.reason.endswith(("_TOO_WEAK", "_TOO_SMALL")):
            reason = error.reason.replace("_", " ").lower()  # As in OpenSSL's own messages: ca md too weak.
            raise ConfigError(
                f"cannot use {where}: OpenSSL refuses its certificate as insecure: {reason}"
            ) from None
        unless = " that ssl.key.password decrypts" if config.ssl_key_password else ""
        raise ConfigError(
            f"cannot use {where}: expected, as PEM, a private key{unless} and its certificate chain, the own "
            "certificate first"
        ) from None


def _own_certificate(pem: _Pem) -> Certificate:
    """Raises ConfigError."""
    _, begin, rest = pem.chain_and_key.partition(_CERTIFICATE)
    body, end, _ = rest.partition(_CERTIFICATE_END)
    try:
        return read(ssl.PEM_cert_to_DER_cert(f"{begin}{body}{end}"))
    except ValueError:
        raise ConfigError(
            "the keystore has no certificate: expected a private key and its certificate chain as PEM"
        ) from None


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The path of a file in memory, because OpenSSL reads keys from files only."""
    handle = os.memfd_create("keystore", os.MFD_CLOEXEC)
    try:
        os.write(handle, text.encode("latin-1"))
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


LOOK_SECONDS = 1.0


class CertificateWatch:
    """Watches the files of these listeners until `close`. Event loop only."""

    def __init__(self, watched: Sequence[ListenerTls]) -> None:
        self._watched = watched
        self._task = asyncio.get_running_loop().create_task(kept(self._run)) if watched else None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        used = [one.fingerprint() for one in self._watched]
        seen = used.copy()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for number, one in enumerate(self._watched):
                found = await asyncio.to_thread(one.fingerprint)
                if found != used[number] and found == seen[number]:
                    used[number] = found
                    await asyncio.to_thread(one.reload)
                seen[number] = found
