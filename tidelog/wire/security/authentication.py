"""The authentication of one connection by SASL, and again before its session ends (KIP-43, KIP-152, KIP-368).

Owns: SaslHandshake, the exchange in SaslAuthenticate, and the timer of the next authentication.

Invariants of a new authentication on a connection in use:
- No other request is sent between SaslHandshake and the last answer, because Kafka closes a connection that
  sends one. The connection holds such requests back and sends them afterwards, in their order.
- Requests that were sent before keep their place. The broker takes requests of a connection from the wire in
  order and answers in order, so five produce requests in flight are decided and answered before the handshake
  is. None is sent twice, and none overtakes another.
- A request that is held back was never sent. If the authentication fails, the connection closes, and all
  requests fail as on any lost connection: the producer then sends the batches again in the order of their
  sequence numbers, and the broker recognises those that it has.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.connection import Connection
from tidelog.wire.errors import AuthenticationError, ClientError, broker_error
from tidelog.wire.events import logger
from tidelog.wire.security.mechanisms import Exchange, begin_exchange

# Of the session's lifetime, as in Kafka's client: many clients shall not come at the same time.
_SOONEST: Final = 0.85
_LATEST: Final = 0.95
_SHORTEST_WAIT_S: Final = 1.0
"""Brokers refuse to authenticate a connection again twice within a second (KIP-368)."""
_FIRST_WITH_AUTHENTICATE: Final = 1


class Authentication:
    """Authenticates one connection of SASL_PLAINTEXT or SASL_SSL. `close` it with the connection."""

    def __init__(self, config: ClusterConfig, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        # Seconds of the loop's clock.
        self._session_end = 0.0
        # When the connection was last authenticated again.
        self._last_ended = -_SHORTEST_WAIT_S

    async def begin(self) -> None:
        """Authenticate a new connection. Raises AuthenticationError, or a retriable ClientError."""
        await self._exchange(await begin_exchange(self._config))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _plan(self, lifetime_s: float) -> None:
        wait_s = lifetime_s * random.uniform(_SOONEST, _LATEST)
        self._timer = self._loop.call_later(wait_s, self._start_again)

    def _start_again(self) -> None:
        if self._connection.is_open:
            self._task = self._loop.create_task(self._again())

    async def _again(self) -> None:
        connection = self._connection
        try:
            exchange = await begin_exchange(self._config)
        except ClientError as error:
            left_s = self._session_end - self._loop.time()
            logger.warning("token_not_renewed", address=connection.address, error=str(error))
            if error.retriable and left_s > _SHORTEST_WAIT_S:
                self._timer = self._loop.call_later(max(_SHORTEST_WAIT_S, left_s / 4), self._start_again)
            else:
                connection.close(error)
            return
        connection.hold_requests()
        try:
            # The session may end earlier than the broker accepts the next one. Requests wait meanwhile.
            await asyncio.sleep(self._last_ended + _SHORTEST_WAIT_S - self._loop.time())
            await self._exchange(exchange)
        except ClientError as error:
            connection.close(error)
        else:
            self._last_ended = self._loop.time()
            connection.release_requests()
            logger.debug("connection_authenticated_again", address=connection.address)

    async def _exchange(self, exchange: Exchange) -> None:
        connection, mechanism = self._connection, self._config.sasl_mechanism
        if not connection.supports(ApiKey.SASL_HANDSHAKE):
            raise AuthenticationError(
                f"{connection.address} does not offer SASL: use security_protocol=PLAINTEXT or SSL, or the"
                " port of another listener"
            )
        connection.version(ApiKey.SASL_HANDSHAKE, _FIRST_WITH_AUTHENTICATE)
        offer: types.SaslHandshakeResponse = await self._ask(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
        code = error_code(offer.error_code)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(sorted(offer.mechanisms)) or "none"
            raise AuthenticationError(
                f"{connection.address} does not have the SASL mechanism {mechanism}. It has: {offered}. Set"
                " sasl_mechanism to one of these"
            )
        self._check(code, None)
        message: bytes | None = exchange.first()
        lifetime_ms = 0
        while message is not None:
            answer: types.SaslAuthenticateResponse = await self._ask(
                ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message}
            )
            self._check(error_code(answer.error_code), answer.error_message)
            lifetime_ms = answer.session_lifetime_ms
            message = await exchange.respond(bytes(answer.auth_bytes))
        if lifetime_ms > 0:
            self._session_end = self._loop.time() + lifetime_ms / 1000
            self._plan(lifetime_ms / 1000)

    async def _ask(self, api_key: ApiKey, values: Mapping[str, object]) -> Any:
        return await self._connection.call(api_key, values, timeout_ms=self._connection.patience_ms())

    def _check(self, code: ErrorCode, message: str | None) -> None:
        if code is ErrorCode.NONE:
            return
        address = self._connection.address
        if code.retriable:
            raise broker_error(code, f"authentication at {address}", message)
        if code is ErrorCode.ILLEGAL_SASL_STATE and message is None:
            message = "the listener does not use SASL: use security_protocol=PLAINTEXT or SSL"
        user = self._config.sasl_plain_username
        who = f" of user {user!r}" if user is not None else ""
        text = message or code.message
        raise AuthenticationError(
            f"{address} refuses the authentication{who} by {self._config.sasl_mechanism}:"
            f" {text} [{code.name} {code.value}]"
        )
