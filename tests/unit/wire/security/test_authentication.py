"""A client authenticates before anything else, knows what a retry cannot change, and shows no secret."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from tests.unit.wire.clusters import opened
from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tests.unit.wire.security.scripted_sasl import PASSWORD, TOKEN, Sasl, user
from tests.unit.wire.test_connection import NO_TOPICS, Opened
from tidelog.client.producer.producer import Producer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import read_batch_header
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import AuthenticationError, BrokerUnavailableError, ClientError
from tidelog.wire.security import authentication
from tidelog.wire.security.mechanisms import MOST_ITERATIONS

USER_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Tokens:
    """A provider as for aiokafka."""

    def __init__(self, token: str | Exception = TOKEN, **extensions: str) -> None:
        self._token = token
        self._extensions = extensions

    async def token(self) -> str:
        if isinstance(self._token, Exception):
            raise self._token
        return self._token

    def extensions(self) -> dict[str, str]:
        return self._extensions


def bearer(tokens: object) -> dict[str, object]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": tokens,
    }


@pytest.fixture(autouse=True)
def shows_no_secret(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert PASSWORD not in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("mechanism", USER_MECHANISMS)
async def test_a_user_is_authenticated_before_the_first_request(mechanism: str) -> None:
    async with ScriptedBroker() as broker:
        Sasl(broker, *USER_MECHANISMS)
        async with Opened(broker, **user(mechanism)) as opening:
            await opening.connection.call(ApiKey.METADATA, NO_TOPICS)
        steps = [ApiKey.SASL_AUTHENTICATE] * (1 if mechanism == "PLAIN" else 2)
        assert [each.api_key for each in broker.requests] == [
            ApiKey.API_VERSIONS,
            ApiKey.SASL_HANDSHAKE,
            *steps,
            ApiKey.METADATA,
        ]


@pytest.mark.parametrize("mechanism", USER_MECHANISMS)
async def test_a_wrong_password_ends_the_start_at_once(mechanism: str, broker: ScriptedBroker) -> None:
    Sasl(broker, *USER_MECHANISMS, password="another")
    with pytest.raises(
        AuthenticationError, match=r"of user 'alice' by .*SASL_AUTHENTICATION_FAILED 58"
    ) as caught:
        async with opened(broker.address, **user(mechanism)):
            pass
    assert broker.connections == 1
    assert not caught.value.retriable
    assert PASSWORD not in f"{caught.value!r} {caught.value}"


async def test_a_mechanism_that_the_broker_lacks_is_an_error_with_those_that_it_has() -> None:
    async with ScriptedBroker() as broker:
        Sasl(broker, "SCRAM-SHA-512", "OAUTHBEARER")
        with pytest.raises(AuthenticationError, match="It has: OAUTHBEARER, SCRAM-SHA-512"):
            async with Opened(broker, **user("PLAIN")):
                pass


async def test_a_listener_without_sasl_is_an_error_that_says_so() -> None:
    async with ScriptedBroker(SaslHandshake=(2, 2)) as broker:
        with pytest.raises(AuthenticationError, match="does not offer SASL"):
            async with Opened(broker, **user("PLAIN")):
                pass
    async with ScriptedBroker() as broker:
        broker.scripts[ApiKey.SASL_HANDSHAKE] = lambda _: {
            "error_code": ErrorCode.ILLEGAL_SASL_STATE,
            "mechanisms": [],
        }
        with pytest.raises(AuthenticationError, match="the listener does not use SASL"):
            async with Opened(broker, **user("PLAIN")):
                pass


async def test_a_broker_that_cannot_prove_to_know_the_password_is_refused(broker: ScriptedBroker) -> None:
    Sasl(broker, "SCRAM-SHA-256").forged_signature = True
    with pytest.raises(AuthenticationError, match="did not prove that it knows the password"):
        async with Opened(broker, **user("SCRAM-SHA-256")):
            pass


@pytest.mark.parametrize(
    "answer", [b"", b"\xff", b"r=,s=,i=", b"e=other-error", b"r=x,s=QUFBQUFBQUFBQUFB,i=4096"]
)
async def test_a_challenge_that_is_none_is_refused(answer: bytes, broker: ScriptedBroker) -> None:
    sasl = Sasl(broker, "SCRAM-SHA-256")
    broker.scripts[ApiKey.SASL_AUTHENTICATE] = lambda _: sasl.accepted(answer)
    with pytest.raises(AuthenticationError, match="the broker's challenge for SCRAM is"):
        async with Opened(broker, **user("SCRAM-SHA-256")):
            pass


@pytest.mark.parametrize("iterations", [1, 4095, MOST_ITERATIONS + 1, 10**9, 10**30])
async def test_a_broker_cannot_ask_for_too_few_or_too_many_iterations(iterations: int) -> None:
    async with ScriptedBroker() as broker:
        sasl = Sasl(broker, "SCRAM-SHA-256")

        def challenge(request: Request) -> object:
            nonce = bytes(request.values.auth_bytes).decode().partition("r=")[2]
            return sasl.accepted(f"r={nonce}abc,s=QUFBQUFBQUFBQUFBQUFB,i={iterations}".encode())

        broker.scripts[ApiKey.SASL_AUTHENTICATE] = challenge  # type: ignore[assignment]
        with pytest.raises(AuthenticationError):
            async with Opened(broker, **user("SCRAM-SHA-256")):
                pass


async def test_a_token_and_its_extensions_are_sent_as_rfc_7628_says(broker: ScriptedBroker) -> None:
    sasl = Sasl(broker, "OAUTHBEARER")
    async with Opened(broker, **bearer(Tokens())):
        pass
    broker.scripts[ApiKey.SASL_AUTHENTICATE] = lambda request: (
        sasl.messages.append(bytes(request.values.auth_bytes)) or sasl.accepted()  # type: ignore[func-returns-value]
    )
    async with Opened(broker, **bearer(Tokens(traceId="7"))):
        pass
    assert sasl.messages[1] == f"n,,\x01auth=Bearer {TOKEN}\x01traceId=7\x01\x01".encode()


async def test_a_refused_token_ends_the_exchange_with_an_error(broker: ScriptedBroker) -> None:
    sasl = Sasl(broker, "OAUTHBEARER")
    with pytest.raises(AuthenticationError, match="OAUTHBEARER: Authentication failed"):
        async with Opened(broker, **bearer(Tokens("expired"))):
            pass
    assert sasl.messages[-1] == b"\x01"


async def test_a_provider_that_fails_may_be_asked_again_later(broker: ScriptedBroker) -> None:
    Sasl(broker, "OAUTHBEARER")
    with pytest.raises(BrokerUnavailableError, match=r"gave no token \(OSError\)") as caught:
        async with Opened(broker, **bearer(Tokens(OSError(TOKEN)))):
            pass
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("token", ["", "a b", f"{TOKEN}\x01auth=other", "a\n"])
async def test_what_is_no_token_is_never_sent(token: str, broker: ScriptedBroker) -> None:
    sasl = Sasl(broker, "OAUTHBEARER")
    with pytest.raises(AuthenticationError, match="no bearer token") as caught:
        async with Opened(broker, **bearer(Tokens(token))):
            pass
    assert sasl.messages == []
    assert TOKEN not in str(caught.value)


async def test_requests_keep_their_order_around_a_new_authentication(broker: ScriptedBroker) -> None:
    """Five are in flight, the session ends, five more are sent: none is between the steps of SASL."""
    sasl = Sasl(broker, "SCRAM-SHA-256")
    sasl.lifetimes_ms = [1]
    second, goes_on = asyncio.Event(), asyncio.Event()

    async def hold(request: Request) -> object:
        if len(broker.seen(ApiKey.SASL_HANDSHAKE)) > 1:
            second.set()
            await goes_on.wait()
        return sasl.handshake(request)

    broker.scripts[ApiKey.SASL_HANDSHAKE] = hold  # type: ignore[assignment]
    async with Opened(broker, **user("SCRAM-SHA-256")) as opening:
        connection = opening.connection
        names = [f"n{number}" for number in range(10)]
        calls = [
            asyncio.ensure_future(connection.call(ApiKey.METADATA, {"topics": [{"name": name}]}))
            for name in names[:5]
        ]
        await second.wait()
        calls += [
            asyncio.ensure_future(connection.call(ApiKey.METADATA, {"topics": [{"name": name}]}))
            for name in names[5:]
        ]
        await asyncio.sleep(0)
        assert connection.in_flight >= 6
        goes_on.set()
        answers = await asyncio.gather(*calls)
    assert [answer.topics[0].name for answer in answers] == names
    sent = [each.api_key for each in broker.requests]
    again = sent.index(ApiKey.SASL_HANDSHAKE, 2)
    assert sent[again : again + 3] == [ApiKey.SASL_HANDSHAKE, *[ApiKey.SASL_AUTHENTICATE] * 2]
    asked = [each.values.topics[0].name for each in broker.seen(ApiKey.METADATA)]
    assert asked == names
    assert broker.connections == 1


async def test_a_producer_loses_repeats_and_reorders_nothing_while_sessions_end(
    monkeypatch: pytest.MonkeyPatch, broker: ScriptedBroker
) -> None:
    """A new session every few milliseconds under a producer with five requests in flight."""
    monkeypatch.setattr(authentication, "_SHORTEST_WAIT_S", 0.0)
    sasl = Sasl(broker, "PLAIN")
    sasl.lifetimes_ms = [3] * 100
    sequences: list[int] = []
    lasting = 0

    def store(request: Request) -> object:
        for topic in request.values.topic_data:
            for partition in topic.partition_data:
                header = read_batch_header(memoryview(partition.records))
                sequences.append(header.base_sequence)
        return broker.produced(request, base_offset=len(sequences) - 1)

    broker.scripts[ApiKey.PRODUCE] = store  # type: ignore[assignment]
    async with Producer(bootstrap_servers=broker.address, **user("PLAIN")) as producer:  # type: ignore[arg-type]
        while len(broker.seen(ApiKey.SASL_HANDSHAKE)) < 20:
            deliveries = [await producer.send(TOPIC, b"x", partition=0) for _ in range(20)]
            for delivery in deliveries:
                await delivery
            lasting += len(deliveries)
    assert sequences[0] == 0
    assert sequences == sorted(set(sequences))
    assert sequences[-1] < lasting
    first = broker.seen(ApiKey.PRODUCE)[0].connection
    assert {each.connection for each in broker.seen(ApiKey.PRODUCE)} == {first}


async def test_a_new_authentication_that_fails_closes_the_connection_and_fails_all_that_wait() -> None:
    async with ScriptedBroker() as broker:
        sasl = Sasl(broker, "PLAIN")
        sasl.lifetimes_ms = [1]
        async with Opened(broker, **user("PLAIN")) as opening:
            broker.scripts[ApiKey.METADATA] = lambda _: None
            waiting = asyncio.ensure_future(opening.connection.call(ApiKey.METADATA, NO_TOPICS))
            broker.scripts[ApiKey.SASL_AUTHENTICATE] = lambda _: sasl.refused()
            with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
                await waiting
            assert isinstance(await opening.ended, AuthenticationError)
            assert not opening.connection.is_open


async def test_a_provider_that_fails_while_a_session_lasts_costs_no_request(broker: ScriptedBroker) -> None:
    failing = Tokens()
    sasl = Sasl(broker, "OAUTHBEARER")
    sasl.lifetimes_ms = [60_000]
    async with Opened(broker) as opening:
        config = ClusterConfig(**bearer(failing))  # type: ignore[arg-type]
        session = authentication.Authentication(config, opening.connection)
        await session.begin()
        failing._token = OSError()
        await session._again()
        await opening.connection.call(ApiKey.METADATA, NO_TOPICS)
        failing._token = TOKEN
        await session._again()
        await opening.connection.call(ApiKey.METADATA, NO_TOPICS)
        session.close()
    assert len(broker.seen(ApiKey.SASL_HANDSHAKE)) == 2


async def test_an_error_of_the_broker_that_may_pass_is_retried(broker: ScriptedBroker) -> None:
    sasl = Sasl(broker, "PLAIN")

    def late(request: Request) -> object:
        if len(broker.seen(ApiKey.SASL_AUTHENTICATE)) == 1:
            return {
                "error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "error_message": None,
                "auth_bytes": b"",
            }
        return sasl.authenticate(request)

    broker.scripts[ApiKey.SASL_AUTHENTICATE] = late  # type: ignore[assignment]
    async with opened(broker.address, **user("PLAIN")) as cluster:
        assert cluster.image.nodes
    with pytest.raises(ClientError):
        async with Opened(broker, **user("PLAIN", sasl_plain_password="no")):
            pass
