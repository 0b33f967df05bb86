"""SASL mechanisms of a client: which bytes it sends, and when it believes the broker.

Owns: PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677; by the library scramp) and
OAUTHBEARER (RFC 7628). An exchange is used once. `first()` is what the client sends first; `respond` gets
each answer and returns what is sent next, or None at the end.

Invariants:
- an exchange of SCRAM ends only after the broker has proved that it knows the password;
- a broker cannot make the client compute for long: more than MOST_ITERATIONS are refused, and so are fewer
  than 4096, with which a stolen exchange would be cheap to search;
- no error has a password, a token or an answer of the broker in it.
"""

import asyncio
from typing import Final, Protocol

from tidelog.client.cluster_config import ClusterConfig
from tidelog.client.errors import AuthenticationError
from tidelog.client.security.token_provider import ask_for_token

__all__ = ["MOST_ITERATIONS", "Exchange", "begin_exchange"]

MOST_ITERATIONS: Final = 1_000_000
"""Kafka creates users with at most 16384. This number takes about half a second."""
_SEPARATOR: Final = "\x01"


class Exchange(Protocol):
    """One authentication."""

    def first(self) -> bytes: ...

    async def respond(self, challenge: bytes) -> bytes | None:
        """Raises AuthenticationError for an answer that the mechanism does not permit."""


async def begin_exchange(config: ClusterConfig) -> Exchange:
    """The exchange of `sasl_mechanism`. It has asked for the token if it needs one.

    Raises AuthenticationError, or BrokerUnavailableError if the token provider fails.
    """
    if config.sasl_mechanism == "OAUTHBEARER":
        provider = config.sasl_oauth_token_provider
        if provider is None:
            from tidelog.client.security.client_credentials import ClientCredentials

            provider = ClientCredentials(config)
        return _OAuthBearer(*await ask_for_token(provider))
    user, password = config.sasl_plain_username or "", config.sasl_plain_password or ""
    if config.sasl_mechanism == "PLAIN":
        return _Plain(user, password)
    return _Scram(config.sasl_mechanism, user, password)


class _Plain:
    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    async def respond(self, challenge: bytes) -> bytes | None:
        return None


class _Scram:
    def __init__(self, mechanism: str, user: str, password: str) -> None:
        # It takes a tenth of a second to import.
        from scramp import ScramClient, ScramException

        self._error = ScramException
        try:
            self._client = ScramClient([mechanism], user, password)
        except ScramException:
            # Its text may have a part of the password in it.
            raise AuthenticationError(
                "sasl_plain_username or sasl_plain_password has characters that SCRAM does not allow"
            ) from None
        self._is_proof_sent = False

    def first(self) -> bytes:
        message: str = self._client.get_client_first()
        return message.encode()

    async def respond(self, challenge: bytes) -> bytes | None:
        try:
            text = challenge.decode()
            if self._is_proof_sent:
                self._client.set_server_final(text)
                return None
            self._client.set_server_first(text)
            self._is_proof_sent = True
            if int(self._client.iterations) > MOST_ITERATIONS:
                raise AuthenticationError(
                    f"the broker asks for {self._client.iterations} iterations of SCRAM, expected 4096 to"
                    f" {MOST_ITERATIONS}"
                )
            # In a thread: it is slow on purpose.
            message: str = await asyncio.to_thread(self._client.get_client_final)
            return message.encode()
        except (self._error, ValueError, KeyError) as error:
            what = "the proof of" if self._is_proof_sent else "the challenge of"
            reason = str(error) if isinstance(error, self._error) else "it is malformed"
            raise AuthenticationError(f"{what} the broker for SCRAM is refused ({reason})") from None


class _OAuthBearer:
    def __init__(self, token: str, extensions: dict[str, str]) -> None:
        fields = {"auth": f"Bearer {token}", **extensions}
        parts = "".join(f"{name}={value}{_SEPARATOR}" for name, value in fields.items())
        self._message = f"n,,{_SEPARATOR}{parts}{_SEPARATOR}".encode()
        self._is_refused = False

    def first(self) -> bytes:
        return self._message

    async def respond(self, challenge: bytes) -> bytes | None:
        if not challenge and not self._is_refused:
            return None
        if self._is_refused:
            raise AuthenticationError("the broker refuses the token")
        # The challenge names the reason. After this, the broker answers with the error itself.
        self._is_refused = True
        return _SEPARATOR.encode()
