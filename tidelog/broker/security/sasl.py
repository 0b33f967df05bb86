"""The server's side of the SASL mechanisms: a client's tokens in, the answers to them out.

Owns PLAIN, SCRAM and OAUTHBEARER as state machines, one `Exchange` per authentication. An exchange that
raised `Refused`, or that accepted its client, gets no further token.

Invariants: pure. What the client gets does not depend on whether the user exists: the same rounds, the same
words. `Refused.reason` is for the log only, and contains neither a password nor a token.

Source: RFC 4616, 5802, 7628, 7677; Kafka's PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer; KIP-84,
KIP-152, KIP-255.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from tidelog.protocol.errors import again
from tidelog.protocol.scram import ScramCredential, ScramMechanism, is_proof, keyed_hash

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
_ZERO: Final = "\0"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authorize>[^,\0]+))?,)"
    rf"(?P<bare>n=(?P<user>[^,\0]+),r=(?P<nonce>{_NONCE})(?P<extensions>(?:,[A-Za-z]+=[^,\0]*)*))"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE})(?:,[A-Za-z]+=[^,\0]*)*),p=(?P<proof>{_BASE64})"
)
_ESCAPE: Final = re.compile("=(2C|3D)?")
_BEARER: Final = re.compile(
    r"n,(?:a=(?P<authorize>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)+)\x01"
)
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
_OTHER_IDENTITY: Final = "Client requested an authorization id that is different from username"


class Refused(Exception):
    """The client is not who it says, or its token is not one of the mechanism.

    `message` is for the client, `reason` for the log. `user` is whose password was wrong.
    """

    def __init__(self, message: str, reason: str = "", user: str = "") -> None:
        self.message = message
        self.reason = reason or message
        self.user = user
        super().__init__(self.reason)


class Challenge(NamedTuple):
    """The answer to a token after which the client has to send another one."""

    token: bytes


class Accepted(NamedTuple):
    """The client is `user`, until `expires_at_ms` if its credential ends then."""

    token: bytes
    user: str
    expires_at_ms: int | None = None
    has_long_nonce: bool = False
    """In SCRAM: the client wrote more before the nonce, as librdkafka before 2.6.1 does."""


class PasswordClaimed(NamedTuple):
    """The client is `user` if this is the user's password. Checking it takes too long for a state machine."""

    user: str
    password: str


class Exchange(Protocol):
    """Carries out one authentication by one mechanism, on the server's side."""

    def step(self, token: bytes) -> Challenge | Accepted | PasswordClaimed:
        """The answer to the client's next token. Raises Refused."""


class PlainExchange:
    """PLAIN: one token, with user and password."""

    def step(self, token: bytes) -> PasswordClaimed:
        parts = _text(token, PLAIN).split(_ZERO)
        if len(parts) != 3:
            reason = f"expected 3 texts with zero bytes between them, got {len(parts)}"
            raise Refused(f"Invalid SASL/PLAIN response: {reason}")
        authorize, user, password = parts
        if not user:
            raise Refused("Authentication failed: username not specified")
        if not password:
            raise Refused("Authentication failed: password not specified")
        if authorize not in ("", user):
            raise Refused(f"Authentication failed: {_OTHER_IDENTITY}")
        return PasswordClaimed(user, password)


WRONG_PASSWORD: Final = "Authentication failed: Invalid username or password"
"""The message to a client of PLAIN for an unknown user and for a wrong password."""


class KnownOrNot(NamedTuple):
    """A user's credential; where there is no such user, one that no password fits."""

    credential: ScramCredential
    is_known: bool


