"""Changes come from the console's own pages or from scripts, and names lead to this broker or nowhere."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from tidelog.broker.cluster.catalog import BrokerRegistration, Listener
from tidelog.broker.console.safety import check_change, check_name
from tidelog.protocol.errors import ApiError

HOST = {"Host": "broker.example:9644"}
JSON = {"Content-Type": "application/json"}


def change(headers: Mapping[str, str]) -> Any:
    return make_mocked_request("POST", "/api/v1/topics", headers={**HOST, **headers})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://broker.example:9644"},
        {"Origin": "https://broker.example:9644"},
        {"Sec-Fetch-Site": "none"},
        {"Content-Type": "application/json; charset=utf-8"},
    ],
)
def test_a_change_of_a_page_of_the_console_or_of_a_script_is_taken(headers: Mapping[str, str]) -> None:
    check_change(change({**JSON, **headers}))


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": ""},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://broker.example"},
        {"Origin": "http://broker.example:9645"},
        {"Origin": "http://elsewhere.example", "Sec-Fetch-Site": "same-origin"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "text/plain; x=application/json"},
    ],
)
def test_a_change_that_another_site_may_have_caused_is_refused(headers: Mapping[str, str]) -> None:
    with pytest.raises(ApiError):
        check_change(change({**JSON, **headers}))


@pytest.mark.parametrize(
    ("host", "is_taken"),
    [
        ("127.0.0.1:9644", True),
        ("[::1]:9644", True),
        ("localhost", True),
        ("LOCALHOST.:80", True),
        ("a.localhost", True),
        ("kafka.example:1", True),
        ("console.example", True),
        ("192.0.2.7", True),
        ("elsewhere.example", False),
        ("localhost.elsewhere.example", False),
        ("127.0.0.1.elsewhere.example", False),
        ("notlocalhost", False),
        ("", False),
        ("::1::9644:x", False),
    ],
)
def test_without_security_a_browser_must_use_a_name_of_the_broker(host: str, is_taken: bool) -> None:
    registration = BrokerRegistration(1, (Listener("PLAINTEXT", "kafka.example", 9092), Listener("X", "", 1)))
    services: Any = SimpleNamespace(
        config=SimpleNamespace(http_host="console.example"),
        catalog=SimpleNamespace(brokers={1: registration}),
    )
    request = make_mocked_request("GET", "/console/broker", headers={"Host": host})
    if is_taken:
        check_name(request, services)
    else:
        with pytest.raises(ApiError, match="is not a name of this broker"):
            check_name(request, services)
