"""Kafka's own client and command line tools in Java at a secure broker, as `make frameworks` runs them.

They are not in `make test`, because they come from Maven Central. Their properties are those of
docs/security.md.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from py4j.protocol import Py4JJavaError

from tests.certificates import Certificates
from tests.conformance.conftest import RunningBroker
from tests.conformance.test_sasl_tokens import KEY, token
from tests.frameworks.java import fetch_jars, java
from tests.frameworks.java_client import JavaClient, causes, jvm_with_kafka
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.client.security.properties import parse_properties
from tidelog.protocol.scram import ScramMechanism, credential_of, salted_password

_TOOLS = "org.apache.kafka.tools"
USER, PASSWORD = "al,=ice", "p=w,d"
LISTENERS = {
    **dict.fromkeys(("TLS", "MUTUAL", "EXPIRED", "ELSEWHERE"), "SSL"),
    "SASL_SSL": "SASL_SSL",
    **dict.fromkeys(("SASL_PLAINTEXT", "AGAIN"), "SASL_PLAINTEXT"),
}
MODULES = {"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}
MECHANISMS = (*MODULES, "OAUTHBEARER")
_BLOCK = re.compile(r"^```properties\n# Java: (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = dict(_BLOCK.findall((ROOT / "docs" / "security.md").read_text()))
"""What the page says that a client in Java needs for TLS, a certificate, a password, a token."""


class Secured(NamedTuple):
    """A broker, and the folder with the files of its clients."""

    running: RunningBroker
    folder: Path

    def properties(
        self,
        listener: str,
        mechanism: str = "",
        user: str = USER,
        password: str = PASSWORD,
        token: str = "token",
    ) -> dict[str, str]:
        """A client's properties for a listener: those of the page, with the names of here."""
        kinds = ["TLS", *(["certificate"] if listener == "MUTUAL" else [])]
        if mechanism:
            kinds.append("password" if mechanism in MODULES else "token")
        text = "".join(BLOCKS[kind] for kind in kinds)
        for written, meant in {
            "authority.pem": str(self.folder / "authority.pem"),
            "alice.pem": str(self.folder / "alice-java.pem"),
            "file:///etc/kafka/token": (self.folder / token).as_uri(),
            "SCRAM-SHA-512": mechanism,
            "scram.Scram": MODULES.get(mechanism, ""),
            '"alice"': f'"{user}"',
            '"alice-secret"': f'"{password}"',
        }.items():
            text = text.replace(written, meant)
        # The certificates are for this name as well as for the address.
        address = f"localhost:{self.running.broker.ports[listener]}"
        return {
            **parse_properties(text),
            "security.protocol": LISTENERS[listener],
            "bootstrap.servers": address,
        }

    @property
    def allowed_tokens(self) -> str:
        """The option by which a JVM reads tokens from files (since Kafka 4.0)."""
        urls = ",".join((self.folder / name).as_uri() for name in ("token", "expired"))
        return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"

    def tool(self, name: str, *arguments: str, lines: str = "", **properties: str) -> str:
        """What a tool of Kafka prints; by default it signs in over TLS."""
        given = self.properties(**{"listener": "SASL_SSL", "mechanism": "SCRAM-SHA-512", **properties})
        file = self.folder / "tool.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        server = ("--bootstrap-server", given["bootstrap.servers"], "--command-config", str(file))
        done = subprocess.run(
            java(name, *server, *arguments),
            input=lines,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with users, an issuer of tokens and an authorizer. Sessions of AGAIN last for two seconds."""
    folder = tmp_path_factory.mktemp("secured")
    certificates = Certificates(folder)
    overrides = {
        "listener.name.again.connections.max.reauth.ms": "2000",
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for listener, host, days in ("expired", "localhost", -1), ("elsewhere", "elsewhere.example.org", 1):
        certificates.issue(host, expires=datetime.now(UTC) + timedelta(days=days))
        kept = Path(certificates.keystore).rename(folder / f"{listener}.pem")
        overrides[f"listener.name.{listener}.ssl.keystore.location"] = str(kept)
    certificates.issue()
    alice = certificates.client("alice")
    convert = ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", alice]
    key = subprocess.run(convert, check=True, capture_output=True, text=True).stdout
    chain = Path(alice).read_text().partition("-----BEGIN CERTIFICATE")
    (folder / "alice-java.pem").write_text(f"{key}{''.join(chain[1:])}")
    (folder / "keys").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    (folder / "token").write_text(token())
    (folder / "expired").write_text(token(-3600))
    running = RunningBroker(
        folder / "data",
        listeners=tuple(f"{name}://127.0.0.1:0" for name in LISTENERS),
        listener_security_protocol_map=tuple(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        listener_overrides=overrides,
        ssl_keystore_location=certificates.keystore,
        ssl_truststore_location=certificates.authority,
        ssl_principal_mapping_rules="RULE:CN=(.*?),.*/$1/",
        sasl_enabled_mechanisms=MECHANISMS,
        sasl_oauthbearer_jwks_endpoint_url=(folder / "keys").as_uri(),
        sasl_oauthbearer_expected_audience=("kafka",),
        connection_failed_authentication_delay_ms=1,
        group_initial_rebalance_delay_ms=0,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users=f"User:{USER};User:svc;User:alice;User:ANONYMOUS",
    )
    made = {}
    for mechanism in ScramMechanism:
        salted = salted_password(mechanism, PASSWORD, b"salt", 4096)
        made[mechanism] = credential_of(mechanism, salted, b"salt", 4096)
    for user in (USER, "bob"):
        running.run(running.broker.services.users.change(user, made))
    fetch_jars()
    yield Secured(running, folder)
    running.stop()


@pytest.fixture(scope="module")
def jvm(secured: Secured) -> Iterator[Any]:
    with jvm_with_kafka(secured.allowed_tokens) as packages:
        yield packages


WAYS = [
    ("TLS", ""),
    ("MUTUAL", ""),
    *((listener, mechanism) for mechanism in MECHANISMS for listener in ("SASL_SSL", "SASL_PLAINTEXT")),
]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_the_java_client_administers_writes_and_reads(
    secured: Secured, jvm: Any, listener: str, mechanism: str
) -> None:
    topic = f"{listener}{mechanism}"
    with JavaClient(jvm, secured.properties(listener, mechanism), topic) as client:
        assert topic in client.create()
        assert client.write("v") == 0
        assert client.read() == "v"
        client.commit()


_SASL = "SaslAuthenticationException: Authentication failed"
_SCRAM = f"{_SASL} due to invalid credentials with SASL mechanism SCRAM-SHA-"
_TLS = "SslAuthenticationException: SSL handshake failed"
WRONG = {"listener": "SASL_SSL", "password": "wrong"}
REFUSALS: dict[str, tuple[dict[str, str], str]] = {
    "a wrong password for PLAIN": (
        {**WRONG, "mechanism": "PLAIN"},
        f"{_SASL}: Invalid username or password",
    ),
    "a wrong password for SCRAM-SHA-256": ({**WRONG, "mechanism": "SCRAM-SHA-256"}, f"{_SCRAM}256"),
    "a wrong password for SCRAM-SHA-512": ({**WRONG, "mechanism": "SCRAM-SHA-512"}, f"{_SCRAM}512"),
    "an expired token": (
        {"listener": "SASL_SSL", "mechanism": "OAUTHBEARER", "token": "expired"},
        f"{_SASL} due to invalid credentials with SASL mechanism OAUTHBEARER",
    ),
    "an expired certificate": ({"listener": "EXPIRED"}, f"{_TLS}(?s:.*)CertificateExpiredException"),
    "a wrong host name": ({"listener": "ELSEWHERE"}, f"{_TLS}(?s:.*)name matching localhost found"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_is_the_exception_that_the_java_client_documents(
    secured: Secured, jvm: Any, refusal: str
) -> None:
    changed, expected = REFUSALS[refusal]
    with JavaClient(jvm, secured.properties(**changed), "refused") as client:
        for use in (client.create, lambda: client.write("v"), client.read):
            with pytest.raises(Py4JJavaError) as caught:
                use()
            assert re.search(expected, causes(caught.value))


def test_the_java_client_without_a_certificate_learns_that_one_is_needed(secured: Secured, jvm: Any) -> None:
    without = secured.properties("TLS")
    address = secured.properties("MUTUAL")["bootstrap.servers"]
    with (
        JavaClient(jvm, {**without, "bootstrap.servers": address}, "refused") as client,
        pytest.raises(Py4JJavaError) as caught,
    ):
        client.create()
    assert "SslAuthenticationException" in causes(caught.value)


@contextmanager
def allowed(jvm: Any, admin: Any, topic: str) -> Iterator[Any]:
    """Bob may write and read the topic, and read as its group. Gives what takes away one of these."""
    common = jvm.org.apache.kafka.common
    literal, allow = common.resource.PatternType.LITERAL, common.acl.AclPermissionType.ALLOW
    bindings = {}
    for kind, operation in ("TOPIC", "WRITE"), ("TOPIC", "READ"), ("GROUP", "READ"):
        pattern = common.resource.ResourcePattern(getattr(common.resource.ResourceType, kind), topic, literal)
        entry = common.acl.AccessControlEntry(
            "User:bob", "*", getattr(common.acl.AclOperation, operation), allow
        )
        bindings[f"{operation} {kind}"] = common.acl.AclBinding(pattern, entry)
    admin.createAcls(list(bindings.values())).all().get()

    def revoke(what: str) -> None:
        (deleted,) = admin.deleteAcls([bindings[what].toFilter()]).all().get()
        assert deleted.equals(bindings[what])

    yield revoke
    admin.deleteAcls([each.toFilter() for each in bindings.values()]).all().get()


def test_a_permission_that_is_taken_away_is_an_exception_in_the_middle_of_a_session(
    secured: Secured, jvm: Any
) -> None:
    topic = "revoked"
    with (
        JavaClient(jvm, secured.properties("SASL_SSL", "SCRAM-SHA-512"), topic) as owner,
        JavaClient(jvm, secured.properties("SASL_SSL", "SCRAM-SHA-512", user="bob"), topic) as bob,
    ):
        owner.create()
        with allowed(jvm, owner.admin, topic) as revoke:
            assert bob.write("v") == 0
            assert bob.read() == "v"
            bob.commit()
            for what, use, expected in (
                ("WRITE TOPIC", lambda: bob.write("w"), "TopicAuthorizationException"),
                ("READ TOPIC", bob.read, "TopicAuthorizationException"),
                ("READ GROUP", bob.commit, "GroupAuthorizationException"),
            ):
                revoke(what)
                with pytest.raises(Py4JJavaError) as caught:
                    use()
                assert f"{expected}: Not authorized to access" in causes(caught.value)


def test_the_command_line_tools_write_read_and_list_over_tls_as_a_user(secured: Secured) -> None:
    secured.tool(f"{_TOOLS}.ConsoleProducer", "--topic", "tools", lines="a\nb\n")
    read = ("--topic", "tools", "--from-beginning", "--max-messages", "2")
    assert secured.tool(f"{_TOOLS}.consumer.ConsoleConsumer", *read).split() == ["a", "b"]
    assert "tools" in secured.tool(f"{_TOOLS}.TopicCommand", "--list").split()


def test_kafka_acls_adds_lists_and_deletes(secured: Secured) -> None:
    def acls(*arguments: str) -> list[tuple[str, ...]]:
        shown = secured.tool(f"{_TOOLS}.AclCommand", *arguments)
        return re.findall(r"\(principal=(\S+), host=\S+, operation=(\w+), permissionType=(\w+)\)", shown)

    orders = ("--topic", "orders-", "--resource-pattern-type", "prefixed")
    added = acls("--add", "--allow-principal", "User:carol", "--producer", *orders)
    expected = {("User:carol", operation, "ALLOW") for operation in ("WRITE", "DESCRIBE", "CREATE")}
    assert set(added) == expected
    acls("--add", "--deny-principal", "User:dave", "--deny-host", "10.0.0.1", "--operation", "Read", *orders)
    assert set(acls("--list", *orders)) == {*expected, ("User:dave", "READ", "DENY")}
    acls("--remove", "--force", "--allow-principal", "User:carol", "--producer", *orders)
    assert acls("--list", *orders) == [("User:dave", "READ", "DENY")]


def test_kafka_configs_changes_quotas_and_users(secured: Secured) -> None:
    def configs(*arguments: str) -> str:
        return secured.tool("kafka.admin.ConfigCommand", *arguments)

    quota = (
        "--entity-type",
        "users",
        "--entity-name",
        "carol",
        "--entity-type",
        "clients",
        "--entity-default",
    )
    configs("--alter", *quota, "--add-config", "producer_byte_rate=1024,request_percentage=50")
    shown = configs("--describe", *quota)
    assert "producer_byte_rate=1024.0" in shown
    assert "request_percentage=50.0" in shown
    configs("--alter", *quota, "--delete-config", "producer_byte_rate,request_percentage")
    assert not secured.running.broker.services.quotas.all
    user = ("--entity-type", "users", "--entity-name", "carol")
    configs("--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=carol-secret]")
    assert "SCRAM-SHA-256=iterations=8192" in configs("--describe", *user)
    verify = secured.running.broker.services.users.verify_password
    assert secured.running.run(verify("carol", "carol-secret"))
    configs("--alter", *user, "--delete-config", "SCRAM-SHA-256")
    assert "carol" not in secured.running.broker.services.users.names()


def test_the_java_client_authenticates_again_and_loses_nothing(secured: Secured) -> None:
    amount = ("--topic", "again", "--max-messages", "5000", "--throughput", "1000")
    way = {"listener": "AGAIN", "mechanism": "SCRAM-SHA-256"}
    assert '"sent":5000,"acked":5000' in secured.tool(f"{_TOOLS}.VerifiableProducer", *amount, **way)
    counts = secured.running.broker.metrics.render().decode()
    name = "kafka_server_socketservermetrics_successful_reauthentication_total"
    assert f'{name}{{listener="AGAIN",mechanism="SCRAM-SHA-256"}}' in counts
