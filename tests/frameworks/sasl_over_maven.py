"""Kafka's own programs in Java sign in by each mechanism of SASL, as `make frameworks` runs them.

They are not in `make test`, because they come from Maven Central.
"""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.conformance.conftest import RunningBroker
from tests.conformance.test_sasl_tokens import KEY, token
from tests.frameworks.java import fetch_jars, java
from tests.waiting import DEADLINE_SECONDS
from tidelog.protocol.scram import ScramMechanism, credential_of, salted_password

_TOOLS = "org.apache.kafka.tools"
USER, PASSWORD = "al,=ice", "p=w,d"


@pytest.fixture(scope="module", autouse=True)
def jars() -> None:
    fetch_jars()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with one user and one issuer of tokens. Sessions of AGAIN last for two seconds."""
    folder = tmp_path_factory.mktemp("secured")
    (folder / "keys").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    (folder / "token").write_text(token())
    running = RunningBroker(
        folder / "data",
        listeners=("SASL_PLAINTEXT://127.0.0.1:0", "AGAIN://127.0.0.1:0"),
        listener_security_protocol_map=("SASL_PLAINTEXT:SASL_PLAINTEXT", "AGAIN:SASL_PLAINTEXT"),
        listener_overrides={"listener.name.again.connections.max.reauth.ms": "2000"},
        sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        sasl_oauthbearer_jwks_endpoint_url=(folder / "keys").as_uri(),
        sasl_oauthbearer_expected_audience=("kafka",),
    )
    made = {}
    for mechanism in ScramMechanism:
        salted = salted_password(mechanism, PASSWORD, b"salt", 4096)
        made[mechanism] = credential_of(mechanism, salted, b"salt", 4096)
    running.run(running.broker.services.users.change(USER, made))
    yield running
    running.stop()


_LOGIN_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}


def _run_signed_in(
    secured: RunningBroker, mechanism: str, tool: str, *arguments: str, lines: str = "", **changed: str
) -> "subprocess.CompletedProcess[str]":
    """A tool of Kafka that signs in by this mechanism."""
    folder, package = secured.data_dir.parent, "org.apache.kafka.common.security"
    known = (
        ""
        if mechanism == "OAUTHBEARER"
        else f'username="al,=ice" password="{changed.get("password", "p=w,d")}"'
    )
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{package}.{_LOGIN_MODULES[mechanism]} required {known};",
    }
    token_url = (folder / "token").as_uri()
    if mechanism == "OAUTHBEARER":
        handler = f"{package}.oauthbearer.OAuthBearerLoginCallbackHandler"
        properties |= {
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": token_url,
        }
    file = folder / f"{mechanism}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    port = secured.broker.ports[changed.get("listener", "SASL_PLAINTEXT")]
    server = ("--bootstrap-server", f"127.0.0.1:{port}")
    program, *rest = java(f"{_TOOLS}.{tool}", *server, *arguments, "--command-config", str(file))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token_url}"
    return subprocess.run(
        [program, allowed, *rest],
        input=lines,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("mechanism", _LOGIN_MODULES)
def test_the_java_client_writes_reads_and_administers_by_each_mechanism_of_sasl(
    secured: RunningBroker, mechanism: str
) -> None:
    written = _run_signed_in(secured, mechanism, "ConsoleProducer", "--topic", mechanism, lines="a\nb\n")
    assert written.returncode == 0, written.stderr
    read = ("--topic", mechanism, "--from-beginning", "--max-messages", "2")
    assert _run_signed_in(secured, mechanism, "consumer.ConsoleConsumer", *read).stdout.split() == ["a", "b"]
    listed = _run_signed_in(secured, mechanism, "TopicCommand", "--list")
    assert mechanism in listed.stdout.split()


def test_the_java_client_says_that_authentication_failed(secured: RunningBroker) -> None:
    refused = _run_signed_in(secured, "SCRAM-SHA-512", "TopicCommand", "--list", password="wrong")
    assert refused.returncode == 1
    assert (
        "Authentication failed due to invalid credentials with SASL mechanism SCRAM-SHA-512" in refused.stdout
    )


def test_the_java_client_authenticates_again_and_loses_nothing(secured: RunningBroker) -> None:
    amount = ("--topic", "again", "--max-messages", "12000", "--throughput", "1000")
    done = _run_signed_in(secured, "SCRAM-SHA-256", "VerifiableProducer", *amount, listener="AGAIN")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert '"sent":12000,"acked":12000' in done.stdout
    counts = secured.broker.metrics.render().decode()
    name = "kafka_server_socketservermetrics_successful_reauthentication_total"
    assert f'{name}{{listener="AGAIN",mechanism="SCRAM-SHA-256"}}' in counts
