"""Authentication of connections by SASL: which mechanisms are open, and what became of each attempt.

Owns the step from a client's token to its identity for all mechanisms, how long that identity holds, and the
counts and events of every attempt. The mechanisms themselves are pure (`sasl`).

Invariants: a failed attempt is counted, logged without anything secret, and answered after
`connection.failed.authentication.delay.ms`. A user who does not exist is refused like one with a wrong
password (`unknown_users`). Nobody learns whether a password is right while `guesses` refuses its address.

On the event loop. Source: Kafka's SaslServerAuthenticator; KIP-306, KIP-368.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.security import sasl
from tidelog.broker.security.broker_user import BROKER_USER
from tidelog.broker.security.guesses import Guesses
from tidelog.broker.security.users import Users
from tidelog.protocol.errors import again
from tidelog.protocol.scram import ScramMechanism

if TYPE_CHECKING:
    from tidelog.broker.security.signing_keys import SigningKeys

logger = structlog.get_logger(__name__)

_NONCE_BYTES: Final = 24
_SCRAM: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
_UNKNOWN_MECHANISM: Final = "unknown"


@dataclass(slots=True)
class SaslSession:
    """The authentication of one connection: the one that runs, and what the last one that ended said."""

    mechanism: str
    exchange: sasl.Exchange
    is_again: bool = False
    """Whether the client was authenticated before and authenticates again (KIP-368)."""
    began_ms: int = 0
    problem: sasl.Refused | None = None
    """Why the first token will be refused."""


class Peer(NamedTuple):
    """Who tries: for counts and events."""

    listener: str
    host: str
    mechanism: str


class TooManyGuesses(sasl.Refused):
    """An address failed so often that it has to wait."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(
            f"too many failed attempts from this address: try again in {seconds} s",
            "too many failed attempts",
        )


class Outcome(NamedTuple):
    """The answer to a token. `user` is None until the client is authenticated.

    `lifetime_ms`: for how long; 0 means without an end.
    """

    token: bytes
    user: str | None = None
    lifetime_ms: int = 0
    is_broker: bool = False
    """Whether the client is another broker of the cluster, by the cluster's own secret."""


