"""The gate: what may be asked at which step of authentication, and that no API passes beside it."""

from typing import Any

import pytest

from tests.unit.broker.net.peers import Peer, serving
from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.net import routes
from tidelog.broker.net.gate import closes, refusal
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

SASL_APIS = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
SASL_VERSIONS = [(key, version) for key in sorted(SASL_APIS) for version in range(SERVED_APIS[key].last + 1)]


def never_called(context: Any, request: Any) -> Any:
    raise AssertionError("the gate refuses this")


def answered(context: Any, request: Any) -> Any:
    return {"error_code": 0}


def test_without_authentication_everything_is_open_but_sasl() -> None:
    step = AuthenticationStep.NOT_REQUIRED
    assert {key for key in SERVED_APIS if refusal(key, step) is not None} == SASL_APIS


@pytest.mark.parametrize(
    ("step", "open_apis"),
    [
        (AuthenticationStep.HANDSHAKE, {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
        (AuthenticationStep.AUTHENTICATING, {ApiKey.SASL_AUTHENTICATE}),
        (AuthenticationStep.AUTHENTICATED, SERVED_APIS.keys() - {ApiKey.SASL_AUTHENTICATE}),
        (AuthenticationStep.REAUTHENTICATING, {ApiKey.SASL_AUTHENTICATE}),
        (AuthenticationStep.EXPIRED, {ApiKey.SASL_HANDSHAKE}),
        (AuthenticationStep.FAILED, set()),
    ],
)
def test_what_is_open_at_each_step_of_sasl(step: AuthenticationStep, open_apis: set[ApiKey]) -> None:
    assert {key for key in SERVED_APIS if refusal(key, step) is None} == open_apis
    assert closes(step) is (step is not AuthenticationStep.AUTHENTICATED)


@pytest.mark.parametrize(("api_key", "version"), SASL_VERSIONS)
async def test_sasl_on_a_listener_without_it_is_an_illegal_sasl_state_and_the_connection_lives(
    api_key: ApiKey, version: int
) -> None:
    handlers = {api_key: never_called, ApiKey.API_VERSIONS: answered}
    async with serving(handlers) as server, await Peer.connect(server.port) as peer:
        answer = await peer.ask(api_key, version, {"mechanism": "PLAIN"} if api_key == 17 else {})
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        if api_key == ApiKey.SASL_AUTHENTICATE:
            assert "security.protocol=PLAINTEXT" in answer.error_message
        assert (await peer.ask(ApiKey.API_VERSIONS, 3)).error_code == 0


async def test_each_step_has_one_table_of_routes_so_that_the_gate_costs_a_request_nothing() -> None:
    asked: list[ApiKey] = []

    def counted(api_key: ApiKey, step: AuthenticationStep) -> ApiError | None:
        asked.append(api_key)
        return refusal(api_key, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "refusal", counted)
        async with serving({ApiKey.API_VERSIONS: answered}) as server:
            for _ in range(3):
                async with await Peer.connect(server.port) as peer:
                    for _ in range(5):
                        await peer.ask(ApiKey.API_VERSIONS, 3)
    assert asked == [ApiKey.API_VERSIONS]