class ScramExchange:
    """SCRAM: the client's first message, the server's challenge, the client's proof."""

    def __init__(
        self, mechanism: ScramMechanism, lookup: Callable[[str], KnownOrNot], server_nonce: str
    ) -> None:
        """`lookup`: user -> credential. `server_nonce` is random and of printable ASCII without commas."""
        self._mechanism = mechanism
        self._lookup = lookup
        self._server_nonce = server_nonce
        self._first: _FirstRound | None = None

    @property
    def claimed(self) -> str:
        """The user of whom the client has to prove the password next; empty before that is known."""
        return "" if self._first is None else self._first.user

    def step(self, token: bytes) -> Challenge | Accepted:
        text = _text(token, self._mechanism.sasl_name)
        return self._begin(text) if self._first is None else self._end(text, self._first)

    def _begin(self, text: str) -> Challenge:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise self._refused("the first message is not one of SCRAM without channel binding")
        user = _unescaped(match["user"])
        if user is None:
            raise self._refused("the name has an = that is neither =2C nor =3D")
        if match["authorize"] is not None and _unescaped(match["authorize"]) != user:
            raise Refused(f"Authentication failed: {_OTHER_IDENTITY}")
        if "tokenauth=true" in match["extensions"].lower().split(","):
            raise self._refused("the client has a delegation token, which this broker does not support")
        credential, is_known = self._lookup(user)
        nonce = match["nonce"] + self._server_nonce
        challenge = f"r={nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._first = _FirstRound(user, credential, is_known, match["gs2"], nonce, match["bare"], challenge)
        return Challenge(challenge.encode())

    def _end(self, text: str, first: _FirstRound) -> Accepted:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise self._refused("the final message is not one of SCRAM")
        # Kafka 3.9 looks at the end only: librdkafka before 2.6.1 writes its own nonce twice. The rest of the
        # check is as strict: the end has the server's nonce, and the proof covers all of it.
        if (
            not match["nonce"].endswith(first.nonce)
            or match["binding"] != b64encode(first.gs2.encode()).decode()
        ):
            raise self._refused("the final message has another nonce or channel binding than the first one")
        auth_message = f"{first.bare},{first.challenge},{match['bare']}".encode()
        try:
            proof = b64decode(match["proof"], validate=True)
        except ValueError:
            raise self._refused("the proof is not base64") from None
        if not is_proof(self._mechanism, first.credential, proof, auth_message) or not first.is_known:
            raise self._refused("wrong password" if first.is_known else "unknown user", first.user)
        signature = keyed_hash(self._mechanism, first.credential.server_key, auth_message)
        has_long_nonce = match["nonce"] != first.nonce
        return Accepted(b"v=" + b64encode(signature), first.user, has_long_nonce=has_long_nonce)

    def _refused(self, reason: str, user: str = "") -> Refused:
        return Refused(invalid_credentials(self._mechanism.sasl_name), reason, user)


class _FirstRound(NamedTuple):
    user: str
    credential: ScramCredential
    is_known: bool
    gs2: str
    nonce: str
    bare: str
    challenge: str


class TokenClaims(NamedTuple):
    """The contents of a verified token."""

    user: str
    expires_at_ms: int


class OAuthBearerExchange:
    """OAUTHBEARER: one message with a signed token. A client whose token is refused asks for the error."""

    def __init__(self, verify: Callable[[str], TokenClaims]) -> None:
        """`verify` raises Refused."""
        self._verify = verify
        self._refusal: Refused | None = None

    def step(self, token: bytes) -> Challenge | Accepted:
        if self._refusal is not None:
            raise again(self._refusal)
        match = _BEARER.fullmatch(_text(token, OAUTHBEARER))
        pairs = [] if match is None else [each.partition("=") for each in match["pairs"].split("\x01")]
        kind, _, held = {name: value for name, _, value in pairs}.get("auth", "").partition(" ")
        if match is None or kind.lower() != "bearer" or not held.strip():
            raise Refused(invalid_credentials(OAUTHBEARER), "the message is not one of OAUTHBEARER")
        try:
            claims = self._verify(held.strip())
        except Refused as error:
            self._refusal = again(error)
            return Challenge(_INVALID_TOKEN)
        if match["authorize"] not in (None, "", claims.user):
            raise Refused(f"Authentication failed: {_OTHER_IDENTITY}")
        return Accepted(b"", claims.user, claims.expires_at_ms)


def invalid_credentials(mechanism: str) -> str:
    """The message to a client for wrong credentials, similar to Kafka's."""
    return f"Authentication failed due to invalid credentials with SASL mechanism {mechanism}"


def is_encodable(name: str) -> bool:
    """Whether a name is Unicode: one with half of a pair of surrogates fits into no answer, metric or log."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(token: bytes, mechanism: str) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise Refused(invalid_credentials(mechanism), "the message is not UTF-8") from None


def _unescaped(name: str) -> str | None:
    """A name of SCRAM's messages; None for one that is escaped wrongly."""
    if any(match[1] is None for match in _ESCAPE.finditer(name)):
        return None
    return name.replace("=2C", ",").replace("=3D", "=")
