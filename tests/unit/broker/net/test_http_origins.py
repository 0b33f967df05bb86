"""Names of the HTTP port lead to this broker or nowhere, and no page of another site changes anything."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tidelog.broker.cluster.catalog import BrokerRegistration, Listener
from tidelog.broker.net.http_origins import OriginCheck


async def status_of(method: str, path: str, headers: dict[str, str], *, is_secured: bool = False) -> int:
    registration = BrokerRegistration(1, (Listener("PLAINTEXT", "kafka.example", 9092), Listener("X", "", 1)))
    config = SimpleNamespace(
        http_host="console.example", http_allowed_hosts=("Tidelog.prod.svc",), is_secured=is_secured
    )
    services: Any = SimpleNamespace(config=config, catalog=SimpleNamespace(brokers={1: registration}))

    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    request = make_mocked_request(method, path, headers=headers)
    return (await OriginCheck(services).answer(request, handler)).status


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
        ("tidelog.prod.svc:9644", True),
        ("192.0.2.7", True),
        ("elsewhere.example", False),
        ("localhost.elsewhere.example", False),
        ("127.0.0.1.elsewhere.example", False),
        ("notlocalhost", False),
        ("", False),
        ("::1::9644:x", False),
    ],
)
async def test_without_security_a_browser_must_use_a_name_of_the_broker(host: str, is_taken: bool) -> None:
    for path in ("/metrics", "/faults", "/console/broker", "/api/v1/broker", "/nowhere"):
        assert await status_of("GET", path, {"Host": host}) == (200 if is_taken else 403)
    assert await status_of("GET", "/metrics", {"Host": host}, is_secured=True) == 200


async def test_a_program_that_names_no_host_is_no_browser() -> None:
    assert await status_of("GET", "/metrics", {}) == 200


@pytest.mark.parametrize("is_secured", [True, False])
@pytest.mark.parametrize(
    ("headers", "is_taken"),
    [
        ({}, True),
        ({"Origin": "http://localhost:9644"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "https://elsewhere.example"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ],
)
async def test_a_page_of_another_site_orders_no_fault(
    headers: dict[str, str], is_taken: bool, is_secured: bool
) -> None:
    for method in ("POST", "DELETE", "PUT"):
        status = await status_of(
            method, "/faults", {"Host": "localhost:9644", **headers}, is_secured=is_secured
        )
        assert status == (200 if is_taken else 403)
    assert await status_of("GET", "/metrics", {"Host": "localhost:9644", **headers}) == 200
