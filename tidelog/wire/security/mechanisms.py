"""SASL mechanisms of a client: which bytes it sends, and when it trusts the broker.

Owns: PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677; `protocol.scram` has the keys) and
OAUTHBEARER (RFC 7628).

Invariants:
- an exchange of SCRAM ends only after the broker has proved that it knows the password;
- a broker cannot make the client compute for long: more than MOST_ITERATIONS are refused, and so are fewer
  than 4096, with which a stolen exchange would be cheap to search;
- no error has a password, a token or an answer of the broker in it.
"""

import asyncio
import hmac
import re
from base64 import b64decode, b64encode
from secrets import token_urlsafe
from typing import Final, Protocol

from tidelog.protocol.scram import LEAST_ITERATIONS, ScramMechanism, client_proof, keyed_hash, salted_password
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import AuthenticationError
from tidelog.wire.token_provider import TokenFile, ask_for_token, is_file

MOST_ITERATIONS: Final = 1_000_000
"""Kafka creates users with at most 16384. This number takes about half a second."""
_SEPARATOR: Final = "\x01"
_SCRAM: Final = {each.sasl_name: each for each in ScramMechanism}
_NO_BINDING: Final = "n,,"
_NONCE_BYTES: Final = 24
_SERVER_FIRST: Final = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?),i=([1-9][0-9]{0,9})"
    r"(?:,[A-Za-z]=[^,]*)*"
)


class Exchange(Protocol):
    """Carries out one authentication, on the client's side."""

    def first(self) -> bytes: ...

    async def respond(self, challenge: bytes) -> bytes | None:
        """Raises AuthenticationError for an answer that the mechanism does not permit."""


async def begin_exchange(config: ClusterConfig) -> Exchange:
    """The exchange of `sasl_mechanism`. It has asked for the token if it needs one.

    Raises AuthenticationError, or BrokerUnavailableError if the token provider fails.
    """
    if config.sasl_mechanism == "OAUTHBEARER":
        provider = config.sasl_oauth_token_provider
        url = config.sasl_oauthbearer_token_endpoint_url or ""
        if provider is None and is_file(url):
            provider = TokenFile(url)
        elif provider is None:
            from tidelog.wire.security.client_credentials import ClientCredentials

            provider = ClientCredentials(config)
        return _OAuthBearer(*await ask_for_token(provider))
    user, password = config.sasl_plain_username or "", config.sasl_plain_password or ""
    if config.sasl_mechanism == "PLAIN":
        return _Plain(user, password)
    return _Scram(_SCRAM[config.sasl_mechanism], user, password)


class _Plain:
    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    async def respond(self, challenge: bytes) -> bytes | None:
        return None


class _Scram:
    def __init__(self, mechanism: ScramMechanism, user: str, password: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = token_urlsafe(_NONCE_BYTES)
        self._first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        # The signature that proves that the broker knows the password.
        self._expected: bytes | None = None

    def first(self) -> bytes:
        return f"{_NO_BINDING}{self._first}".encode()

    async def respond(self, challenge: bytes) -> bytes | None:
        text = challenge.decode(errors="replace")
        if self._expected is not None:
            if not hmac.compare_digest(text.partition(",")[0].encode(), b"v=" + b64encode(self._expected)):
                raise AuthenticationError(
                    "the broker did not prove that it knows the password, so it is not trusted"
                )
            return None
        found = _SERVER_FIRST.fullmatch(text)
        if found is None:
            raise AuthenticationError("the broker's challenge for SCRAM is malformed")
        nonce, salt, count = found.groups()
        iterations = int(count)
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise AuthenticationError(
                f"expected {LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations of SCRAM, got {iterations}"
            )
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the broker's challenge for SCRAM is for another client")
        # In a thread: it is slow on purpose.
        salted = await asyncio.to_thread(
            salted_password, self._mechanism, self._password, b64decode(salt), iterations
        )
        final = f"c={b64encode(_NO_BINDING.encode()).decode()},r={nonce}"
        message = f"{self._first},{text},{final}".encode()
        self._expected = keyed_hash(
            self._mechanism, keyed_hash(self._mechanism, salted, b"Server Key"), message
        )
        proof = client_proof(self._mechanism, salted, message)
        return f"{final},p={b64encode(proof).decode()}".encode()


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
