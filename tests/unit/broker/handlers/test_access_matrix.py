"""Each permission that an API needs: without it a request is refused and changes and shows nothing.

With exactly what the table of required access says, it is served. Bytes in, bytes out, through dispatch.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.message_texts import found_in
from tests.unit.broker.conftest import Clock
from tests.unit.broker.handlers.access_world import ALICE, CASES, Case, Client, Names, World
from tests.unit.broker.handlers.transactional import transactional_batch
from tests.unit.broker.net.peers import request_frame
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.coordinator import group_coordinator
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.security.required_access import Effect, Right
from tidelog.broker.served_apis import SERVED_APIS, build_handlers
from tidelog.protocol.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    patch = pytest.MonkeyPatch()
    # Groups of earlier cases would follow changed topics and permissions, and write that.
    patch.setattr(group_coordinator, "REFRESH_PAUSE_SECONDS", 3_600)
    config = BrokerConfig(
        data_dir=tmp_path_factory.mktemp("data"),
        group_initial_rebalance_delay_ms=0,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:admin",
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        share_coordinator_state_topic_num_partitions=1,
        transaction_two_phase_commit_enable=True,
    )
    services = await open_services(config, Metrics(), Clock())
    dispatcher = Dispatcher(build_handlers(services), services.metrics, services.events, services.turns)
    made = World(services, Client(dispatcher, "admin"), Client(dispatcher, "alice"))
    await made.admin.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["x"]})
    yield made
    await services.close()
    patch.undo()


def acl(case: Case, names: Names, right: Right, permission: Permission = Permission.ALLOW) -> Acl:
    kind = right.resource_type
    of_kind = {
        ResourceType.TOPIC: names[case.words.get("about", "topic")],
        ResourceType.GROUP: names["consumers" if "join" in case.before else "group"],
        ResourceType.TRANSACTIONAL_ID: names["transaction"],
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    return Acl(kind, PatternType.LITERAL, of_kind[kind], ALICE, "*", right.operation, permission)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_without_one_permission_a_request_is_refused_and_with_exactly_all_it_is_served(
    world: World, case: Case
) -> None:
    names = await world.make(*case.before)
    needs = case.rows
    for need in needs:
        allowed = [acl(case, names, other.rights[0]) for other in needs if other is not need]
        # Denied, because what another need allows may imply it.
        denied = [acl(case, names, right, Permission.DENY) for right in need.rights]
        denied = [each for each in denied if each._replace(permission=Permission.ALLOW) not in allowed]
        world.allow(*allowed, *denied)
        before = world.state()
        body, answer = await world.alice.ask(case.key, case.version, case.values(names))
        if need.effect is Effect.LEFT_OUT:
            assert case.shows(names, body, answer) is False, f"{need} is not needed"
            continue
        assert need.refusal in found_in(answer, "error_code"), f"{need} is not needed: {answer}"
        after = world.state()
        assert after == before, f"a request without {need} changed something"
        assert not case.shows(names, body, answer), f"a request without {need} shows something"
        named = FIELDS.get(need.rights[-1].resource_type)
        if named is not None and ("tells-existence" not in case.words or named != "topic"):
            await assert_existence_is_hidden(world, case, names, named, body)
    for served, right in [(need, right) for need in needs for right in need.rights]:
        names = await world.make(*case.before)
        others = [other.rights[0] for other in needs if other is not served]
        world.allow(*(acl(case, names, each) for each in [*others, right]))
        await assert_served(world, case, names)
    if not needs:
        await assert_served(world, case, names)
    world.allow()


async def assert_served(world: World, case: Case, names: Names) -> None:
    """With the ACLs that hold now the request is served, and shows all of its answer."""
    body, answer = await world.alice.ask(case.key, case.version, case.values(names))
    refused = set(found_in(answer, "error_code")) - case.tolerated
    assert not refused, f"with {world.allowed} the answer is {answer}"
    assert case.shows(names, body, answer) is not False, f"with {world.allowed} the answer is {answer}"


K = ApiKey
FIELDS = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transaction",
}


async def assert_existence_is_hidden(world: World, case: Case, names: Names, named: str, body: bytes) -> None:
    """The refusal of a topic, group or transactional id that does not exist has the same bytes."""
    present = names[named]
    nothing = f"{'x' * (len(present) - 4)}{present[-4:]}"
    absent = {
        name: each.replace(present, nothing) if isinstance(each, str) else each
        for name, each in names.items()
    }
    world.allow(
        *(each._replace(resource_name=each.resource_name.replace(present, nothing)) for each in world.allowed)
    )
    other, _ = await world.alice.ask(case.key, case.version, case.values(absent))
    assert other.replace(nothing.encode(), present.encode()) == body


NOT_SHOWN_ALONE = {(K.DELETE_TOPICS, 1)}
"""Needs that only add to what another need allows: `test_acls` shows them."""


def test_every_need_of_every_served_api_is_in_the_matrix() -> None:
    expected = {(key, index) for key, api in SERVED_APIS.items() for index in range(len(api.needs))}
    tested = {(case.key, index) for case in CASES for index in case.needs}
    assert expected - tested == NOT_SHOWN_ALONE
    without_route = {K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE}
    assert set(SERVED_APIS) - {case.key for case in CASES} == without_route


@pytest.mark.asyncio(loop_scope="module")
async def test_a_user_who_may_only_write_to_a_topic_writes_into_no_transaction_of_others(
    world: World,
) -> None:
    names = await world.make("begin")
    producer = Producer(names["producer_id"], names["producer_epoch"])
    plain, _, transactional = (case for case in CASES if case.key is K.PRODUCE)
    batch = {"records": transactional_batch(producer)}
    await world.admin.ask(K.PRODUCE, 9, transactional.values({**names, **batch}))
    write = Acl(
        ResourceType.TOPIC, PatternType.LITERAL, names["topic"], ALICE, "*", Operation.WRITE, Permission.ALLOW
    )
    world.allow(write)
    forged = plain.values({**names, "records": transactional_batch(producer, 1)})
    for _ in range(2):
        _, answer = await world.alice.ask(K.PRODUCE, 9, forged)
        assert found_in(answer, "error_code") == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        _, answer = await world.alice.ask(K.PRODUCE, 9, plain.values(names))
    for _ in range(2):  # So that a stream begins.
        await world.alice.ask(K.PRODUCE, 9, plain.values(names))
    assert world.alice.stream is not None
    frame = request_frame(K.PRODUCE, 9, forged, 1)
    assert world.alice.stream.serve([memoryview(frame)[4:]], 0.0) is None
    world.allow()


@pytest.mark.asyncio(loop_scope="module")
async def test_no_answer_about_a_topic_that_may_not_be_seen_waits_for_its_disk(world: World) -> None:
    names = await world.make()
    for key in (K.LIST_OFFSETS, K.OFFSET_FOR_LEADER_EPOCH):
        (case,) = (case for case in CASES if case.key is key)
        for client, waits in ((world.admin, True), (world.alice, False)):
            await world.admin.ask(K.PRODUCE, 9, {**CASES[0].values(names), "acks": 1})
            await client.ask(key, case.version, case.values(names))
            assert client.has_waited is waits
