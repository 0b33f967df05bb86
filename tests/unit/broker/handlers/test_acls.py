"""CreateAcls, DescribeAcls, DeleteAcls, and effects of ACLs that the matrix of permissions does not show."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.handlers.conftest import Asker, fetch_request, make_batch
from tests.unit.broker.observability.test_metrics import value
from tests.waiting import until
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.handlers.connection_state import Principal
from tidelog.broker.handlers.context import CloseConnection
from tidelog.broker.security import acls as acls_module
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


async def test_a_broker_on_which_nobody_may_create_acls_says_so(open_asker: Open) -> None:
    with capture_logs() as events:
        await open_asker(authorizer_class_name=STANDARD_AUTHORIZER)
    assert [each["event"] for each in events if "super" in each["event"]] == [
        "authorizer_without_super_users"
    ]


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


@pytest.mark.parametrize("transactional_id", [None, "x"])
async def test_a_denied_produce_without_an_answer_closes_the_connection(
    secured: Asker, transactional_id: str | None
) -> None:
    topics = [("t", [(0, make_batch(b"v"))])]
    with pytest.raises(CloseConnection):
        secured.call(ApiKey.PRODUCE, 9, ProduceRequest(transactional_id, 0, 5_000, topics))
    assert secured.replica("t").log.end_offset == 0


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
