"""Several brokers with security: each authenticates to the others, and what an administrator changes holds at
all of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.certificates import Certificates
from tests.several.brokers import Brokers, brokers
from tests.several.test_coordinators import PARTITIONS, coordinated_by
from tests.several.test_transactions import is_open
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.app import Broker, StartError
from tidelog.broker.cluster.catalog import NOBODY, TRANSACTIONS_TOPIC
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.console.others import Others
from tidelog.broker.console.routes import ROUTES
from tidelog.broker.handlers.acls import AclsHandler
from tidelog.broker.peers.connections import ASKED_APIS
from tidelog.broker.security.broker_user import BROKER_USER, broker_password
from tidelog.broker.security.unknown_users import STRONGEST
from tidelog.broker.security.users import check_name
from tidelog.client import (
    Admin,
    ClientError,
    ClusterConfig,
    NewTopic,
    Producer,
    TopicAuthorizationFailedError,
)
from tidelog.protocol.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.scram import ScramMechanism, credential_of, salted_password
from tidelog.wire.opening import open_connection

PASSWORD = "secret"
MECHANISM = ScramMechanism.SCRAM_SHA_256
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER_OF_BROKERS = f'{MODULE} required username="broker" password="{PASSWORD}";'
AUTHORIZED = {
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:admin;User:broker",
    "listeners": ("CLIENTS", "BROKERS"),
    "inter_broker_listener_name": "BROKERS",
}
BY_PASSWORD = {
    **AUTHORIZED,
    "listener_security_protocol_map": ("CLIENTS:SASL_PLAINTEXT", "BROKERS:SASL_PLAINTEXT"),
    "sasl_enabled_mechanisms": (MECHANISM.sasl_name,),
    "sasl_mechanism_inter_broker_protocol": MECHANISM.sasl_name,
    "listener_overrides": {"listener.name.brokers.scram.sha.256.sasl.jaas.config": USER_OF_BROKERS},
}
ADMIN, ALICE = "admin", "alice"
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def by_certificate(certificates: Certificates) -> dict[str, Any]:
    """Brokers present their certificates to each other; clients have passwords."""
    return {
        **AUTHORIZED,
        "listener_security_protocol_map": ("CLIENTS:SASL_PLAINTEXT", "BROKERS:SSL"),
        "sasl_enabled_mechanisms": (MECHANISM.sasl_name,),
        "listener_overrides": {
            "listener.name.brokers.ssl.keystore.location": certificates.keystore,
            "listener.name.brokers.ssl.truststore.location": certificates.authority,
            "listener.name.brokers.ssl.client.auth": "required",
            "listener.name.brokers.ssl.principal.mapping.rules": "RULE:^.+$/broker/",
        },
    }


def as_user(cluster: Brokers, user: str) -> ClusterConfig:
    return ClusterConfig(
        cluster.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=MECHANISM.sasl_name,
        sasl_plain_username=user,
        sasl_plain_password=PASSWORD,
        retry_backoff_ms=10,
    )


async def with_users(cluster: Brokers) -> None:
    """Each user is made at another broker."""
    salted = salted_password(MECHANISM, PASSWORD, b"salt", 4096)
    made = {MECHANISM: credential_of(MECHANISM, salted, b"salt", 4096)}
    for node_id, user in enumerate((ADMIN, ALICE, "broker"), start=1):
        await cluster[node_id].services.users.change(user, made)
    await cluster.agreed()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, **BY_PASSWORD) as running:
        await with_users(running)
        yield running


async def write_in_transactions(cluster: Brokers) -> None:
    async with Admin(cluster=as_user(cluster, ADMIN)) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS, 1, {})])
    await cluster[1].services.transactions.make_topic()
    await cluster.agreed()
    for coordinator in (1, 2, 3):
        name = coordinated_by(cluster, coordinator, TRANSACTIONS_TOPIC)
        async with (
            Producer(cluster=as_user(cluster, ADMIN), transactional_id=name) as producer,
            producer.transaction(),
            asyncio.timeout(DEADLINE_SECONDS),
        ):
            for index in range(PARTITIONS):
                await producer.send("t", b"v", partition=index)
    await until(lambda: not any(is_open(cluster, "t", index) for index in range(PARTITIONS)))


async def test_brokers_authenticate_to_each_other_by_password(cluster: Brokers) -> None:
    await write_in_transactions(cluster)


async def test_brokers_authenticate_to_each_other_by_certificate(tmp_path: Path) -> None:
    async with brokers(tmp_path, **by_certificate(Certificates(tmp_path))) as running:
        await with_users(running)
        await write_in_transactions(running)


async def test_a_broker_whose_user_may_not_act_for_the_cluster_gets_no_answers_until_it_may(
    tmp_path: Path,
) -> None:
    settings = {**BY_PASSWORD, "super_users": "User:admin"}
    async with brokers(tmp_path, **settings) as cluster:
        await with_users(cluster)
        async with Admin(cluster=as_user(cluster, ADMIN)) as admin:
            await admin.create_topics([NewTopic("t", PARTITIONS, 1, {})])
        await cluster[1].services.transactions.make_topic()
        await cluster.agreed()
        name = coordinated_by(cluster, 1, TRANSACTIONS_TOPIC)
        elsewhere = next(index for index in range(PARTITIONS) if cluster.leader_of("t", index) == 2)
        right = Acl(
            ResourceType.CLUSTER,
            PatternType.LITERAL,
            CLUSTER_NAME,
            "User:broker",
            "*",
            Operation.CLUSTER_ACTION,
            Permission.ALLOW,
        )
        async with Producer(cluster=as_user(cluster, ADMIN), transactional_id=name) as producer:
            with capture_logs() as events:
                await producer.begin_transaction()
                sent = await producer.send("t", b"v", partition=elsewhere)
                await until(lambda: "broker_not_authorized" in {each["event"] for each in events})
            assert not sent.done()
            await cluster[3].services.acls.create([right])
            await sent
            await producer.commit_transaction()
        await until(lambda: not is_open(cluster, "t", elsewhere))
        await _it_is_no_super_user_in_the_console_either(cluster)


async def _it_is_no_super_user_in_the_console_either(cluster: Brokers) -> None:
    visitor: Any = SimpleNamespace(user=ADMIN, host="127.0.0.1")
    (own,) = (each for each in ROUTES if each.path == "/api/v1/broker")
    with capture_logs() as events, pytest.raises(ApiError) as refused:
        await Others(cluster[1].services).ask(2, visitor, own, own.parameters())
    assert refused.value.code == ErrorCode.NETWORK_EXCEPTION
    (event,) = (each for each in events if each["event"] == "broker_not_authorized")
    assert "super.users" in event["advice"]


async def test_brokers_need_no_user_of_their_own(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    settings = {
        **BY_PASSWORD,
        "listener_security_protocol_map": ("CLIENTS:SASL_PLAINTEXT", "BROKERS:SASL_SSL"),
        "listener_overrides": {"listener.name.brokers.ssl.keystore.location": certificates.keystore},
        "super_users": "User:admin",
    }
    async with brokers(tmp_path, **settings) as running:
        await with_users(running)
        await write_in_transactions(running)


async def test_no_other_user_has_the_name_of_the_brokers(tmp_path: Path) -> None:
    settings = {**BY_PASSWORD, "listener_overrides": {}, "super_users": "User:admin"}
    async with brokers(tmp_path, (1,), **settings) as running:
        services = running[1].services
        secret = services.catalog.users[NOBODY][STRONGEST]
        with pytest.raises(ApiError) as refused:
            check_name(BROKER_USER)
        assert refused.value.code == ErrorCode.UNACCEPTABLE_CREDENTIAL
        for listener, password, is_admitted in (
            ("BROKERS", broker_password(secret), True),
            ("BROKERS", PASSWORD, False),
            ("CLIENTS", broker_password(secret), False),
        ):
            config = ClusterConfig(
                f"127.0.0.1:{running[1].ports[listener]}",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism=MECHANISM.sasl_name,
                sasl_plain_username=BROKER_USER,
                sasl_plain_password=password,
            )
            client = Admin(cluster=config)
            if not is_admitted:
                with pytest.raises(ClientError, match="credentials"):
                    await client.start()
                continue
            async with client:
                await client.create_topics([NewTopic("t", 1, 1, {})])


async def test_settings_that_do_not_say_who_a_broker_is_are_refused_at_the_start(tmp_path: Path) -> None:
    settings = {**BY_PASSWORD, "listener_overrides": {}, "sasl_enabled_mechanisms": ("PLAIN",)}
    with pytest.raises(StartError, match=r"sasl\.jaas\.config"):
        async with brokers(tmp_path, (1,), **settings):
            pass
    listeners = {"listeners": ("A://127.0.0.1:0",), "listener_security_protocol_map": ("A:SASL_PLAINTEXT",)}
    alone = {**listeners, "sasl_enabled_mechanisms": ("PLAIN",)}
    async with await Broker.start(BrokerConfig(data_dir=tmp_path / "one", http_port=-1, **alone)):
        pass  # Alone it needs no user.


async def ask_as(cluster: Brokers, client: str, route: str, **fields: Any) -> tuple[int, bytes]:
    """The code and the answer of AskConsole at broker 2, from a client with this password."""
    method, path = route.split()
    asked = {"host": "127.0.0.1", "method": method, "path": path, "parameters": b"{}", **fields}
    address = ("127.0.0.1", cluster[2].ports["CLIENTS"])
    connection = await open_connection(
        *address, as_user(cluster, client), ASKED_APIS, on_close=lambda *_: None
    )
    try:
        answer = await connection.call(ApiKey.ASK_CONSOLE, asked)
        return answer.error_code, bytes(answer.answer)
    finally:
        connection.close()


async def test_a_client_that_may_act_for_the_cluster_is_no_other_user_in_the_console(
    cluster: Brokers,
) -> None:
    right = Acl(
        ResourceType.CLUSTER,
        PatternType.LITERAL,
        CLUSTER_NAME,
        f"User:{ALICE}",
        "*",
        Operation.CLUSTER_ACTION,
        Permission.ALLOW,
    )
    await cluster[1].services.acls.create([right])
    await cluster.agreed()
    made = json.dumps({"name": "eve", "password": "eve-secret"}).encode()
    as_admin = {"user": ADMIN, "parameters": made}
    assert (await ask_as(cluster, ALICE, "PUT /api/v1/users", **as_admin))[0] == REFUSED
    assert (await ask_as(cluster, ALICE, "GET /api/v1/users", user=ADMIN))[0] == REFUSED
    assert "eve" not in cluster[2].services.users.names()
    # As itself it has its own rights.
    assert (await ask_as(cluster, ALICE, "GET /api/v1/broker", user=ALICE))[0] == ErrorCode.NONE
    assert (await ask_as(cluster, ALICE, "PUT /api/v1/users", user=ALICE, parameters=made))[0] == REFUSED
    with capture_logs() as events:
        # A super user may name the visitor, who needs the rights all the same; changes are logged.
        refused = await ask_as(cluster, ADMIN, "PUT /api/v1/users", user=ALICE, parameters=made)
        assert refused[0] == REFUSED
        assert (await ask_as(cluster, ADMIN, "PUT /api/v1/users", user=ADMIN, parameters=made))[0] == 0
    changes = [each for each in events if each["event"] == "console_change"]
    assert [(each["user"], each["asked_by"], each["code"]) for each in changes] == [
        (ALICE, f"User:{ADMIN}", REFUSED.name),
        (ADMIN, f"User:{ADMIN}", "NONE"),
    ]
    assert changes[-1]["parameters"]["name"] == "eve"
    assert "eve-secret" not in str(events)


async def test_an_acl_that_is_deleted_at_one_broker_holds_at_no_other(cluster: Brokers) -> None:
    async with Admin(cluster=as_user(cluster, ADMIN)) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS, 1, {})])
    await cluster.agreed()
    acl = Acl(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        "t",
        "User:alice",
        "*",
        Operation.WRITE,
        Permission.ALLOW,
    )
    await cluster[1].services.acls.create([acl])
    await cluster.agreed()
    async with Producer(cluster=as_user(cluster, ALICE)) as producer:
        for index in range(PARTITIONS):
            await producer.send_and_wait("t", b"v", partition=index)
        await cluster[2].services.acls.delete([acl])
        await cluster.agreed()
        for index in range(PARTITIONS):
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("t", b"v", partition=index)
    # A broker that has not heard of an ACL deletes it all the same.
    member, acls = cluster.members[3], cluster[3].services.acls
    member.hears.clear()
    await cluster[1].services.acls.create([acl])
    commits = member.commits
    every = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    kinds = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1)
    request: Any = SimpleNamespace(filters=[SimpleNamespace(**every, **kinds)])
    deleting = asyncio.create_task(AclsHandler(cluster[3].services)._delete(request))
    await until(lambda: deleting.done() or member.commits > commits)
    assert not acls.exists(acl)
    member.hears.set()
    assert len((await deleting)["filter_results"][0]["matching_acls"]) == 1
    assert not acls.exists(acl)


async def test_a_user_that_is_deleted_at_one_broker_cannot_authenticate_at_another(cluster: Brokers) -> None:
    async with Admin(cluster=as_user(cluster, ALICE)):
        pass
    await cluster[3].services.users.change(ALICE, {MECHANISM: None})
    await cluster.agreed()
    for node_id in (1, 2, 3):
        config = ClusterConfig(
            f"127.0.0.1:{cluster[node_id].ports['CLIENTS']}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=MECHANISM.sasl_name,
            sasl_plain_username=ALICE,
            sasl_plain_password=PASSWORD,
        )
        with pytest.raises(Exception, match="credentials"):
            async with Admin(cluster=config):
                pass
