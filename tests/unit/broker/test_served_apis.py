"""The table of what is served: narrower than what has codecs, and told to clients as it is."""

from pathlib import Path

import pytest

from tests.unit.broker.conftest import Clock
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.net.routes import RouteTable
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.served_apis import (
    ROWS,
    SERVED_APIS,
    advertised_api_keys,
    build_handlers,
    unsupported_api_versions_body,
)
from tidelog.protocol.errors import ErrorCode
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
