"""TLS of a client: the context that the settings describe, and what a failed handshake means.

Owns: how files become an `SSLContext`, and the texts of TLS errors. A context is created for each connection,
so a new connection uses the files as they are then. Invariants: TLS 1.2 or newer; the broker's certificate
is always verified, unless the application gives an `ssl_context` that does not; no error has a password.
"""

import ssl
from collections.abc import Callable
from os import PathLike
from typing import Final, TypeAlias

from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import TlsError

StrPath: TypeAlias = str | PathLike[str]

_ABOUT_CERTIFICATE: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_OTHER_NAME: Final = (62, 64)
_UNKNOWN_CA: Final = (2, 18, 19, 20, 21)
"""Codes of OpenSSL's X509_V_ERR."""


def create_ssl_context(
    *,
    cafile: StrPath | None = None,
    capath: StrPath | None = None,
    cadata: str | bytes | None = None,
    certfile: StrPath | None = None,
    keyfile: StrPath | None = None,
    password: str | bytes | Callable[[], str | bytes] | None = None,
) -> ssl.SSLContext:
    """A context for the setting `ssl_context`, with aiokafka's arguments: CAs that sign brokers (default:
    those of the system), and the client's certificate with its private key. Raises OSError, also for what
    OpenSSL refuses."""
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certfile is not None:
        # For None, OpenSSL would ask on the terminal.
        context.load_cert_chain(certfile, keyfile, "" if password is None else password)
    return context


def make_context(config: ClusterConfig) -> ssl.SSLContext | None:
    """The context for a connection, None without TLS. Raises TlsError for a file that cannot be used."""
    if not config.has_tls:
        return None
    if config.ssl_context is not None:
        return config.ssl_context
    try:
        context = create_ssl_context(cafile=config.ssl_cafile)
    except (OSError, ValueError) as error:
        raise _unusable("ssl_cafile", config.ssl_cafile, error) from None
    context.check_hostname = config.ssl_check_hostname
    if config.ssl_certfile is not None:
        is_asked = False

        def password() -> str:
            nonlocal is_asked
            is_asked = True
            # Without this, OpenSSL would ask on the terminal.
            return config.ssl_password or ""

        try:
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password)
        except (OSError, ValueError) as error:
            if is_asked:
                file = config.ssl_keyfile or config.ssl_certfile
                text = "does not open with ssl_password" if config.ssl_password else "needs ssl_password"
                raise TlsError(f"the private key in {file} {text}") from None
            both = f"{config.ssl_certfile} and {config.ssl_keyfile}" if config.ssl_keyfile else ""
            raise _unusable("ssl_certfile", both or config.ssl_certfile, error) from None
    return context


def _unusable(setting: str, file: str | None, error: Exception) -> TlsError:
    if isinstance(error, FileNotFoundError):
        return TlsError(f"{setting}: the file {file} does not exist")
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
        if reason and reason.endswith(("_TOO_WEAK", "_TOO_SMALL")):
            return TlsError(f"{setting}: OpenSSL refuses the certificate in {file} as insecure ({reason})")
        return TlsError(
            f"{setting}: {file} cannot be used: expected PEM text (-----BEGIN ...), and the private key that"
            f" belongs to the certificate ({reason or 'not PEM'})"
        )
    return TlsError(f"{setting}: {file} cannot be read ({error.strerror})")


def explain(address: str, error: ssl.SSLError) -> TlsError | None:
    """The error for a permanent failure of a handshake, None if it may succeed later."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"{address}: {_of_certificate(error)}")
    reason = (error.reason or "").upper()
    if "ALERT" in reason and any(word in reason for word in _ABOUT_CERTIFICATE):
        return TlsError(
            f"{address}: the broker refuses the client's certificate ({reason}). Give ssl_certfile and"
            " ssl_keyfile with a certificate that is valid now and that the broker's ssl.truststore trusts"
        )
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        return TlsError(
            f"{address} does not use TLS ({reason}). Check the port, or use security_protocol=PLAINTEXT or"
            " SASL_PLAINTEXT"
        )
    if reason.endswith("ALERT_HANDSHAKE_FAILURE"):
        return TlsError(
            f"{address}: the broker refuses the TLS handshake ({reason}). It may need a client's certificate"
            " (ssl_certfile), or another version of TLS"
        )
    if reason.endswith("EOF_WHILE_READING"):
        return None
    return TlsError(f"{address}: the TLS handshake failed ({reason or error})")


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    code, what = error.verify_code, error.verify_message
    if code == _EXPIRED:
        return f"the broker's certificate has expired ({what}). Renew it at the broker"
    if code == _NOT_YET_VALID:
        return f"the broker's certificate is not valid yet ({what}). Check the clocks of both hosts"
    if code in _OTHER_NAME:
        return (
            f"the broker's certificate is for another host ({what}). Connect by a name that the certificate"
            " has, also in the broker's advertised.listeners, or set ssl_check_hostname=False"
        )
    if code in _UNKNOWN_CA:
        return f"no known CA has signed the broker's certificate ({what}). Name that CA's file in ssl_cafile"
    return f"the broker's certificate is not accepted ({what})"
