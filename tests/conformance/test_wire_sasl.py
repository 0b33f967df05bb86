"""SASL on the wire: which requests a connection may send at each step, and how each step ends it."""

import asyncio
import struct
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.conformance.conftest import RunningBroker
from tests.conformance.raw import RawClient, connected
from tests.conformance.scram_users import ITERATIONS, SALT, add_users
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.app import Broker
from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.net.routes import MOST_EARLY_REQUESTS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.scram import ScramMechanism, client_proof, salted_password

HANDSHAKE, AUTHENTICATE, VERSIONS = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS
ALICE, BOB = b"\0alice\0secret", b"\0bob\0secret"
SHORT_MS = 300
LATE_MS = 1_000
LISTENERS = ("SASL_PLAINTEXT", "AGAIN", "LATE")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with two users. Sessions of AGAIN are short, and LATE waits shortly for an authentication."""
    running = RunningBroker(
        tmp_path_factory.mktemp("secured"),
        listeners=tuple(f"{name}://127.0.0.1:0" for name in LISTENERS),
        listener_security_protocol_map=tuple(f"{name}:SASL_PLAINTEXT" for name in LISTENERS),
        sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256"),
        listener_overrides={
            "listener.name.again.connections.max.reauth.ms": str(SHORT_MS),
            "listener.name.late.connection.authentication.timeout.ms": str(LATE_MS),
        },
        connection_failed_authentication_delay_ms=20,
    )
    add_users(running, "secret", "alice", "bob")
    yield running
    running.stop()


@asynccontextmanager
async def client(secured: RunningBroker, listener: str = "SASL_PLAINTEXT") -> AsyncIterator[RawClient]:
    async with connected(secured.broker.ports[listener]) as made:
        yield made


def sessions_have_ended(broker: Broker, listener: str) -> bool:
    """Whether every client of a listener has to authenticate again before it sends anything else."""
    states = [connection.state for connection in list(broker._server._connections)]
    return not any(
        state.listener.name == listener and state.authentication is AuthenticationStep.AUTHENTICATED
        for state in states
    )


async def handshake(client: RawClient, mechanism: str = "PLAIN") -> int:
    return int((await client.ask(HANDSHAKE, 1, {"mechanism": mechanism})).error_code)


async def authenticate(client: RawClient, token: bytes = ALICE, version: int = 2) -> Any:
    return await client.ask(AUTHENTICATE, version, {"auth_bytes": token})


async def signed_in(client: RawClient) -> None:
    assert await handshake(client) == ErrorCode.NONE
    assert (await authenticate(client)).error_code == ErrorCode.NONE


async def is_served(client: RawClient) -> bool:
    return bool((await client.ask(ApiKey.METADATA, 12, {"topics": []})).brokers)


async def test_versions_are_told_before_authentication_and_everything_after_it(
    secured: RunningBroker,
) -> None:
    async with client(secured) as peer:
        offered = {api.api_key for api in (await peer.ask(VERSIONS, 3, {})).api_keys}
        assert {HANDSHAKE, AUTHENTICATE, ApiKey.PRODUCE} <= offered
        answer = await peer.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.NONE, ["PLAIN", "SCRAM-SHA-256"])
        accepted = await authenticate(peer)
        assert (accepted.error_code, accepted.auth_bytes, accepted.session_lifetime_ms) == (0, b"", 0)
        assert await is_served(peer)
        assert (await peer.ask(VERSIONS, 3, {})).error_code == ErrorCode.NONE


@pytest.mark.parametrize("handshakes", [0, 1])
@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS])
async def test_any_other_request_before_authentication_ends_the_connection(
    secured: RunningBroker, key: ApiKey, handshakes: int
) -> None:
    async with client(secured) as peer:
        for _ in range(handshakes):
            await handshake(peer)
        await peer.send(key, 0 if key != ApiKey.CREATE_TOPICS else 5, b"\xff" * 9)
        assert await peer.closed()


@pytest.mark.parametrize(
    ("version", "mechanism", "code"),
    [
        (1, "GSSAPI", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (1, "plain", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (1, "SCRAM-SHA-512", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (0, "PLAIN", ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(
    secured: RunningBroker, version: int, mechanism: str, code: ErrorCode
) -> None:
    async with client(secured) as peer:
        answer = await peer.ask(HANDSHAKE, version, {"mechanism": mechanism})
        assert (answer.error_code, answer.mechanisms) == (code, ["PLAIN", "SCRAM-SHA-256"])
        assert await peer.closed()


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0secret", b"\0alice\0", b"", b"\xff"])
async def test_a_refused_client_gets_one_answer_after_the_delay_and_is_cut_off(
    secured: RunningBroker, token: bytes
) -> None:
    async with client(secured) as peer:
        await handshake(peer)
        began = asyncio.get_running_loop().time()
        await peer.send_together(
            [(AUTHENTICATE, 2, {"auth_bytes": token}), (ApiKey.METADATA, 12, {"topics": None})]
        )
        answer = await peer.receive()
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        # Half of the delay: the timer of a loop counts from the beginning of its step.
        assert asyncio.get_running_loop().time() - began >= 0.01
        assert await peer.closed()


async def test_requests_sent_behind_the_last_token_are_served_in_order(secured: RunningBroker) -> None:
    async with client(secured) as peer:
        await peer.send_together(
            [
                (VERSIONS, 3, {}),
                (HANDSHAKE, 1, {"mechanism": "PLAIN"}),
                (AUTHENTICATE, 2, {"auth_bytes": ALICE}),
                (ApiKey.METADATA, 12, {"topics": []}),
                (ApiKey.DESCRIBE_CLUSTER, 0, {}),
            ]
        )
        answers = [await peer.receive() for _ in range(5)]
        assert [getattr(answer, "error_code", 0) for answer in answers] == [ErrorCode.NONE] * 5
        assert answers[3].brokers


async def test_a_frame_before_authentication_is_small_and_after_it_large(secured: RunningBroker) -> None:
    async with client(secured) as peer:
        peer._writer.write(struct.pack(">i", 524_289))
        assert await peer.closed()
    async with client(secured) as peer:
        await signed_in(peer)
        names = [{"name": "x" * 200} for _ in range(4_000)]
        answer = await peer.ask(ApiKey.METADATA, 12, {"topics": names, "allow_auto_topic_creation": False})
        assert answer.topics


@pytest.mark.parametrize("version", [3, 99])
async def test_only_a_few_requests_are_answered_before_authentication(
    secured: RunningBroker, version: int
) -> None:
    async with client(secured) as peer:
        for _ in range(MOST_EARLY_REQUESTS):
            await peer.send(VERSIONS, version, b"\x01\x01\x00")
            await peer.receive_body()
        await peer.send(VERSIONS, version, b"\x01\x01\x00")
        assert await peer.closed()


async def test_a_client_that_does_not_authenticate_in_time_is_cut_off_and_others_stay(
    secured: RunningBroker,
) -> None:
    async def begun() -> bytes:
        """What comes until the end for who only names a mechanism, or cannot do so in time."""
        async with client(secured, "LATE") as half:
            with suppress(ConnectionError):
                await half.send_request(HANDSHAKE, 1, {"mechanism": "PLAIN"})
                return await half._reader.read()
        return b""

    async with client(secured, "LATE") as silent, client(secured) as quick:
        await signed_in(quick)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while b"PLAIN" not in await begun():
                pass
        assert await silent.closed()
        assert await is_served(quick)


async def test_a_session_that_has_ended_serves_nothing_but_a_new_authentication(
    secured: RunningBroker,
) -> None:
    async with client(secured, "AGAIN") as late, client(secured, "AGAIN") as again:
        for peer in (late, again):
            await handshake(peer)
            assert (await authenticate(peer)).session_lifetime_ms == SHORT_MS
        await until(lambda: sessions_have_ended(secured.broker, "AGAIN"))
        await late.send_request(ApiKey.METADATA, 12, {"topics": []})
        assert await late.closed()
        await signed_in(again)
    counts = secured.broker.metrics.render().decode()
    assert "kafka_server_socketservermetrics_expired_connections_killed_total 1.0" in counts


@pytest.mark.parametrize(
    ("mechanism", "token", "message"),
    [
        ("PLAIN", BOB, "Cannot change principals during re-authentication from User.alice: User.bob"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=c", "is not supported for re-authentication of mechanism 'PLAIN'"),
        ("PLAIN", b"\0alice\0wrong", "Invalid username or password"),
    ],
)
async def test_a_client_that_authenticates_again_as_another_is_cut_off(
    secured: RunningBroker, mechanism: str, token: bytes, message: str
) -> None:
    async with client(secured) as peer:
        await signed_in(peer)
        assert await handshake(peer, mechanism) == ErrorCode.NONE
        answer = await authenticate(peer, token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert message in answer.error_message
        assert await peer.closed()


async def test_a_deleted_user_stays_until_its_session_ends_and_does_not_come_back(
    secured: RunningBroker,
) -> None:
    add_users(secured, "secret", "carol")
    users = secured.broker.services.users
    async with client(secured) as peer:
        await handshake(peer)
        assert (await authenticate(peer, b"\0carol\0secret")).error_code == ErrorCode.NONE
        secured.run(users.change("carol", dict.fromkeys(ScramMechanism)))
        assert await is_served(peer)
        await handshake(peer)
        refused = await authenticate(peer, b"\0carol\0secret")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_every_attempt_is_counted_by_listener_and_mechanism(secured: RunningBroker) -> None:
    labels = '{listener="SASL_PLAINTEXT",mechanism="PLAIN"}'

    def counted(name: str) -> float:
        lines = secured.broker.metrics.render().decode().splitlines()
        start = f"kafka_server_socketservermetrics_{name}_total{labels} "
        return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))

    before = [counted(f"{kind}_{what}") for what in ("authentication", "reauthentication") for kind in KINDS]
    async with client(secured) as peer:
        await signed_in(peer)
        await signed_in(peer)
    async with client(secured) as peer:
        await handshake(peer)
        await authenticate(peer, b"\0alice\0wrong")
    after = [counted(f"{kind}_{what}") for what in ("authentication", "reauthentication") for kind in KINDS]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 1, 0]


KINDS = ("successful", "failed")


async def test_a_client_that_sends_its_nonce_twice_is_served_and_counted(secured: RunningBroker) -> None:
    bare, mechanism = "n=alice,r=c", ScramMechanism.SCRAM_SHA_256
    async with client(secured) as peer:
        await handshake(peer, mechanism.sasl_name)
        first = bytes((await authenticate(peer, f"n,,{bare}".encode())).auth_bytes).decode()
        without_proof = first.split(",")[0].replace("r=", "c=biws,r=c")  # As librdkafka before 2.6.1.
        salted = salted_password(mechanism, "secret", SALT, ITERATIONS)
        proof = client_proof(mechanism, salted, f"{bare},{first},{without_proof}".encode())
        final = f"{without_proof},p={b64encode(proof).decode()}"
        assert (await authenticate(peer, final.encode())).error_code == ErrorCode.NONE
        assert await is_served(peer)
    assert b"\ntidelog_scram_long_nonces_total 1.0\n" in secured.broker.metrics.render()
