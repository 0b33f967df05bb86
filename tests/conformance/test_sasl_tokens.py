"""OAUTHBEARER: clients of other projects sign in with tokens, and each tells its user when one is refused."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider as AioProvider
from confluent_kafka import KafkaError, Producer
from joserfc import jws
from joserfc.jwk import ECKey
from kafka.net.sasl.oauth import AbstractTokenProvider as PureProvider
from structlog.testing import capture_logs

from tests.conformance.conftest import RunningBroker
from tests.conformance.raw import connected
from tests.conformance.round_trips import CLIENTS, Way, assert_makes_a_round_trip
from tests.waiting import DEADLINE_SECONDS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

PREFIX = "listener.name.sasl.plaintext.oauthbearer."
"""Kafka's, of one mechanism of a listener."""
KEY = ECKey.generate_key("P-256", {"kid": "ec"})


def token(lifetime_s: int = 600, **changed: object) -> str:
    now = int(time.time())
    claims = {"sub": "svc", "iss": "https://issuer", "aud": "kafka", "iat": now, "exp": now + lifetime_s}
    text = json.dumps({**claims, **changed})
    return jws.serialize_compact({"alg": "ES256", "kid": "ec"}, text, KEY, ["ES256"])


class AioTokens(AioProvider):
    def __init__(self, held: str) -> None:
        self.held = held

    async def token(self) -> str:
        return self.held


class PureTokens(PureProvider):
    def __init__(self, held: str) -> None:
        self.held = held

    def token(self) -> str:
        return self.held


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("secured")
    (folder / "jwks.json").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    running = RunningBroker(
        folder / "data",
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        sasl_enabled_mechanisms=("OAUTHBEARER",),
        listener_overrides={
            f"{PREFIX}sasl.oauthbearer.jwks.endpoint.url": (folder / "jwks.json").as_uri(),
            f"{PREFIX}sasl.oauthbearer.expected.issuer": "https://issuer",
        },
        sasl_oauthbearer_expected_audience=("kafka",),
        sasl_oauthbearer_clock_skew_seconds=0,
        connection_failed_authentication_delay_ms=1,
    )
    yield running
    running.stop()


def way(secured: RunningBroker) -> Way:
    return Way(secured.address, "OAUTHBEARER")


def shown_by(client: str, held: str) -> dict[str, Any]:
    """How a client of others is given its token."""
    if client == "librdkafka":
        return {"oauth_cb": lambda _: (held, time.time() + 600, "svc", {"extension": "x"})}
    return {"sasl_oauth_token_provider": (AioTokens if client == "aiokafka" else PureTokens)(held)}


@pytest.mark.parametrize("client", [each for each in CLIENTS if each != "ours"])
async def test_clients_of_others_sign_in_with_a_token(secured: RunningBroker, client: str) -> None:
    await assert_makes_a_round_trip(client, way(secured), client, **shown_by(client, token()))


EXPIRED = token(-1)


def test_confluent_kafka_reports_an_expired_token(secured: RunningBroker) -> None:
    errors: list[KafkaError] = []
    producer = Producer(way(secured).librdkafka(error_cb=errors.append, **shown_by("librdkafka", EXPIRED)))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not errors and time.monotonic() < deadline:
        producer.poll(0.05)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid credentials with SASL mechanism OAUTHBEARER" in errors[0].str()


async def test_a_token_whose_user_cannot_be_encoded_is_refused_logged_and_breaks_no_metric(
    secured: RunningBroker,
) -> None:
    message = f"n,,\x01auth=Bearer {token(sub='svc' + chr(0xD800))}\x01\x01".encode()
    with capture_logs() as events:
        async with connected(secured.broker.port) as peer:
            await peer.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
            answer = await peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
            assert bytes(answer.auth_bytes) == b'{"status":"invalid_token"}'
            answer = await peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\x01"})
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    reasons = [event["reason"] for event in events if event["event"] == "authentication_failed"]
    assert "the claim sub is not Unicode" in reasons
    assert b"failed_authentication_total" in secured.broker.metrics.render()


async def test_a_session_lives_no_longer_than_its_token(secured: RunningBroker) -> None:
    async with connected(secured.broker.port) as peer:
        await peer.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        message = f"n,,\x01auth=Bearer {token(50)}\x01\x01".encode()
        answer = await peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
        assert answer.error_code == ErrorCode.NONE
        assert 0 < answer.session_lifetime_ms <= 50_000
