"""Kafka's own client and command line tools in Java at a secure broker, as `make frameworks` runs them.

They are not in `make test`, because they come from Maven Central. Their properties are those of
docs/security.md.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.frameworks.java import fetch_jars
from tests.frameworks.java_client import JavaClient, causes, jvm_with_kafka
from tests.frameworks.secure_broker import MECHANISMS, USER, Secured, secure_broker

_TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    fetch_jars()
    with secure_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module")
def jvm(secured: Secured) -> Iterator[Any]:
    with jvm_with_kafka(secured.allowed_tokens) as packages:
        yield packages


WAYS = [
    {"listener": "TLS"},
    {"listener": "MUTUAL"},
    *(
        {"listener": listener, "mechanism": mechanism}
        for mechanism in MECHANISMS
        for listener in ("SASL_SSL", "SASL_PLAINTEXT")
    ),
    {"listener": "SASL_SSL", "mechanism": "OAUTHBEARER", "token": "of the provider"},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: ", ".join(way.values()))
def test_the_java_client_administers_writes_and_reads(
    secured: Secured, jvm: Any, way: dict[str, str]
) -> None:
    topic = re.sub(r"\W", "-", "-".join(way.values()))
    with JavaClient(jvm, secured.properties(**way), topic) as client:
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
    "no token for a stranger": (
        {"listener": "SASL_SSL", "mechanism": "OAUTHBEARER", "token": "of a stranger"},
        "KafkaException: (?s:.*)LoginException",
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
            assert operations(jvm, bob.admin, topic) == {"READ", "WRITE", "DESCRIBE"}
            for what, use, expected in (
                ("WRITE TOPIC", lambda: bob.write("w"), "TopicAuthorizationException"),
                ("READ TOPIC", bob.read, "TopicAuthorizationException"),
                ("READ GROUP", bob.commit, "GroupAuthorizationException"),
            ):
                revoke(what)
                with pytest.raises(Py4JJavaError) as caught:
                    use()
                assert f"{expected}: Not authorized to access" in causes(caught.value)


def operations(jvm: Any, admin: Any, topic: str) -> set[str]:
    """What the broker says that the user of this admin may do with a topic."""
    options = jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions().includeAuthorizedOperations(True)
    described = admin.describeTopics([topic], options).allTopicNames().get()[topic]
    return {each.toString() for each in described.authorizedOperations()}


def test_a_transactional_id_needs_a_permission(secured: Secured, jvm: Any) -> None:
    bob = secured.properties("SASL_SSL", "SCRAM-SHA-512", user="bob") | {"transactional.id": "orders"}
    with JavaClient(jvm, bob, "transactions") as client, pytest.raises(Py4JJavaError) as caught:
        client.producer.initTransactions()
    assert "TransactionalIdAuthorizationException" in causes(caught.value)


def test_the_java_client_learns_how_long_a_quota_holds_it_back(secured: Secured, jvm: Any) -> None:
    quota, name = jvm.org.apache.kafka.common.quota, "producer_byte_rate"
    entity, change = quota.ClientQuotaEntity({"user": USER}), getattr(quota, "ClientQuotaAlteration$Op")

    def limit(value: float | None) -> None:
        asked = [quota.ClientQuotaAlteration(entity, [change(name, value)])]
        client.admin.alterClientQuotas(asked).all().get()

    with JavaClient(jvm, secured.properties("SASL_SSL", "SCRAM-SHA-512"), "throttled") as client:
        limit(10_000.0)
        # Ten seconds of the quota may be used at once.
        client.write("v" * 120_000)
        limit(None)
        metrics = client.producer.metrics().values()
        (held_back_ms,) = (
            each.metricValue() for each in metrics if each.metricName().name() == "produce-throttle-time-max"
        )
    assert 500 < held_back_ms < 5_000


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
        return secured.tool("org.apache.kafka.tools.ConfigCommand", *arguments)

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
    name = "kafka_server_socketservermetrics_successful_reauthentication_total"
    counted = f'{name}{{listener="AGAIN",mechanism="SCRAM-SHA-256"}}'
    # A client that comes too late, because the machine is busy, opens another connection instead.
    while counted not in secured.running.broker.metrics.render().decode():
        assert '"sent":5000,"acked":5000' in secured.tool(f"{_TOOLS}.VerifiableProducer", *amount, **way)
