"""SaslHandshake and SaslAuthenticate.

Owns the steps of a connection that these two requests cause, and the principal. Invariants: a failure is the
last answer of its connection; a client that authenticates again stays the same principal and keeps its
mechanism (KIP-368).

SaslHandshake 0 is refused: after it a client sends tokens without headers (KIP-43), which no client does that
knows SaslAuthenticate (Kafka 1.0, 2017).

Source: Kafka's SaslServerAuthenticator and KafkaChannel; KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.broker.handlers.connection_state import USER, AuthenticationStep, ConnectionState, Principal
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.authentication import Peer, SaslSession
from tidelog.broker.security.broker_user import BROKER_TYPE
from tidelog.broker.security.sasl import Refused
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import DictOf

_LEAST_INTERVAL_MS: Final = 1000
"""A connection may authenticate again once per second, as in Kafka."""


class SaslHandler:
    """Serves SaslHandshake 0-1 and SaslAuthenticate 0-2."""

    def __init__(self, services: Services) -> None:
        self._authentication = services.authentication
        self._now_ms = services.clock_ms

    async def handshake(
        self, context: RequestContext, request: types.SaslHandshakeRequest
    ) -> DictOf[types.SaslHandshakeResponse]:
        """The client chooses a mechanism."""
        began_seconds = asyncio.get_running_loop().time()
        connection = context.connection
        mechanisms = self._authentication.mechanisms(connection.listener.name)
        answer: DictOf[types.SaslHandshakeResponse] = {"error_code": ErrorCode.NONE, "mechanisms": mechanisms}
        refused = None
        if context.header.api_version == 0:
            refused, answer["error_code"] = "SaslHandshake 0 (KIP-43)", ErrorCode.UNSUPPORTED_VERSION
        elif request.mechanism not in mechanisms:
            refused, answer["error_code"] = "mechanism not enabled", ErrorCode.UNSUPPORTED_SASL_MECHANISM
        before = connection.session
        if refused is not None:
            is_again = before is not None
            await self._fail(
                connection, request.mechanism, Refused(refused), began_seconds, is_again=is_again
            )
            return answer
        exchange = self._authentication.begin(connection.listener.name, request.mechanism)
        session = SaslSession(request.mechanism, exchange, began_ms=self._now_ms())
        if before is not None:
            if before.is_again and session.began_ms - before.began_ms < _LEAST_INTERVAL_MS:
                return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": mechanisms}
            session.is_again = True
            if before.mechanism != session.mechanism:
                session.problem = Refused(
                    f"SASL mechanism '{session.mechanism}' requested by client is not supported for "
                    f"re-authentication of mechanism '{before.mechanism}'"
                )
                session.mechanism = before.mechanism
        connection.session = session
        again = AuthenticationStep.REAUTHENTICATING
        connection.move_to(again if session.is_again else AuthenticationStep.AUTHENTICATING)
        return answer

    async def authenticate(
        self, context: RequestContext, request: types.SaslAuthenticateRequest
    ) -> DictOf[types.SaslAuthenticateResponse]:
        """The client's next token. The last answer names the lifetime of the session."""
        began_seconds = asyncio.get_running_loop().time()
        connection = context.connection
        session = connection.session
        if session is None:
            raise RuntimeError("SaslAuthenticate is served without a SaslHandshake")
        try:
            outcome = await self._authentication.step(
                session, bytes(request.auth_bytes), connection.listener.name, connection.client_host
            )
            if outcome.user is not None:
                principal = Principal(BROKER_TYPE if outcome.is_broker else USER, outcome.user)
                self._accept(connection, session, principal, outcome.lifetime_ms)
        except Refused as error:
            await self._fail(connection, session.mechanism, error, began_seconds, is_again=session.is_again)
            return {"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": error.message}
        return {
            "error_code": ErrorCode.NONE,
            "auth_bytes": outcome.token,
            "session_lifetime_ms": outcome.lifetime_ms,
        }

    def _accept(
        self, connection: ConnectionState, session: SaslSession, principal: Principal, lifetime_ms: int
    ) -> None:
        """The client is this user. Raises Refused if it was another one before."""
        if session.is_again and principal != connection.principal:
            raise Refused(
                "Cannot change principals during re-authentication from "
                f"{connection.principal.type}.{connection.principal.name}: {principal.type}.{principal.name}"
            )
        connection.principal = principal
        connection.session_lifetime_ms = lifetime_ms
        connection.move_to(AuthenticationStep.AUTHENTICATED)
        self._authentication.succeeded(_peer(connection, session.mechanism), is_again=session.is_again)

    async def _fail(
        self,
        connection: ConnectionState,
        mechanism: str,
        refused: Refused,
        began_seconds: float,
        *,
        is_again: bool,
    ) -> None:
        peer = _peer(connection, mechanism)
        try:
            await self._authentication.failed(peer, refused, began_seconds=began_seconds, is_again=is_again)
        finally:
            connection.move_to(AuthenticationStep.FAILED)


def _peer(connection: ConnectionState, mechanism: str) -> Peer:
    return Peer(connection.listener.name, connection.client_host, mechanism)
