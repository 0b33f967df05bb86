"""CreateAcls, DescribeAcls, DeleteAcls, and effects of ACLs that the matrix of permissions does not show."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.handlers.conftest import Asker, fetch_request, make_batch
from tests.unit.broker.handlers.transactional import TransactionalClient, transactional_batch
from tests.unit.broker.observability.test_metrics import value
from tests.waiting import until
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.handlers.connection_state import Principal
from tidelog.broker.handlers.context import CloseConnection
from tidelog.broker.security import acls as acls_module
from tidelog.broker.security.authorizer import operations
from tidelog.protocol.acls import Acl, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Awaitable[Asker]]
SECURED = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:admin; User:operator"}
ALL_ACLS: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def entry(
    operation: Operation,
    name: str = "t",
    kind: ResourceType = ResourceType.TOPIC,
    *,
    pattern: int = PatternType.LITERAL,
    permission: int = Permission.ALLOW,
    **more: Any,
) -> dict[str, Any]:
    """One creation of a CreateAcls request."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:alice",
        "host": "*",
        "operation": operation,
        "permission_type": permission,
        **more,
    }


@contextmanager
def acting_as(asker: Asker, name: str) -> Iterator[None]:
    before = asker.connection.principal
    asker.connection.principal = Principal("User", name)
    yield
    asker.connection.principal = before


async def create(asker: Asker, *entries: dict[str, Any], version: int = 3) -> list[Any]:
    with acting_as(asker, "admin"):
        return list((await asker.ask(ApiKey.CREATE_ACLS, version, creations=list(entries))).results)


async def delete(asker: Asker, *filters: dict[str, Any], version: int = 3) -> list[Any]:
    with acting_as(asker, "admin"):
        return list((await asker.ask(ApiKey.DELETE_ACLS, version, filters=list(filters))).filter_results)


async def described(asker: Asker, version: int = 3, **wanted: Any) -> list[Any]:
    with acting_as(asker, "admin"):
        answer = await asker.ask(ApiKey.DESCRIBE_ACLS, version, **{**ALL_ACLS, **wanted})
    return [
        (found.resource_type, found.resource_name, found.pattern_type, acl.principal, acl.host, acl.operation)
        for found in answer.resources
        for acl in found.acls
    ]


@pytest.fixture
async def secured(open_asker: Open) -> Asker:
    """A broker with an authorizer, asked by Alice, who may do nothing yet."""
    asker = await open_asker(**SECURED)
    with acting_as(asker, "admin"):
        await asker.create("t")
    asker.connection.principal = Principal("User", "alice")
    return asker


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_acls_are_created_described_and_deleted_in_every_version(secured: Asker, version: int) -> None:
    entries = [
        entry(Operation.READ),
        entry(Operation.READ, "logs-", pattern=PatternType.PREFIXED),
        entry(Operation.ALL, "*", ResourceType.GROUP, host="10.0.0.1"),
    ]
    assert [result.error_code for result in await create(secured, *entries, version=version)] == [0, 0, 0]
    found = await described(secured, version)
    assert found == [
        (2, "t", 3, "User:alice", "*", 3),
        (2, "logs-", 4, "User:alice", "*", 3),
        (3, "*", 3, "User:alice", "10.0.0.1", 2),
    ]
    one_type = {**ALL_ACLS, "resource_type_filter": 2}
    (deleted,) = await delete(secured, one_type, version=version)
    assert [acl.resource_name for acl in deleted.matching_acls] == ["t", "logs-"]
    assert await described(secured, version) == found[2:]


