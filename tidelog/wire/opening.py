"""How a connection begins: TCP, TLS, the versions of both sides, and the authentication.

Owns: these steps, and what is said of a connection that cannot be opened or is lost. Invariant: a connection
is given out only when it takes requests.
Source: KIP-511 for ApiVersions.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey, decode_response
from tidelog.protocol.types import Buffer
from tidelog.version import VERSION
from tidelog.wire import errors
from tidelog.wire.asked_apis import AskedApis
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.connection import Connection

if TYPE_CHECKING:
    from tidelog.wire.security.authentication import Authentication

_SOFTWARE: Final = {"client_software_name": "tidelog", "client_software_version": VERSION}
# Answers to ApiVersions, of which an older broker refuses the first.
_MOST_OF_NEGOTIATION: Final = 2
_BROKEN_OFF: Final = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, errors.ConnectionLostError)


async def open_connection(
    host: str,
    port: int,
    config: ClusterConfig,
    asked: AskedApis,
    *,
    on_close: Callable[[Connection, errors.ClientError], None],
) -> Connection:
    """Connect, agree on versions of the `asked` APIs and authenticate. `on_close` is called once when the
    connection ends.

    Raises BrokerUnavailableError if nothing answers at the address, or not as a broker, and
    AuthenticationError (TlsError) if one of the two sides does not accept the other.
    """
    opening = _Opening(f"{host}:{port}", config, asked, on_close)
    connection = opening.connection
    try:
        async with asyncio.timeout(config.connect_timeout_ms / 1000):
            await opening.begin(host, port)
    except (OSError, errors.ConnectionLostError) as error:
        reason = _reason(error) or (
            f"no answer within {config.connect_timeout_ms} ms"
            if isinstance(error, TimeoutError)
            else "the other side closes the connection"
        )
        if isinstance(error, _BROKEN_OFF) and not opening.is_negotiated:
            tls_advice = "Does the port use TLS, and does the broker need a certificate (ssl_certfile)?"
            plain_advice = "Does the port need another security_protocol?"
            reason = f"{reason}. {tls_advice if config.has_tls else plain_advice}"
        connection.close(errors.BrokerUnavailableError(f"{connection.address} does not answer ({reason})"))
        unavailable = errors.BrokerUnavailableError(f"{connection.address} cannot be reached ({reason})")
        unavailable.is_refused = not isinstance(error, TimeoutError)
        if config.has_tls and unavailable.is_refused and isinstance(error, _BROKEN_OFF):
            unavailable.tls_error = errors.TlsError(unavailable.message)
        raise unavailable from error
    except BaseException:
        connection.close(errors.ConnectionLostError(f"{connection.address}: given up"))
        raise
    return connection


class _Opening:
    """Opens one connection, and ends its authentication with it."""

    def __init__(
        self,
        address: str,
        config: ClusterConfig,
        asked: AskedApis,
        on_close: Callable[[Connection, errors.ClientError], None],
    ) -> None:
        self.connection = Connection(address, config, self._closed, self._explain)
        self.is_negotiated = False
        self._config = config
        self._asked = asked
        self._on_close = on_close
        self._authentication: Authentication | None = None

    async def begin(self, host: str, port: int) -> None:
        config, connection = self._config, self.connection
        context = None
        if config.has_tls:
            from tidelog.wire.security import tls

            context = tls.make_context(config)
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: connection, host, port, ssl=context)
        except ssl.SSLError as error:
            if (explained := tls.explain(connection.address, error)) is not None:
                raise explained from None
            raise
        except (ValueError, OverflowError) as error:
            raise OSError(f"the address cannot be used: {error}") from error
        await self._negotiate()
        if config.has_sasl:
            from tidelog.wire.security.authentication import Authentication

            self._authentication = Authentication(config, connection)
            await self._authentication.begin()

    async def _negotiate(self) -> None:
        """Send ApiVersions in our highest version. An older broker answers an error in version 0."""
        connection = self.connection
        version = self._asked[ApiKey.API_VERSIONS].last
        while True:
            answer = await connection.call(
                ApiKey.API_VERSIONS, _SOFTWARE, version=version, decode=_decode_versions
            )
            if answer.error_code == ErrorCode.NONE:
                break
            theirs = [each.max_version for each in answer.api_keys if each.api_key == ApiKey.API_VERSIONS]
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                raise errors.UnsupportedVersionError(
                    f"{connection.address} refuses ApiVersions ({answer.error_code})"
                )
            version = max(0, min(version - 1, theirs[0])) if theirs else 0
        for offered in answer.api_keys:
            ours = self._asked.get(offered.api_key)
            if ours is None:
                continue
            common = min(ours.last, offered.max_version)
            if common >= max(ours.first, offered.min_version):
                connection.versions[offered.api_key] = common
        connection.features = {each.name: each.max_version_level for each in answer.finalized_features}
        self.is_negotiated = True

    def _explain(self, error: Exception | None) -> errors.ClientError:
        """Why the connection is lost."""
        connection = self.connection
        if isinstance(error, ssl.SSLError):
            # In TLS 1.3 the client learns only now that the broker refuses its certificate.
            from tidelog.wire.security import tls

            if (explained := tls.explain(connection.address, error)) is not None:
                return explained
        text = f"{connection.address}: connection lost ({error or 'closed by the broker'})"
        is_early = self.is_negotiated and connection.answered <= _MOST_OF_NEGOTIATION
        if is_early and self._authentication is None:
            text += ". The listener may need a user: check security_protocol"
        return errors.ConnectionLostError(text)

    def _closed(self, connection: Connection, error: errors.ClientError) -> None:
        if self._authentication is not None:
            self._authentication.close()
        self._on_close(connection, error)


def _decode_versions(api_key: ApiKey, version: int, body: Buffer) -> Any:
    """A broker that does not know the version answers in version 0."""
    is_refused = int.from_bytes(body[:2], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
    return decode_response(api_key, 0 if is_refused else version, body)


def _reason(error: OSError | errors.ConnectionLostError) -> str:
    """Why connecting failed, as the system names it: asyncio's own text leaves out the cause."""
    if isinstance(error, errors.ConnectionLostError):
        return error.message
    if isinstance(error, ssl.SSLError) or error.errno is None:
        return str(error)
    return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
