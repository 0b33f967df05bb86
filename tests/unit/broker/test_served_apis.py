"""The table of what is served: narrower than what has codecs, and told to clients as it is."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.conftest import Clock
from tests.unit.broker.net.peers import Peer, serving
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.net import routes
from tidelog.broker.net.routes import RouteTable
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.served_apis import (
    ROWS,
    SERVED_APIS,
    advertised_api_keys,
    build_handlers,
    closes,
    refusal,
    unsupported_api_versions_body,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import APIS, ApiKey, decode_response


async def test_each_served_api_has_one_complete_row(tmp_path: Path) -> None:
    assert [row.key for row in ROWS] == sorted(SERVED_APIS)
    for row in ROWS:
        api = APIS[row.key]
        assert api.min_version <= row.first <= row.last <= api.max_version, api.name
        assert row.open_at, api.name
    services = await open_services(BrokerConfig(data_dir=tmp_path), Metrics(), Clock())
    try:
        handlers = build_handlers(services)
    finally:
        await services.close()
    bound = {key: handler.__func__ for key, handler in handlers.items() if hasattr(handler, "__func__")}
    assert bound == {row.key: row.handler for row in ROWS if not isinstance(row.handler, str)}
    assert handlers.keys() == SERVED_APIS.keys()


def test_an_api_or_a_version_may_have_codecs_and_a_handler_without_being_advertised_or_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(SERVED_APIS, ApiKey.DESCRIBE_CLUSTER)  # type: ignore[arg-type]
    narrower = SERVED_APIS[ApiKey.METADATA]._replace(first=1, last=9, advertised_first=1)
    monkeypatch.setitem(SERVED_APIS, ApiKey.METADATA, narrower)  # type: ignore[arg-type]
    assert not {ApiKey.DESCRIBE_CLUSTER} & {api["api_key"] for api in advertised_api_keys()}
    assert {"api_key": 3, "min_version": 1, "max_version": 9} in advertised_api_keys()
    answer = {ApiKey.DESCRIBE_CLUSTER: lambda *_: {}, ApiKey.METADATA: lambda *_: {}}
    routes = RouteTable(answer, Metrics(), AuthenticationStep.NOT_REQUIRED)
    assert routes[ApiKey.DESCRIBE_CLUSTER, 0] is None
    served = [version for version in range(13) if routes[ApiKey.METADATA, version] is not None]
    assert served == list(range(1, 10))


def test_every_api_is_advertised_in_the_versions_that_are_served_but_for_old_produce() -> None:
    ranges = {api["api_key"]: (api["min_version"], api["max_version"]) for api in advertised_api_keys()}
    assert ranges.pop(ApiKey.PRODUCE) == (0, APIS[ApiKey.PRODUCE].max_version)
    assert ranges == {
        key: (served.first, served.last) for key, served in SERVED_APIS.items() if key != ApiKey.PRODUCE
    }
    assert list(ranges) == sorted(ranges)


def test_an_api_versions_request_of_an_unknown_version_is_answered_with_version_zero_and_its_range() -> None:
    body = unsupported_api_versions_body()
    assert body == bytes.fromhex("0023 00000001 0012 0000 0004")
    answer = decode_response(ApiKey.API_VERSIONS, 0, body)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys == [{"api_key": 18, "min_version": 0, "max_version": 4}]


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