SELECTED: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"logs", "logs-1", "log", "*"}),
    ({"resource_name_filter": "logs-1"}, {"logs-1"}),
    (
        {"resource_name_filter": "logs-1", "pattern_type_filter": PatternType.MATCH},
        {"logs-1", "log", "*"},
    ),
    ({"resource_name_filter": "log", "pattern_type_filter": PatternType.LITERAL}, set()),
    ({"pattern_type_filter": PatternType.PREFIXED}, {"log"}),
    ({"principal_filter": "User:bob"}, set()),
    ({"host_filter": "*"}, {"logs", "logs-1", "log", "*"}),
    ({"operation": Operation.WRITE}, {"logs"}),
    ({"permission_type": Permission.DENY}, set()),
    ({"resource_type_filter": ResourceType.DELEGATION_TOKEN}, set()),
]


async def test_a_filter_selects_as_kafkas_does(secured: Asker) -> None:
    await create(
        secured,
        entry(Operation.WRITE, "logs"),
        entry(Operation.READ, "logs-1"),
        entry(Operation.READ, "log", pattern=PatternType.PREFIXED),
        entry(Operation.READ, "*"),
    )
    for wanted, expected in SELECTED:
        assert {found[1] for found in await described(secured, **wanted)} == expected, wanted


WRONG: list[dict[str, Any]] = [
    {"resource_type": 1},
    {"resource_type": 6},
    {"resource_type": 7},
    {"resource_type": 99},
    {"resource_pattern_type": 1},
    {"resource_pattern_type": 2},
    {"operation": 1},
    {"operation": 0},
    {"permission_type": 1},
    {"permission_type": 9},
    {"resource_name": ""},
    {"resource_type": 4, "resource_name": "cluster"},
    {"principal": "alice"},
    {"principal": "User:"},
    {"host": ""},
    {"resource_name": "x" * 1001},
]


async def test_an_acl_that_cannot_be_is_refused_alone_with_a_reason(secured: Asker) -> None:
    bad = [{**entry(Operation.READ), **wrong} for wrong in WRONG]
    *refused, good = await create(secured, *bad, entry(Operation.WRITE))
    assert {result.error_code for result in refused} == {ErrorCode.INVALID_REQUEST}
    assert len({result.error_message for result in refused}) == len(WRONG)
    assert good.error_code == 0
    assert [found[5] for found in await described(secured)] == [Operation.WRITE]


async def test_a_filter_that_cannot_be_is_refused_alone(secured: Asker) -> None:
    await create(secured, entry(Operation.READ))
    bad, good = await delete(secured, {**ALL_ACLS, "operation": 99}, ALL_ACLS)
    assert (bad.error_code, len(bad.matching_acls)) == (ErrorCode.INVALID_REQUEST, 0)
    assert (good.error_code, len(good.matching_acls)) == (0, 1)
    with acting_as(secured, "admin"), pytest.raises(ApiError) as refused:
        await secured.ask(ApiKey.DESCRIBE_ACLS, 3, **{**ALL_ACLS, "pattern_type_filter": 0})
    assert refused.value.code == ErrorCode.INVALID_REQUEST


async def test_an_acl_that_exists_is_created_again_without_effect(secured: Asker) -> None:
    await create(secured, entry(Operation.READ))
    revision = secured.services.catalog.revision
    results = await create(secured, entry(Operation.READ), entry(Operation.READ))
    assert [result.error_code for result in results] == [0, 0]
    assert secured.services.catalog.revision == revision


async def test_one_address_has_one_acl_however_it_is_written(secured: Asker) -> None:
    await create(secured, entry(Operation.READ, host="0:0:0:0:0:0:0:1"), entry(Operation.READ, host="::1"))
    assert [found[4] for found in await described(secured)] == ["::1"]
    (deleted,) = await delete(secured, {**ALL_ACLS, "host_filter": "0:0:0:0:0:0:0:1"})
    assert len(deleted.matching_acls) == 1


