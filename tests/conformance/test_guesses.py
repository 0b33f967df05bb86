"""Guesses of a password are slowed down, whatever way they take, and nobody is locked out elsewhere."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conformance.console_site import check_described
from tests.conformance.raw import RawClient
from tests.conformance.secured import PASSWORD, secured
from tests.conformance.test_wire_sasl import authenticate, handshake
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.app import Broker
from tidelog.broker.security.guesses import OF_ADDRESS, OF_USER, SECONDS_OF_USER
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.scram import ScramMechanism, client_proof, salted_password

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
RIGHT, WRONG, WAIT = "right", "wrong", "wait"
_TOGETHER = 30
"""Fewer than the requests over HTTP that may be in progress."""
Attempt = Callable[[Broker, str, str, str], Awaitable[str]]


def verdict(answer: Any) -> str:
    if answer.error_code == ErrorCode.NONE:
        return RIGHT
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    return WAIT if "try again in" in answer.error_message else WRONG


async def by_plain(broker: Broker, host: str, user: str, password: str) -> str:
    pair = await asyncio.open_connection("127.0.0.1", broker.port, local_addr=(host, 0))
    client = RawClient(*pair)
    try:
        await handshake(client, "PLAIN")
        return verdict(await authenticate(client, f"\0{user}\0{password}".encode()))
    finally:
        await client.close()


async def by_scram(broker: Broker, host: str, user: str, password: str) -> str:
    mechanism = ScramMechanism.SCRAM_SHA_256
    pair = await asyncio.open_connection("127.0.0.1", broker.port, local_addr=(host, 0))
    client = RawClient(*pair)
    try:
        await handshake(client, mechanism.sasl_name)
        bare = f"n={user},r=nonce"
        challenge = (await authenticate(client, f"n,,{bare}".encode())).auth_bytes.decode()
        nonce, salt, iterations = (each.partition("=")[2] for each in challenge.split(","))
        without_proof = f"c=biws,r={nonce}"
        message = f"{bare},{challenge},{without_proof}".encode()
        salted = salted_password(mechanism, password, b64decode(salt), int(iterations))
        proof = b64encode(client_proof(mechanism, salted, message)).decode()
        return verdict(await authenticate(client, f"{without_proof},p={proof}".encode()))
    finally:
        await client.close()


async def _asked(broker: Broker, host: str, method: str, path: str, **more: Any) -> aiohttp.ClientResponse:
    connector = aiohttp.TCPConnector(local_addr=(host, 0))
    url = f"http://127.0.0.1:{broker.http_port}{path}"
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, url, allow_redirects=False, **more) as answer,
    ):
        await answer.read()
        return answer


async def by_metrics(broker: Broker, host: str, user: str, password: str) -> str:
    answer = await _by_header(broker, host, user, password, "/metrics")
    return {200: RIGHT, 401: WRONG, 429: WAIT}[answer.status]


async def by_api(broker: Broker, host: str, user: str, password: str) -> str:
    answer = await _by_header(broker, host, user, password, "/api/v1/broker")
    check_described("GET", "/api/v1/broker", answer.status, await answer.json())
    return {200: RIGHT, 401: WRONG, 429: WAIT}[answer.status]


async def _by_header(
    broker: Broker, host: str, user: str, password: str, path: str
) -> aiohttp.ClientResponse:
    login = b64encode(f"{user}:{password}".encode()).decode()
    answer = await _asked(broker, host, "GET", path, headers={"Authorization": f"Basic {login}"})
    assert (answer.status == 429) == ("Retry-After" in answer.headers)
    return answer


async def by_form(broker: Broker, host: str, user: str, password: str) -> str:
    form = {"user": user, "password": password, "next": "/console/topics"}
    answer = await _asked(broker, host, "POST", "/console/sign-in", data=form)
    where = answer.headers["Location"]
    if "wait=" in where:
        page = await _asked(broker, host, "GET", where)
        assert "Too many failed attempts" in await page.text()
        return WAIT
    return WRONG if "failed=" in where else RIGHT


WAYS = {"PLAIN": by_plain, "SCRAM": by_scram, "metrics": by_metrics, "API": by_api, "form": by_form}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with secured(
        tmp_path, **{"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", "http.host": "0.0.0.0"}
    ) as made:
        yield made


@pytest.mark.parametrize("way", WAYS)
async def test_guesses_are_slowed_down_at_their_address_and_user(
    broker: Broker, way: str, logged: list[Any]
) -> None:
    attempt: Attempt = WAYS[way]
    assert [await attempt(broker, HERE, "alice", "guess") for _ in range(OF_USER)] == [WRONG] * OF_USER
    for other in WAYS.values():
        assert await other(broker, HERE, "alice", "guess") == WAIT
        assert await other(broker, HERE, "alice", PASSWORD) == WAIT
        assert await other(broker, ELSEWHERE, "alice", PASSWORD) == RIGHT
        assert await other(broker, HERE, "bob", PASSWORD) == RIGHT
    # A user who does not exist is like one who does.
    assert [await attempt(broker, HERE, "nobody", "guess") for _ in range(OF_USER + 1)] == [
        *[WRONG] * OF_USER,
        WAIT,
    ]
    slowed = [each for each in logged if each["event"] == "sign_in_slowed_down"]
    assert {(each["peer"], each["user"]) for each in slowed} == {(HERE, "alice")}
    assert "guess'" not in str(logged)
    authentication = broker.services.authentication
    now = authentication._now_seconds
    authentication._now_seconds = lambda: now() + SECONDS_OF_USER
    assert await attempt(broker, HERE, "alice", PASSWORD) == RIGHT


@pytest.mark.parametrize("way", WAYS)
async def test_guesses_that_arrive_together_are_no_more_than_one_after_the_other(
    broker: Broker, way: str
) -> None:
    attempt: Attempt = WAYS[way]
    verdicts = await asyncio.gather(*(attempt(broker, HERE, "alice", "guess") for _ in range(_TOGETHER)))
    assert verdicts.count(WRONG) in (OF_USER, OF_USER + 1)  # One more if this takes seconds.
    assert verdicts.count(WAIT) == _TOGETHER - verdicts.count(WRONG)


async def test_guesses_at_many_users_are_slowed_down_and_those_who_were_there_before_are_not(
    broker: Broker,
) -> None:
    assert await by_scram(broker, HERE, "bob", PASSWORD) == RIGHT
    verdicts = [await by_plain(broker, HERE, f"user-{number}", "guess") for number in range(2 * OF_ADDRESS)]
    assert verdicts[:OF_ADDRESS] == [WRONG] * OF_ADDRESS
    assert WAIT in verdicts
    assert await by_metrics(broker, HERE, "bob", PASSWORD) == RIGHT
    assert await by_plain(broker, ELSEWHERE, "alice", PASSWORD) == RIGHT
