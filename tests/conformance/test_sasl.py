"""Clients of other projects authenticate by each mechanism; librdkafka tells its user what went wrong."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import ScramMechanism as ConfluentMechanism

from tests.certificates import Certificates
from tests.conformance.conftest import RunningBroker
from tests.conformance.round_trips import CLIENTS, Way, assert_makes_a_round_trip
from tests.conformance.scram_users import add_users
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.security.guesses import Guesses

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "ann,=ü", "pä=ss,word"
"""SCRAM escapes the name; both have characters outside ASCII."""
PLAIN_NAME = "ünn"
"""For kafka-python, which does not escape names."""
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL", "AGAIN")
"""AGAIN has sessions that are longer than the second that has to pass between two authentications."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(
        tmp_path_factory.mktemp("secured"),
        listeners=tuple(f"{name}://127.0.0.1:0" for name in LISTENERS),
        listener_security_protocol_map=tuple(
            f"{name}:{'SASL_SSL' if name == 'SASL_SSL' else 'SASL_PLAINTEXT'}" for name in LISTENERS
        ),
        ssl_keystore_location=certificates.keystore,
        listener_overrides={"listener.name.again.connections.max.reauth.ms": "1300"},
        sasl_enabled_mechanisms=MECHANISMS,
        connection_failed_authentication_delay_ms=1,
    )
    add_users(running, PASSWORD, USER, PLAIN_NAME)
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def forgotten_failures(secured: RunningBroker) -> None:
    """Clients that try a wrong password again and again slow down those of no other test."""
    secured.broker.services.authentication._guesses = Guesses()


def address(secured: RunningBroker, listener: str = "SASL_PLAINTEXT") -> str:
    return f"127.0.0.1:{secured.broker.ports[listener]}"


def way(secured: RunningBroker, mechanism: str, listener: str = "SASL_PLAINTEXT", **more: str) -> Way:
    return Way(address(secured, listener), mechanism, **{"user": USER, "password": PASSWORD, **more})


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [each for each in CLIENTS if each != "ours"])
async def test_clients_of_others_write_read_and_administer(
    secured: RunningBroker, certificates: Certificates, client: str, mechanism: str
) -> None:
    """With SCRAM-SHA-512 over TLS too."""
    user = PLAIN_NAME if client == "kafka-python" else USER
    topic = f"{client}-{mechanism}"
    await assert_makes_a_round_trip(client, way(secured, mechanism, user=user), topic)
    if mechanism == "SCRAM-SHA-512":
        over_tls = way(secured, mechanism, "SASL_SSL", user=user, authority=certificates.authority)
        await assert_makes_a_round_trip(client, over_tls, f"{topic}-over-tls")


WRONG = [("password", "wrong"), ("user", "nobody")]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("what", "value"), WRONG)
def test_confluent_kafka_reports_an_authentication_error(
    secured: RunningBroker, mechanism: str, what: str, value: str
) -> None:
    errors: list[KafkaError] = []
    wrong = way(secured, mechanism, **{what: value})
    producer = Producer(wrong.librdkafka(error_cb=errors.append))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not errors and time.monotonic() < deadline:
        producer.poll(0.05)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in errors[0].str()


def test_librdkafka_authenticates_again_on_its_connection_and_loses_nothing(secured: RunningBroker) -> None:
    errors: list[KafkaError] = []
    settings = way(secured, "SCRAM-SHA-256", "AGAIN").librdkafka(error_cb=errors.append)
    producer = Producer(settings | {"enable.idempotence": True})
    counted, ended = secured.broker.metrics._authentications, secured.broker.metrics._counts
    before = ended["kafka_server_socketservermetrics_expired_connections_killed"]
    stored: list[int] = []
    sent = 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    while counted["AGAIN", "SCRAM-SHA-256", True, True] < 1 and time.monotonic() < deadline:
        producer.produce(
            "again", str(sent).encode(), callback=lambda _, message: stored.append(message.offset())
        )
        sent += 1
        producer.poll(0.02)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert sorted(stored) == list(range(sent))
    # It authenticates 130 ms before the end of a session. A busy machine may make it too late for one.
    assert not errors or ended["kafka_server_socketservermetrics_expired_connections_killed"] > before
    assert counted["AGAIN", "SCRAM-SHA-256", True, True] >= 1


def test_confluent_kafka_makes_changes_describes_and_deletes_users(secured: RunningBroker) -> None:
    admin = AdminClient(way(secured, "SCRAM-SHA-512").librdkafka())
    sha_256, sha_512 = ConfluentMechanism.SCRAM_SHA_256, ConfluentMechanism.SCRAM_SHA_512

    def alter(*alterations: Any) -> None:
        for future in admin.alter_user_scram_credentials(list(alterations)).values():
            future.result(DEADLINE_SECONDS)

    alter(UserScramCredentialUpsertion("made", ScramCredentialInfo(sha_256, 5000), b"first", b"s"))
    alter(UserScramCredentialUpsertion("made", ScramCredentialInfo(sha_512, 4096), b"second"))
    described = admin.describe_user_scram_credentials(["made"])["made"].result(DEADLINE_SECONDS)
    held = {info.mechanism: info.iterations for info in described.scram_credential_infos}
    assert held == {sha_256: 5000, sha_512: 4096}
    for mechanism, password in (("SCRAM-SHA-256", "first"), ("SCRAM-SHA-512", "second"), ("PLAIN", "second")):
        made = AdminClient(way(secured, mechanism, user="made", password=password).librdkafka())
        assert made.list_topics(timeout=DEADLINE_SECONDS).brokers
    alter(UserScramCredentialDeletion("made", sha_256))
    alter(UserScramCredentialDeletion("made", sha_512))
    everyone = admin.describe_user_scram_credentials().result(DEADLINE_SECONDS)
    assert set(everyone) == {USER, PLAIN_NAME}