async def test_too_many_acls_or_filters_are_refused(secured: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting_as(secured, "admin"), pytest.raises(ApiError, match="too many"):
        await secured.ask(ApiKey.CREATE_ACLS, 3, creations=[entry(Operation.READ)] * 10_001)
    results = await delete(secured, *[ALL_ACLS] * 101)
    assert [result.error_code for result in results] == [0] * 100 + [ErrorCode.INVALID_REQUEST]
    monkeypatch.setattr(acls_module, "MAX_ACLS", 2)
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.POLICY_VIOLATION):
        await create(secured, *(entry(Operation.READ, f"t{number}") for number in range(3)))


async def test_many_acls_are_created_and_deleted_exactly(secured: Asker) -> None:
    entries = [entry(Operation.READ, f"t{number}") for number in range(1_200)]
    await create(secured, *entries)
    exact = {"principal_filter": "User:alice", "host_filter": "*", "operation": 3, "permission_type": 3}
    names = [f"t{number}" for number in range(1_199)]
    filters = [
        {"resource_type_filter": 2, "pattern_type_filter": 3, "resource_name_filter": name, **exact}
        for name in names
    ]
    assert all(len(result.matching_acls) == 1 for result in await delete(secured, *filters))
    assert [found[1] for found in await described(secured)] == ["t1199"]


async def test_without_an_authorizer_the_apis_say_so_and_everything_is_allowed(asker: Asker) -> None:
    for key, values in (
        (ApiKey.CREATE_ACLS, {"creations": [entry(Operation.READ)]}),
        (ApiKey.DESCRIBE_ACLS, ALL_ACLS),
        (ApiKey.DELETE_ACLS, {"filters": [ALL_ACLS]}),
    ):
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.SECURITY_DISABLED):
            await asker.ask(key, 3, **values)
    await asker.create("t")
    assert (await asker.produce("t", make_batch(b"v"))).error_code == 0


async def test_acls_survive_a_restart_and_super_users_need_none(open_asker: Open) -> None:
    asker = await open_asker(**SECURED)
    with acting_as(asker, "operator"):
        await asker.create("t")
    await create(asker, entry(Operation.WRITE))
    await asker.services.close()

    again = await open_asker(**SECURED)
    with acting_as(again, "alice"):
        assert (await again.produce("t", make_batch(b"v"))).error_code == 0
    with acting_as(again, "bob"):
        refused = await again.produce("t", make_batch(b"v"))
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert refused.log_start_offset == -1


async def test_a_broker_on_which_nobody_may_create_acls_says_so(open_asker: Open) -> None:
    with capture_logs() as events:
        await open_asker(authorizer_class_name=STANDARD_AUTHORIZER)
    assert [each["event"] for each in events if "super" in each["event"]] == [
        "authorizer_without_super_users"
    ]