@dataclass(eq=False, repr=False)
class Authentication:
    """Authenticates the clients of one broker, with the mechanisms that its settings open."""

    _settings: BrokerSettings
    _users: Users
    _metrics: Metrics
    _events: PeerEvents
    _clock_ms: Callable[[], int]
    _now_seconds: Callable[[], float] = time.monotonic
    _signing_keys: dict[str, SigningKeys] = field(default_factory=dict, init=False)
    _guesses: Guesses = field(default_factory=Guesses, init=False)

    async def start(self, *, has_peers: bool = False) -> None:
        """Get ready for clients, and with `has_peers` for other brokers. Raises StoreError, KeysError,
        OSError."""
        await self._users.make_secret()
        config = self._settings.config
        if has_peers and config.inter_broker_listener.security_protocol.has_sasl:
            await self._users.admit_brokers(self.mechanisms(config.inter_broker_listener.name))
        for listener in (one.name for one in config.listener_configs if one.security_protocol.has_sasl):
            mechanisms = self.mechanisms(listener)
            if sasl.OAUTHBEARER in mechanisms:
                await self._read_keys(listener)
            elif not self._users.names():
                command = "cluster add-user USER" if has_peers else "storage add-user DIR USER"
                advice = f"no user can authenticate: stop the broker and run `tidelog {command}`"
                logger.warning("listener_without_users", listener=listener, advice=advice)

    async def _read_keys(self, listener: str) -> None:
        """Listeners with the same settings share what is read. Raises KeysError."""
        from tidelog.broker.security.signing_keys import KeySource, SigningKeys

        source = KeySource.of(self._config(listener, sasl.OAUTHBEARER))
        keys = next((each for each in self._signing_keys.values() if each.source == source), None)
        if keys is None:
            keys = SigningKeys(source)
            await keys.start()
        self._signing_keys[listener] = keys

    async def close(self) -> None:
        for keys in set(self._signing_keys.values()):
            await keys.close()

    def _config(self, listener: str, mechanism: str = "") -> BrokerConfig:
        return self._settings.config.of_listener(listener, mechanism)

    def mechanisms(self, listener: str) -> tuple[str, ...]:
        """The mechanisms that a listener offers, by their names in SaslHandshake."""
        return self._config(listener).sasl_enabled_mechanisms

    def begin(self, listener: str, mechanism: str) -> sasl.Exchange:
        """A new authentication by a mechanism that the listener offers."""
        if mechanism == sasl.PLAIN:
            return sasl.PlainExchange()
        if mechanism == sasl.OAUTHBEARER:
            return sasl.OAuthBearerExchange(partial(self._verified, listener))
        lookup = partial(self._known_or_not, listener, _SCRAM[mechanism])
        return sasl.ScramExchange(_SCRAM[mechanism], lookup, os.urandom(_NONCE_BYTES).hex())

    def _known_or_not(self, listener: str, mechanism: ScramMechanism, user: str) -> sasl.KnownOrNot:
        is_broker = user == BROKER_USER and listener == self._settings.config.inter_broker_listener.name
        of_brokers = self._users.of_brokers(mechanism) if is_broker else None
        return of_brokers or self._users.known_or_not(user, mechanism)

    @property
    def takes_tokens(self) -> bool:
        """Whether a listener offers OAUTHBEARER."""
        return bool(self._signing_keys)

    def verified(self, token: str) -> sasl.TokenClaims:
        """The user of a token that a listener with OAUTHBEARER accepts. Raises Refused."""
        refused = sasl.Refused(sasl.invalid_credentials(sasl.OAUTHBEARER), "no listener accepts tokens")
        for listener in self._signing_keys:
            try:
                return self._verified(listener, token)
            except sasl.Refused as error:
                refused = again(error)
        raise refused

    def _verified(self, listener: str, token: str) -> sasl.TokenClaims:
        """The user of a token. Raises Refused."""
        from tidelog.broker.security.tokens import TokenRules, UnknownKey, verified

        held = self._signing_keys.get(listener)
        if held is None or held.keys is None:
            raise sasl.Refused(
                sasl.invalid_credentials(sasl.OAUTHBEARER), "the keys of tokens have not been read yet"
            )
        try:
            rules = TokenRules.of(self._config(listener, sasl.OAUTHBEARER))
            return verified(token, held.keys, rules, self._clock_ms())
        except UnknownKey:
            held.ask_again()
            raise

    async def step(self, session: SaslSession, token: bytes, listener: str, host: str) -> Outcome:
        """The answer to the next token of a client of `listener` at `host`. Raises Refused."""
        if session.problem is not None:
            raise again(session.problem)
        exchange = session.exchange
        # The password of brokers cannot be guessed, and strangers behind their address must not cut them off.
        claimed = exchange.claimed if isinstance(exchange, sasl.ScramExchange) else ""
        if claimed and claimed != BROKER_USER:
            self._check_guesses(host, claimed)
        try:
            result = exchange.step(token)
        except sasl.Refused as refused:
            if refused.user:
                self._guesses.failed(host, refused.user, self._now_seconds())
            raise
        if isinstance(result, sasl.PasswordClaimed):
            if not await self.verify_password(*result, host):
                is_known = self._users.get(result.user) is not None
                raise sasl.Refused(sasl.WRONG_PASSWORD, "wrong password" if is_known else "unknown user")
            result = sasl.Accepted(b"", result.user)
        elif claimed and isinstance(result, sasl.Accepted):
            self._guesses.succeeded(host, claimed)
        if isinstance(result, sasl.Challenge):
            return Outcome(result.token)
        if result.has_long_nonce:
            self._metrics.long_nonce_accepted()
        lifetime_ms = self._lifetime_ms(listener, session.mechanism, result.expires_at_ms)
        # No other user has its name, and only `_known_or_not` admits it.
        is_broker = result.user == BROKER_USER and isinstance(session.exchange, sasl.ScramExchange)
        return Outcome(result.token, result.user, lifetime_ms, is_broker)

    async def verify_password(self, user: str, password: str, host: str) -> bool:
        """Whether this is the user's password. Raises TooManyGuesses, also for the right one."""
        self._check_guesses(host, user)
        fits = await self._users.verify_password(user, password)
        # Others may have failed meanwhile: what is asked at once counts as one after the other.
        self._check_guesses(host, user)
        if fits:
            self._guesses.succeeded(host, user)
        else:
            self._guesses.failed(host, user, self._now_seconds())
        return fits

    def _check_guesses(self, host: str, user: str) -> None:
        seconds = self._guesses.wait_seconds(host, user, self._now_seconds())
        if seconds:
            advice = "find out who guesses passwords there, or which client has an old one"
            self._events.warning("sign_in_slowed_down", host, peer=host, user=user[:100], advice=advice)
            raise TooManyGuesses(math.ceil(seconds))

    def _lifetime_ms(self, listener: str, mechanism: str, expires_at_ms: int | None) -> int:
        most_ms = self._config(listener, mechanism).connections_max_reauth_ms
        limits = [most_ms] if most_ms else []
        if expires_at_ms is not None:
            limits.append(max(expires_at_ms - self._clock_ms(), 1))
        return min(limits, default=0)

    def succeeded(self, peer: Peer, *, is_again: bool) -> None:
        """Count an authentication that succeeded."""
        self._metrics.authenticated(peer.listener, peer.mechanism, is_again=is_again)

    async def failed(
        self, peer: Peer, refused: sasl.Refused, *, began_seconds: float, is_again: bool = False
    ) -> None:
        """Count and log an authentication that failed. Returns when the answer is due.

        That is the delay after `began_seconds`, the loop's time when the last token came. So the time says
        nothing about the password.
        """
        mechanism = peer.mechanism if peer.mechanism in self.mechanisms(peer.listener) else _UNKNOWN_MECHANISM
        self._metrics.authentication_failed(peer.listener, mechanism, is_again=is_again)
        self._events.warning(
            "authentication_failed",
            peer.host,
            peer=peer.host,
            listener=peer.listener,
            mechanism=mechanism,
            reason=refused.reason,
        )
        due_seconds = began_seconds + self._settings.config.connection_failed_authentication_delay_ms / 1000
        await asyncio.sleep(max(due_seconds - asyncio.get_running_loop().time(), 0))
