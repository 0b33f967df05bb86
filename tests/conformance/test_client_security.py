"""Our clients and commands at a broker with users: what they can do, and what they say when it is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.certificates import Certificates
from tests.conformance.commands import typist
from tests.conformance.conftest import RunningBroker
from tests.conformance.round_trips import Way, assert_makes_a_round_trip
from tests.conformance.scram_users import add_users
from tidelog.client import (
    Admin,
    AuthenticationError,
    BrokerUnavailableError,
    ClusterConfig,
    Consumer,
    Producer,
)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "ann,=ü", 'pä="ss,w\\ord'


class Secured(NamedTuple):
    running: RunningBroker
    authority: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A client of the listener OTHER can use only one mechanism."""
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    listeners = ("SASL_PLAINTEXT", "SASL_SSL", "OTHER")
    running = RunningBroker(
        tmp_path_factory.mktemp("secured"),
        listeners=tuple(f"{name}://127.0.0.1:0" for name in listeners),
        listener_security_protocol_map=(
            *(f"{name}:SASL_PLAINTEXT" for name in listeners if name != "SASL_SSL"),
            "SASL_SSL:SASL_SSL",
        ),
        ssl_keystore_location=certificates.keystore,
        listener_overrides={"listener.name.other.sasl.enabled.mechanisms": "SCRAM-SHA-256"},
        sasl_enabled_mechanisms=MECHANISMS,
        connection_failed_authentication_delay_ms=1,
        group_initial_rebalance_delay_ms=0,
    )
    add_users(running, PASSWORD, USER)
    yield Secured(running, certificates.authority)
    running.stop()


def way(secured: Secured, mechanism: str, listener: str = "SASL_PLAINTEXT", **more: Any) -> ClusterConfig:
    return ClusterConfig(**settings(secured, mechanism, listener).ours(**more))


def settings(secured: Secured, mechanism: str, listener: str) -> Way:
    address = f"127.0.0.1:{secured.running.broker.ports[listener]}"
    return Way(address, mechanism, USER, PASSWORD, secured.authority if listener == "SASL_SSL" else "")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_our_clients_write_read_and_administer(secured: Secured, mechanism: str, listener: str) -> None:
    topic = f"ours-{mechanism}-{listener}"
    await assert_makes_a_round_trip("ours", settings(secured, mechanism, listener), topic)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wrong", [{"sasl_plain_password": "no"}, {"sasl_plain_username": "nobody"}])
async def test_a_wrong_user_or_password_ends_the_start_at_once(
    secured: Secured, mechanism: str, wrong: dict[str, str]
) -> None:
    for client in (Producer, Consumer, Admin):
        with pytest.raises(
            AuthenticationError, match=f"refuses the authentication of user .* by {mechanism}"
        ):
            await client(cluster=way(secured, mechanism, **wrong)).start()


async def test_a_mechanism_that_the_listener_lacks_is_named(secured: Secured) -> None:
    with pytest.raises(AuthenticationError, match=r"does not have .* PLAIN\. It has: SCRAM-SHA-256"):
        await Admin(cluster=way(secured, "PLAIN", "OTHER")).start()


async def test_a_client_without_a_user_is_told_that_the_listener_may_need_one(secured: Secured) -> None:
    servers = way(secured, "PLAIN").bootstrap_servers
    with pytest.raises(BrokerUnavailableError, match="security_protocol"):
        await Admin(bootstrap_servers=servers, request_timeout_ms=5_000).start()


def test_commands_take_a_file_of_properties(
    secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ann.properties"
    password = PASSWORD.replace("\\", "\\\\\\\\").replace('"', '\\\\"')
    file.write_text(
        f"bootstrap.servers={way(secured, 'PLAIN')}\nsecurity.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="{USER}" password="{password}";\n'
    )
    tidelog = typist(capfd)
    typed = tidelog("topic", "create", "by-command", "--command-config", str(file))
    assert typed[0] == 0, typed
    assert "by-command" in tidelog("topic", "list", "--command-config", str(file))[1]
    file.write_text(file.read_text().replace(password, "wrong"))
    code, _, shown = tidelog("topic", "list", "--command-config", str(file))
    assert code == 1
    assert "refuses the authentication of user" in shown
    assert "wrong" not in shown
