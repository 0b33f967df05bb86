"""A client that is authenticated may authenticate again, but not more than once per second."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker, Clock
from tests.unit.broker.handlers.test_users import altered, upsertion
from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.listeners import SecurityProtocol
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState, Principal
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


@pytest.fixture
async def asker(open_asker: Callable[..., Any]) -> Asker:
    name = "SASL_PLAINTEXT"
    made: Asker = await open_asker(listeners=(f"{name}://127.0.0.1:0",), sasl_enabled_mechanisms=("PLAIN",))
    made.connection = ConnectionState(1, Listener(name, "", 1), SecurityProtocol.SASL_PLAINTEXT, "h")
    await altered(made, upsertion("alice"))
    return made


async def test_the_steps_of_a_connection_and_its_principal(asker: Asker, clock: Clock) -> None:
    connection = asker.connection
    steps = [connection.authentication]
    connection.when_moved = steps.append

    async def handshake() -> int:
        return int((await asker.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")).error_code)

    async def authenticate() -> int:
        token = b"\0alice\0secret"
        return int((await asker.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)).error_code)

    for _ in range(2):
        assert (await handshake(), await authenticate()) == (ErrorCode.NONE, ErrorCode.NONE)
        assert connection.principal == Principal("User", "alice")
    clock.now_ms += 999
    assert await handshake() == ErrorCode.ILLEGAL_SASL_STATE
    clock.now_ms += 1
    assert (await handshake(), await authenticate()) == (ErrorCode.NONE, ErrorCode.NONE)
    again = [AuthenticationStep.REAUTHENTICATING, AuthenticationStep.AUTHENTICATED] * 2
    first = [
        AuthenticationStep.HANDSHAKE,
        AuthenticationStep.AUTHENTICATING,
        AuthenticationStep.AUTHENTICATED,
    ]
    assert steps == first + again