async def test_everyone_may_use_what_no_acl_is_about_if_so_configured(open_asker: Open) -> None:
    asker = await open_asker(**SECURED, allow_everyone_if_no_acl_found=True)
    with acting_as(asker, "alice"):
        await asker.create("t")
        assert (await asker.produce("t", make_batch(b"v"))).error_code == 0
    await create(asker, entry(Operation.READ, principal="User:bob"))
    with acting_as(asker, "alice"):
        assert (await asker.produce("t", make_batch(b"v"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_fetch_session_ends_at_a_revoked_acl_and_goes_on_at_a_new_one(secured: Asker) -> None:
    async def fetched(offset: int, session_id: int, epoch: int) -> Any:
        parts = [("t", 0, offset)] if epoch == 0 else []
        request = fetch_request(*parts, session_id=session_id, session_epoch=epoch)
        answer = secured.call(ApiKey.FETCH, 11, request)
        return answer if not isinstance(answer, Awaitable) else await answer

    await create(secured, entry(Operation.READ), entry(Operation.WRITE))
    await secured.produce("t", make_batch(b"v"))
    first = await fetched(0, 0, 0)
    ((_, (result,)),) = first.topics
    assert result.records
    await delete(secured, {**ALL_ACLS, "operation": Operation.READ})
    for epoch in (1, 2):
        refused = await fetched(0, first.session_id, epoch)
        ((_, (result,)),) = refused.topics
        assert (result.error_code, result.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ())
    await create(secured, entry(Operation.READ))
    ((_, (result,)),) = (await fetched(0, first.session_id, 3)).topics
    assert result.records


async def test_a_connection_whose_principal_changes_is_decided_anew(secured: Asker) -> None:
    await create(secured, entry(Operation.WRITE))
    assert (await secured.produce("t", make_batch(b"v"))).error_code == 0
    secured.connection.principal = Principal("User", "bob")
    assert (await secured.produce("t", make_batch(b"v"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_denied_produce_in_a_transaction_adds_no_partition_to_it(secured: Asker) -> None:
    """From version 12 on the broker adds partitions by itself (KIP-890)."""
    everything = [entry(Operation.WRITE, "x", ResourceType.TRANSACTIONAL_ID)]
    await create(secured, *everything)
    client = TransactionalClient(secured, "x", is_new=True)
    assert (await client.begin()).error_code == 0
    topics = [("t", [(0, transactional_batch(client.pair))])]
    for request_topics in (topics, [*topics, ("t2", [(0, transactional_batch(client.pair))])]):
        answer = secured.call(ApiKey.PRODUCE, 12, ProduceRequest("x", -1, 5_000, request_topics))
        answer = await answer if isinstance(answer, Awaitable) else answer
        codes = {result.error_code for _, results in answer for result in results}
        assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    held = await secured.services.transactions.describe("x")
    assert not held.partitions


@pytest.mark.parametrize("transactional_id", [None, "x"])
async def test_a_denied_produce_without_an_answer_closes_the_connection(
    secured: Asker, transactional_id: str | None
) -> None:
    topics = [("t", [(0, make_batch(b"v"))])]
    with pytest.raises(CloseConnection):
        secured.call(ApiKey.PRODUCE, 9, ProduceRequest(transactional_id, 0, 5_000, topics))
    assert secured.replica("t").log.end_offset == 0


@pytest.mark.parametrize(("version", "name"), [(11, ""), (12, None), (13, None)])
async def test_metadata_by_id_hides_the_name_of_a_topic_that_may_not_be_described(
    secured: Asker, version: int, name: str | None
) -> None:
    topic = secured.topic("t")
    by_id = [{"name": None, "topic_id": topic.topic_id}]
    (hidden,) = (await secured.ask(ApiKey.METADATA, version, topics=by_id)).topics
    refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (hidden.error_code, hidden.name, hidden.topic_id) == (refusal, name, topic.topic_id)


async def test_a_deletion_by_id_names_a_topic_only_to_whom_may_describe_it(secured: Asker) -> None:
    by_id = {"topics": [{"name": None, "topic_id": secured.topic("t").topic_id}]}
    (hidden,) = (await secured.ask(ApiKey.DELETE_TOPICS, 6, **by_id)).responses
    await create(secured, entry(Operation.DESCRIBE))
    (shown,) = (await secured.ask(ApiKey.DELETE_TOPICS, 6, **by_id)).responses
    assert (hidden.error_code, hidden.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    assert (shown.error_code, shown.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")
    await create(secured, entry(Operation.DELETE, "kafka-cluster", ResourceType.CLUSTER))
    (deleted,) = (await secured.ask(ApiKey.DELETE_TOPICS, 6, **by_id)).responses
    assert (deleted.error_code, deleted.name) == (0, "t")


async def test_authorized_operations_are_those_that_the_acls_allow(secured: Asker) -> None:
    await create(
        secured,
        entry(Operation.WRITE),
        entry(Operation.READ, "g", ResourceType.GROUP),
        entry(Operation.ALTER_CONFIGS, "kafka-cluster", ResourceType.CLUSTER),
        entry(Operation.DESCRIBE, "kafka-cluster", ResourceType.CLUSTER),
    )
    metadata = await secured.ask(
        ApiKey.METADATA,
        10,
        topics=[{"name": "t"}],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    of_topic = operations(Operation.WRITE, Operation.DESCRIBE)
    of_cluster = operations(Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
    assert metadata.topics[0].topic_authorized_operations == of_topic
    assert metadata.cluster_authorized_operations == of_cluster
    cluster = await secured.ask(ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True)
    assert cluster.cluster_authorized_operations == of_cluster
    (group,) = (
        await secured.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"], include_authorized_operations=True)
    ).groups
    assert group.authorized_operations == operations(Operation.READ, Operation.DESCRIBE)
    await secured.join_consumer_group("g", topic_names=["t"])
    (group,) = (
        await secured.ask(
            ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=True
        )
    ).groups
    assert group.authorized_operations == operations(Operation.READ, Operation.DESCRIBE)


async def test_a_regular_expression_follows_what_the_member_may_describe(secured: Asker) -> None:
    """Also while no member sends a new one: after a change of topics or ACLs, and after a restart."""
    readable = entry(Operation.READ, "logs-", pattern=PatternType.PREFIXED)
    await create(secured, entry(Operation.READ, "g", ResourceType.GROUP), readable)
    with acting_as(secured, "admin"):
        for name in ("logs-a", "other-logs"):
            await secured.create(name)
    await secured.join_consumer_group("g", subscribed_topic_regex=".*logs.*")

    def matched() -> frozenset[str]:
        (group,) = [
            group
            for machine in secured.services.groups.machines()
            if (group := machine.groups.consumer.get("g")) is not None
        ]
        return group.regexes[".*logs.*"].topics

    assert matched() == {"logs-a"}
    with acting_as(secured, "admin"):
        await secured.create("logs-b")
        await secured.create("more-logs")
    await until(lambda: matched() == {"logs-a", "logs-b"})
    await create(secured, entry(Operation.READ, "other-logs"))
    await until(lambda: matched() == {"logs-a", "logs-b", "other-logs"})
    await delete(secured, {**ALL_ACLS, "resource_name_filter": "logs-"})
    await until(lambda: matched() == {"other-logs"})


async def test_a_refusal_is_counted_and_logged_with_who_asked_for_what(secured: Asker) -> None:
    with capture_logs() as events:
        await secured.produce("t", make_batch(b"v"))
    (event,) = [each for each in events if each["event"] == "access_denied"]
    assert (event["principal"], event["api"], event["resource"]) == ("User:alice", "Produce", "t")
    assert (event["operation"], event["resource_type"]) == ("WRITE", "TOPIC")
    labels = {"operation": "WRITE", "resource_type": "TOPIC"}
    assert value(secured.services.metrics, "tidelog_access_denied_total", **labels) == 1


async def test_what_is_only_left_out_of_an_answer_is_no_refusal(secured: Asker) -> None:
    with capture_logs() as events:
        assert not (await secured.ask(ApiKey.METADATA, 9, topics=None)).topics
    assert not [each for each in events if each["event"] == "access_denied"]


async def test_a_topic_is_auto_created_only_for_whom_may_create_it(secured: Asker) -> None:
    await create(secured, entry(Operation.DESCRIBE, "new-", pattern=PatternType.PREFIXED))
    wanted = {"topics": [{"name": "new-1"}], "allow_auto_topic_creation": True}
    (topic,) = (await secured.ask(ApiKey.METADATA, 9, **wanted)).topics
    assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert secured.services.catalog.topic("new-1") is None


def test_an_acl_has_the_numbers_of_the_wire() -> None:
    acl = Acl(
        ResourceType.USER,
        PatternType.LITERAL,
        "u",
        "User:a",
        "*",
        Operation.TWO_PHASE_COMMIT,
        Permission.DENY,
    )
    assert tuple(map(int, (acl[0], acl[1], acl[5], acl[6]))) == (7, 3, 15, 2)
