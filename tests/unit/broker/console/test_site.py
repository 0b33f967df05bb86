"""Changes come from the console's own pages or from scripts."""

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from tidelog.broker.console.site import check_change
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
