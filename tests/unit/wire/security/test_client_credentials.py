"""Tokens of an identity provider: one request, and errors that hide what is secret."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.wire.scripted import ScriptedBroker
from tests.unit.wire.security.scripted_sasl import TOKEN, Sasl
from tests.unit.wire.test_connection import NO_TOPICS, Opened
from tidelog.protocol.schema import ApiKey
from tidelog.wire.errors import AuthenticationError, BrokerUnavailableError


@asynccontextmanager
async def provider(status: int = 200, text: str = f'{{"access_token": "{TOKEN}"}}') -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        form = await request.post()
        assert form["grant_type"] == "client_credentials"
        assert form["scope"] == "logs"
        asked = base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()
        assert asked == "rea%3Ader:hunter2"
        return web.Response(status=status, text=text)

    application = web.Application()
    application.router.add_post("/token", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    finally:
        await runner.cleanup()


def client(url: str) -> dict[str, object]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_client_credentials_client_id": "rea:der",
        "sasl_oauthbearer_client_credentials_client_secret": "hunter2",
        "sasl_oauthbearer_scope": "logs",
    }


async def test_a_client_gets_its_token_from_the_provider() -> None:
    async with provider() as url, ScriptedBroker() as broker:
        Sasl(broker, "OAUTHBEARER")
        async with Opened(broker, **client(url)) as opening:
            await opening.connection.call(ApiKey.METADATA, NO_TOPICS)


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (401, "", AuthenticationError),
        (400, '{"error": "invalid_client"}', AuthenticationError),
        (500, "", BrokerUnavailableError),
        (302, "", BrokerUnavailableError),
        (200, "hunter2", BrokerUnavailableError),
        (200, "[]", BrokerUnavailableError),
        (200, '{"access_token": 1}', BrokerUnavailableError),
        (200, '{"access_token": "a b"}', AuthenticationError),
    ],
)
async def test_a_provider_that_gives_none_is_named(status: int, text: str, kind: type[Exception]) -> None:
    async with provider(status, text) as url, ScriptedBroker() as broker:
        Sasl(broker, "OAUTHBEARER")
        with pytest.raises(kind) as caught:
            async with Opened(broker, **client(url)):
                pass
        assert "hunter2" not in str(caught.value)


async def test_a_client_reads_its_token_from_a_file_each_time(tmp_path: Path, broker: ScriptedBroker) -> None:
    file = tmp_path / "a token"
    settings = {**client(file.as_uri())}
    for name in ("scope", "client_credentials_client_id", "client_credentials_client_secret"):
        del settings[f"sasl_oauthbearer_{name}"]
    Sasl(broker, "OAUTHBEARER")
    with pytest.raises(BrokerUnavailableError, match="cannot read a token from "):
        async with Opened(broker, **settings):
            pass
    file.write_text(f"{TOKEN}\n")
    async with Opened(broker, **settings) as opening:
        await opening.connection.call(ApiKey.METADATA, NO_TOPICS)


async def test_the_secret_is_not_sent_without_tls_to_another_host(broker: ScriptedBroker) -> None:
    with pytest.raises(AuthenticationError, match="must begin with https://"):
        async with Opened(broker, **client("http://id.example/token")):
            pass
