"""A client that is authenticated may authenticate again, but not more than once per second."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.conftest import Clock
from tests.unit.broker.handlers.conftest import Asker
from tests.unit.broker.handlers.test_users import altered, upsertion
from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState, Principal
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

NAME = "SASL_PLAINTEXT"


@pytest.fixture
async def without_users(open_asker: Callable[..., Any]) -> Asker:
    made: Asker = await open_asker(listeners=(f"{NAME}://127.0.0.1:0",), sasl_enabled_mechanisms=("PLAIN",))
    made.connection = ConnectionState(1, Listener(NAME, "", 1), SecurityProtocol.SASL_PLAINTEXT, "h")
    return made


@pytest.fixture
async def asker(without_users: Asker) -> Asker:
    await altered(without_users, upsertion("alice"))
    return without_users


async def test_a_listener_that_no_user_can_use_is_reported_at_the_start(without_users: Asker) -> None:
    with capture_logs() as events:
        await without_users.services.authentication.start()
        await altered(without_users, upsertion("alice"))
        await without_users.services.authentication.start()
    assert [each["listener"] for each in events if each["event"] == "listener_without_users"] == [NAME]


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
