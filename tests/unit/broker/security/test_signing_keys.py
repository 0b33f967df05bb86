"""The keys of tokens are read from a file or a URL, again and again; a failed read changes nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from joserfc.jwk import ECKey
from structlog.testing import capture_logs

from tests.waiting import until
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.security.signing_keys import KeysError, KeySource, SigningKeys


def jwks(*kids: str) -> bytes:
    keys = [ECKey.generate_key("P-256", {"kid": kid}).as_dict(private=False) for kid in kids]
    return json.dumps({"keys": keys}).encode()


def kids(held: SigningKeys) -> list[str | None]:
    return [key.kid for key in held.keys or ()]


class Site:
    """An HTTP server that answers each request with `status` and `body`."""

    def __init__(self) -> None:
        self.status, self.body, self.requests = 200, b"", 0
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        head = f"HTTP/1.1 {self.status} X\r\nConnection: close\r\nContent-Length: {len(self.body)}\r\n\r\n"
        writer.write(head.encode() + self.body)
        writer.close()


@asynccontextmanager
async def reading(config: BrokerConfig) -> AsyncIterator[SigningKeys]:
    keys = SigningKeys(KeySource.of(config))
    await keys.start()
    try:
        yield keys
    finally:
        await keys.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys?token=hidden"
    yield made
    server.close()


def config_of(url: str, **more: int) -> BrokerConfig:
    times = {"refresh_ms": 3_600_000, "retry_backoff_ms": 1, "retry_backoff_max_ms": 20, **more}
    named = {f"sasl_oauthbearer_jwks_endpoint_{name}": value for name, value in times.items()}
    return BrokerConfig(sasl_oauthbearer_jwks_endpoint_url=url, **named)  # type: ignore[arg-type]


async def test_a_file_is_read_before_the_start_ends_and_again_when_it_is_due(tmp_path: Path) -> None:
    path = tmp_path / "a key set.json"
    path.write_bytes(jwks("a"))
    async with reading(config_of(path.as_uri(), refresh_ms=1)) as keys:
        assert kids(keys) == ["a"]
        path.write_bytes(jwks("b", "c"))
        await until(lambda: kids(keys) == ["b", "c"])


@pytest.mark.parametrize("text", [None, b"{}", b"x" * (1 << 20) + b"x"])
async def test_a_file_that_has_no_keys_refuses_the_start(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "keys"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(KeysError, match="cannot be used"):
        await SigningKeys(KeySource.of(config_of(path.as_uri()))).start()


async def test_without_a_place_of_the_keys_there_is_no_start() -> None:
    with pytest.raises(KeysError, match=r"set sasl\.oauthbearer\.jwks\.endpoint\.url"):
        await SigningKeys(KeySource.of(config_of(""))).start()


async def test_a_url_is_asked_until_it_answers_and_the_start_does_not_wait_for_it(site: Site) -> None:
    site.status = 500
    with capture_logs() as logs:
        async with reading(config_of(site.url)) as keys:
            assert keys.keys is None
            await until(lambda: site.requests >= 3)
            site.status, site.body = 200, jwks("a")
            await until(lambda: kids(keys) == ["a"])
    assert {log["event"] for log in logs} == {"signing_keys_not_read"}
    assert "hidden" not in str(logs)


async def test_a_token_of_an_unknown_key_makes_the_url_be_asked_soon_but_never_more_often(site: Site) -> None:
    site.body = jwks("a")
    async with reading(config_of(site.url, retry_backoff_max_ms=50)) as keys:
        await until(lambda: kids(keys) == ["a"])
        site.body = jwks("a", "new")
        began = asyncio.get_running_loop().time()
        while kids(keys) != ["a", "new"]:
            keys.ask_again()
            await asyncio.sleep(0)
        assert asyncio.get_running_loop().time() - began >= 0.04
        assert site.requests == 2


@pytest.mark.parametrize("body", [b"{}", b" " * (1 << 20) + jwks("b")])
async def test_a_bad_or_oversized_answer_leaves_the_keys_as_they_are(site: Site, body: bytes) -> None:
    site.body = jwks("a")
    async with reading(config_of(site.url, refresh_ms=1, retry_backoff_max_ms=1)) as keys:
        await until(lambda: kids(keys) == ["a"])
        site.body = body
        asked = site.requests
        await until(lambda: site.requests >= asked + 3)
        assert kids(keys) == ["a"]
