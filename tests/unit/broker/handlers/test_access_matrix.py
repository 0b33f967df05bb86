"""Each permission that an API needs: without it a request is refused and changes and shows nothing.

With exactly what the table of required access says, it is served. Bytes in, bytes out, through dispatch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import pytest
import pytest_asyncio

from tests.unit.broker.handlers.conftest import LISTENER, Clock, make_batch
from tests.unit.broker.net.peers import request_frame
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.listeners import SecurityProtocol
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.handlers import build_handlers
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState, Principal
from tidelog.broker.net.dispatch import Dispatcher, Pending
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.security.required_access import REQUIRED_ACCESS, Effect, Need, Right
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.broker.services import Services, open_services
from tidelog.protocol.acls import CLUSTER_NAME, Acl, PatternType, Permission, ResourceType
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import decode_response_header
from tidelog.protocol.schema import ApiKey, decode_response

ALICE = "User:alice"
MISSING_ID = UUID(int=7)


class Client:
    """A connection as dispatch sees it."""

    def __init__(self, dispatcher: Dispatcher, name: str) -> None:
        self.state = ConnectionState(1, LISTENER, SecurityProtocol.PLAINTEXT, "10.0.0.1")
        self.state.principal = Principal("User", name)
        self.routes = dispatcher.routes_at(AuthenticationStep.NOT_REQUIRED)
        self.ready: asyncio.Queue[Pending] = asyncio.Queue()
        self._dispatcher = dispatcher

    def answer_ready(self, pending: Pending) -> None:
        self.ready.put_nowait(pending)

    def effect_taken(self, pending: Pending) -> None: ...

    def holds(self, pending: Pending, held_bytes: int) -> None: ...

    async def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> tuple[bytes, Any]:
        """The answer's body, and its values."""
        frame = request_frame(key, version, values, 99)
        answer = self._dispatcher.dispatch(self, memoryview(frame)[4:], 0.0)  # type: ignore[arg-type]
        if isinstance(answer, Pending):
            if answer.answer is None:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await self.ready.get()
            answer = answer.answer
        assert answer is not None
        data = b"".join(answer)[4:]
        _, position = decode_response_header(key, version, memoryview(data))
        return data[position:], decode_response(key, version, data[position:])


@dataclass
class World:
    """One broker with an authorizer, its administrator and Alice, who may do what a test allows."""

    services: Services
    admin: Client
    alice: Client
    allowed: tuple[Acl, ...] = ()
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 10_000)))

    def allow(self, *acls: Acl) -> None:
        """From now on these ACLs hold and no others."""
        assert self.services.acls.authorizer is not None
        self.services.acls.authorizer.change(set(acls), set(self.allowed))
        self.allowed = tuple(set(acls))

    def state(self) -> object:
        """Everything durable: the catalog's revision and the ends and starts of all logs."""
        logs = {
            key: (replica.log.end_offset, replica.log.start_offset)
            for key, replica in self.services.replicas.items()
        }
        return self.services.catalog.revision, logs, self.services.producer_ids.bound()

    async def make(self) -> Names:
        """A topic with records, a group of either protocol and a transaction, that no other test uses."""
        number = next(self.ids)
        names = Names(f"topic-{number:04d}", f"group-{number:04d}", f"transaction-{number:04d}")
        ask = self.admin.ask
        topics = [{"name": names.topic, "num_partitions": 1, "replication_factor": 1}]
        await ask(ApiKey.CREATE_TOPICS, 5, {"topics": topics})
        await ask(ApiKey.PRODUCE, 9, produce(names))
        await ask(ApiKey.OFFSET_COMMIT, 8, commit(names))
        topic = self.services.catalog.topic(names.topic)
        assert topic is not None
        return names._replace(topic_id=topic.topic_id)

    async def begin(self, names: Names) -> Names:
        """Begin a transaction on the topic."""
        _, given = await self.admin.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            {"transactional_id": names.transaction, "transaction_timeout_ms": 60_000},
        )
        names = names._replace(producer=(given.producer_id, given.producer_epoch))
        _, added = await self.admin.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add_partitions(names))
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        return names

    async def join(self, names: Names) -> Names:
        """Let a member of the consumer protocol have the topic."""
        await self.admin.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat(names, names.consumers))
        return names


class Names(NamedTuple):
    topic: str
    group: str
    transaction: str
    topic_id: UUID = MISSING_ID
    producer: tuple[int, int] = (0, 0)

    @property
    def consumers(self) -> str:
        return f"consumers-{self.group}"

    @property
    def fresh(self) -> str:
        return f"new-{self.topic}"

    @property
    def user(self) -> str:
        return f"user-{self.topic}"


Values = Callable[[Names], Mapping[str, Any]]


def produce(names: Names, transactional_id: str | None = None) -> dict[str, Any]:
    parts = [{"index": 0, "records": make_batch(b"v")}]
    topics = [{"name": names.topic, "partition_data": parts}]
    return {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 5_000, "topic_data": topics}


def commit(names: Names) -> dict[str, Any]:
    parts = [{"partition_index": 0, "committed_offset": 1}]
    return {"group_id": names.group, "topics": [{"name": names.topic, "partitions": parts}]}


def add_partitions(names: Names) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": names.transaction,
        "v3_and_below_producer_id": names.producer[0],
        "v3_and_below_producer_epoch": names.producer[1],
        "v3_and_below_topics": [{"name": names.topic, "partitions": [0]}],
    }


def in_transaction(names: Names) -> dict[str, Any]:
    return {
        "transactional_id": names.transaction,
        "producer_id": names.producer[0],
        "producer_epoch": names.producer[1],
    }


def heartbeat(names: Names, group: str, **more: Any) -> dict[str, Any]:
    first = {"member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 30_000, "topic_partitions": []}
    return {"group_id": group, **first, "subscribed_topic_names": [names.topic], **more}


def fetch(names: Names) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    return {"max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": names.topic, "partitions": [part]}]}


def topic_resource(names: Names) -> dict[str, Any]:
    return {"resource_type": 2, "resource_name": names.topic, "configuration_keys": None}


def changed(resource: Mapping[str, Any], key: str, value: str) -> dict[str, Any]:
    one = {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}
    return {"resources": [{**one, "configs": [{"name": key, "value": value}]}]}


def in_topics(**partition: Any) -> Values:
    return lambda names: {"topics": [{"name": names.topic, "partitions": [partition]}]}


def in_group(**more: Any) -> Values:
    return lambda names: {"group_id": names.group, **more}


def fixed(**values: Any) -> Values:
    return lambda names: values


ACL = {
    "resource_type": 2,
    "resource_name": "no-topic",
    "resource_pattern_type": 3,
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ACL_FILTER = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
NO_ACLS = {**ACL_FILTER, "principal_filter": "User:nobody"}
BROKER = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}


@dataclass
class Case:
    """A request, and which needs of its API's row it has. `shown` says of an answer whether it shows what may
    be left out; `tolerated` are codes of an answer that is no refusal."""

    key: ApiKey
    version: int
    values: Values
    needs: tuple[int, ...] = (0,)
    tolerated: tuple[ErrorCode, ...] = ()
    shown: Callable[[Names, bytes, Any], bool] | None = None
    before: tuple[Callable[[World, Names], Any], ...] = ()
    name_of: Callable[[Names], str] | None = None
    """The topic that the request is about, where it is not `Names.topic`."""
    hides_existence: bool = True

    def __str__(self) -> str:
        return f"{self.key.name}-{self.version}-{','.join(map(str, self.needs))}"

    def rows(self) -> list[Need]:
        return [REQUIRED_ACCESS[self.key][index] for index in self.needs]


def named(attribute: str) -> Callable[[Names, bytes, Any], bool]:
    return lambda names, body, _: getattr(names, attribute).encode() in body


K = ApiKey
CASES = [
    Case(K.PRODUCE, 9, produce, needs=(1,)),
    Case(
        K.PRODUCE,
        9,
        lambda names: produce(names, names.transaction),
        needs=(0, 1),
        hides_existence=False,
    ),
    Case(K.FETCH, 11, fetch),
    Case(K.LIST_OFFSETS, 7, in_topics(partition_index=0, timestamp=-1)),
    Case(K.METADATA, 9, lambda names: {"topics": [{"name": names.topic}]}),
    Case(
        K.METADATA,
        12,
        lambda names: {"topics": [{"topic_id": names.topic_id, "name": None}]},
        hides_existence=False,
    ),
    Case(K.METADATA, 9, fixed(topics=None), needs=(1,), shown=named("topic")),
    Case(
        K.METADATA,
        9,
        lambda names: {"topics": [{"name": names.fresh}], "allow_auto_topic_creation": True},
        needs=(0, 2),
        name_of=lambda names: names.fresh,
        hides_existence=False,
    ),
    Case(
        K.METADATA,
        9,
        fixed(topics=[], include_cluster_authorized_operations=True),
        needs=(3,),
        shown=lambda _, __, answer: bool(answer.cluster_authorized_operations != 0),
    ),
    Case(K.OFFSET_COMMIT, 8, commit, needs=(0, 1)),
    Case(
        K.OFFSET_FETCH,
        7,
        lambda names: {
            "group_id": names.group,
            "topics": [{"name": names.topic, "partition_indexes": [0]}],
        },
        needs=(0, 1),
    ),
    Case(
        K.OFFSET_FETCH,
        10,
        lambda names: {
            "groups": [
                {
                    "group_id": names.group,
                    "topics": [{"topic_id": names.topic_id, "partition_indexes": [0]}],
                }
            ],
        },
        needs=(0, 1),
        hides_existence=False,
    ),
    Case(
        K.OFFSET_FETCH,
        9,
        lambda names: {"groups": [{"group_id": names.group, "topics": None}]},
        needs=(0, 2),
        shown=named("topic"),
    ),
    Case(K.FIND_COORDINATOR, 4, lambda names: {"key_type": 0, "coordinator_keys": [names.group]}),
    Case(K.FIND_COORDINATOR, 3, lambda names: {"key_type": 0, "key": names.group}),
    Case(
        K.FIND_COORDINATOR,
        4,
        lambda names: {"key_type": 1, "coordinator_keys": [names.transaction]},
        needs=(1,),
    ),
    Case(
        K.JOIN_GROUP,
        5,
        in_group(
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        ),
        tolerated=(ErrorCode.MEMBER_ID_REQUIRED,),
    ),
    Case(K.HEARTBEAT, 4, in_group(generation_id=1, member_id="m"), tolerated=(ErrorCode.UNKNOWN_MEMBER_ID,)),
    Case(
        K.LEAVE_GROUP,
        4,
        in_group(members=[{"member_id": "m", "group_instance_id": None}]),
        tolerated=(ErrorCode.UNKNOWN_MEMBER_ID,),
    ),
    Case(
        K.SYNC_GROUP,
        4,
        in_group(generation_id=1, member_id="m", assignments=[]),
        tolerated=(ErrorCode.UNKNOWN_MEMBER_ID,),
    ),
    Case(K.DESCRIBE_GROUPS, 5, lambda names: {"groups": [names.group]}),
    Case(K.LIST_GROUPS, 4, fixed(), shown=named("group")),
    Case(
        K.CREATE_TOPICS,
        7,
        lambda names: {"topics": [{"name": names.fresh, "num_partitions": 1, "replication_factor": 1}]},
        needs=(0, 1),
        name_of=lambda names: names.fresh,
        shown=lambda _, __, answer: bool(answer.topics[0].configs),
        hides_existence=False,
    ),
    Case(K.DELETE_TOPICS, 5, lambda names: {"topic_names": [names.topic]}, tolerated=()),
    Case(
        K.DELETE_TOPICS,
        6,
        lambda names: {"topics": [{"name": None, "topic_id": names.topic_id}]},
        needs=(0,),
        hides_existence=False,
    ),
    Case(K.DELETE_RECORDS, 2, in_topics(partition_index=0, offset=1)),
    Case(
        K.INIT_PRODUCER_ID,
        4,
        lambda names: {"transactional_id": names.transaction, "transaction_timeout_ms": 60_000},
    ),
    Case(
        K.INIT_PRODUCER_ID,
        6,
        lambda names: {
            "transactional_id": names.transaction,
            "transaction_timeout_ms": 60_000,
            "enable2_pc": True,
        },
        needs=(0, 1),
    ),
    Case(K.INIT_PRODUCER_ID, 4, fixed(transactional_id=None), needs=(2,), hides_existence=False),
    Case(
        K.OFFSET_FOR_LEADER_EPOCH,
        4,
        lambda names: {
            "topics": [{"topic": names.topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
        },
    ),
    Case(K.ADD_PARTITIONS_TO_TXN, 3, add_partitions, needs=(0, 1), before=(World.begin,)),
    Case(
        K.ADD_PARTITIONS_TO_TXN,
        5,
        lambda names: {
            "transactions": [{**in_transaction(names), "topics": [{"name": names.topic, "partitions": [0]}]}]
        },
        needs=(2,),
        before=(World.begin,),
    ),
    Case(
        K.ADD_OFFSETS_TO_TXN,
        3,
        lambda names: {**in_transaction(names), "group_id": names.group},
        needs=(0, 1),
        before=(World.begin,),
    ),
    Case(K.END_TXN, 3, lambda names: {**in_transaction(names), "committed": True}, before=(World.begin,)),
    Case(
        K.WRITE_TXN_MARKERS,
        1,
        lambda names: {
            "markers": [
                {
                    "producer_id": names.producer[0],
                    "producer_epoch": names.producer[1],
                    "transaction_result": False,
                    "topics": [{"name": names.topic, "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
        before=(World.begin,),
    ),
    Case(
        K.TXN_OFFSET_COMMIT,
        3,
        lambda names: {**in_transaction(names), **commit(names)},
        needs=(0, 1, 2),
        tolerated=(ErrorCode.INVALID_TXN_STATE,),
        before=(World.begin,),
    ),
    Case(K.DESCRIBE_ACLS, 3, fixed(**ACL_FILTER)),
    Case(K.CREATE_ACLS, 3, fixed(creations=[ACL])),
    Case(K.DELETE_ACLS, 3, fixed(filters=[NO_ACLS])),
    Case(K.DESCRIBE_CONFIGS, 4, lambda names: {"resources": [topic_resource(names)]}),
    Case(K.DESCRIBE_CONFIGS, 4, fixed(resources=[BROKER]), needs=(1,)),
    Case(K.ALTER_CONFIGS, 2, lambda names: changed(topic_resource(names), "retention.ms", "7000")),
    Case(K.ALTER_CONFIGS, 2, lambda names: changed(BROKER, "num.partitions", "1"), needs=(1,)),
    Case(
        K.INCREMENTAL_ALTER_CONFIGS, 1, lambda names: changed(topic_resource(names), "retention.ms", "7000")
    ),
    Case(K.INCREMENTAL_ALTER_CONFIGS, 1, lambda names: changed(BROKER, "num.partitions", "1"), needs=(1,)),
    Case(
        K.CREATE_PARTITIONS,
        3,
        lambda names: {"topics": [{"name": names.topic, "count": 2, "assignments": None}]},
    ),
    Case(K.DELETE_GROUPS, 2, lambda names: {"groups_names": [names.group]}),
    Case(
        K.OFFSET_DELETE,
        0,
        lambda names: {
            "group_id": names.group,
            "topics": [{"name": names.topic, "partitions": [{"partition_index": 0}]}],
        },
        needs=(0, 1),
    ),
    Case(
        K.DESCRIBE_CLUSTER,
        1,
        fixed(include_cluster_authorized_operations=True),
        shown=lambda _, __, answer: bool(answer.cluster_authorized_operations != 0),
    ),
    Case(K.CONSUMER_GROUP_HEARTBEAT, 1, lambda names: heartbeat(names, names.group), needs=(0, 1)),
    Case(
        K.CONSUMER_GROUP_HEARTBEAT,
        1,
        lambda names: heartbeat(
            names, names.group, subscribed_topic_names=None, subscribed_topic_regex=names.topic
        ),
        needs=(0, 2),
        shown=lambda names, body, _: names.topic_id.bytes in body,
    ),
    Case(
        K.CONSUMER_GROUP_DESCRIBE,
        1,
        lambda names: {"group_ids": [names.consumers]},
        needs=(0, 1),
        before=(World.join,),
        shown=named("topic"),
        hides_existence=False,
    ),
    Case(
        K.DESCRIBE_PRODUCERS, 0, lambda names: {"topics": [{"name": names.topic, "partition_indexes": [0]}]}
    ),
    Case(
        K.DESCRIBE_TRANSACTIONS,
        0,
        lambda names: {"transactional_ids": [names.transaction]},
        needs=(0, 1),
        before=(World.begin,),
        shown=named("topic"),
    ),
    Case(
        K.LIST_TRANSACTIONS, 1, fixed(duration_filter=-1), before=(World.begin,), shown=named("transaction")
    ),
    Case(K.DESCRIBE_LOG_DIRS, 4, fixed(topics=None), shown=named("topic")),
    Case(
        K.ELECT_LEADERS,
        2,
        lambda names: {"topic_partitions": [{"topic": names.topic, "partitions": [0]}]},
        tolerated=(ErrorCode.ELECTION_NOT_NEEDED,),
    ),
    Case(
        K.ALTER_PARTITION_REASSIGNMENTS,
        0,
        in_topics(partition_index=0, replicas=[1]),
    ),
    Case(K.LIST_PARTITION_REASSIGNMENTS, 0, fixed(topics=None)),
    Case(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, fixed(users=None)),
    Case(
        K.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        lambda names: {"deletions": [{"name": names.user, "mechanism": 1}], "upsertions": []},
        tolerated=(ErrorCode.RESOURCE_NOT_FOUND,),
    ),
    Case(
        K.DESCRIBE_QUORUM,
        1,
        fixed(topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]),
    ),
    Case(K.UPDATE_FEATURES, 1, fixed(feature_updates=[])),
    Case(K.LIST_CONFIG_RESOURCES, 1, fixed(resource_types=[]), shown=named("topic")),
    Case(K.DESCRIBE_TOPIC_PARTITIONS, 0, lambda names: {"topics": [{"name": names.topic}]}),
    Case(K.DESCRIBE_TOPIC_PARTITIONS, 0, fixed(topics=[]), needs=(1,), shown=named("topic")),
    *(
        Case(key, SERVED_APIS[key].last, fixed(), needs=())
        for key in (K.API_VERSIONS, K.GET_TELEMETRY_SUBSCRIPTIONS)
    ),
]
_NOT_SHOWN_ALONE = {(K.DELETE_TOPICS, 1)}
"""Needs that only add to what another need allows: tests of their own show them."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    config = BrokerConfig(
        data_dir=tmp_path_factory.mktemp("data"),
        group_initial_rebalance_delay_ms=0,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:admin",
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        transaction_two_phase_commit_enable=True,
    )
    services = await open_services(config, Metrics(), Clock())
    dispatcher = Dispatcher(build_handlers(services), services.metrics, services.events, services.turns)
    made = World(services, Client(dispatcher, "admin"), Client(dispatcher, "alice"))
    await made.admin.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["x"]})
    yield made
    await services.close()


def acl(case: Case, names: Names, right: Right, permission: Permission = Permission.ALLOW) -> Acl:
    kind = right.resource_type
    of_kind = {
        ResourceType.TOPIC: names.topic if case.name_of is None else case.name_of(names),
        ResourceType.GROUP: names.consumers if World.join in case.before else names.group,
        ResourceType.TRANSACTIONAL_ID: names.transaction,
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    return Acl(kind, PatternType.LITERAL, of_kind[kind], ALICE, "*", right.operation, permission)


def codes_in(values: Any) -> set[int]:
    """All error codes of an answer."""
    if isinstance(values, list):
        return set().union(*map(codes_in, values))
    if not isinstance(values, dict):
        return set()
    own = {int(each) for key, each in values.items() if key.endswith("error_code")}
    return own.union(*(codes_in(each) for each in values.values()))


async def prepared(world: World, case: Case) -> Names:
    names = await world.make()
    for step in case.before:
        names = await step(world, names)
    return names


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_without_one_permission_a_request_is_refused_and_with_exactly_all_it_is_served(
    world: World, case: Case
) -> None:
    names = await prepared(world, case)
    needs = case.rows()
    for need in needs:
        allowed = [acl(case, names, other.rights[0]) for other in needs if other is not need]
        # Denied, because what another need allows may imply it.
        denied = [acl(case, names, right, Permission.DENY) for right in need.rights]
        denied = [each for each in denied if each._replace(permission=Permission.ALLOW) not in allowed]
        world.allow(*allowed, *denied)
        before = world.state()
        body, answer = await world.alice.ask(case.key, case.version, case.values(names))
        if need.effect is Effect.LEFT_OUT:
            assert case.shown is not None
            assert not case.shown(names, body, answer), f"{need} is not needed"
            continue
        assert int(need.rights[-1].refusal) in codes_in(answer), f"{need} is not needed: {answer}"
        assert world.state() == before, f"a request without {need} changed something"
        if case.shown is not None:
            assert not case.shown(names, body, answer), f"a request without {need} shows something"
        if case.hides_existence and need.rights[-1].resource_type == ResourceType.TOPIC:
            await assert_existence_is_hidden(world, case, names, body)
    for served, right in [(need, right) for need in needs for right in need.rights]:
        names = await prepared(world, case)
        others = [other.rights[0] for other in needs if other is not served]
        world.allow(*(acl(case, names, each) for each in [*others, right]))
        await assert_served(world, case, names)
    if not needs:
        await assert_served(world, case, names)
    world.allow()


async def assert_served(world: World, case: Case, names: Names) -> None:
    """With the ACLs that hold now the request is served, and shows all of its answer."""
    body, answer = await world.alice.ask(case.key, case.version, case.values(names))
    refused = codes_in(answer) - {0, *map(int, case.tolerated)}
    assert not refused, f"with {world.allowed} the answer is {answer}"
    if case.shown is not None:
        assert case.shown(names, body, answer), f"with {world.allowed} the answer is {answer}"


async def assert_existence_is_hidden(world: World, case: Case, names: Names, body: bytes) -> None:
    """The refusal of a topic that does not exist has the same bytes."""
    absent = names._replace(topic=f"nope-{names.topic[5:]}")
    world.allow(
        *(
            each._replace(resource_name=absent.topic) if each.resource_name == names.topic else each
            for each in world.allowed
        )
    )
    other, _ = await world.alice.ask(case.key, case.version, case.values(absent))
    assert other.replace(absent.topic.encode(), names.topic.encode()) == body


def test_every_need_of_every_served_api_is_in_the_matrix() -> None:
    expected = {(key, index) for key in SERVED_APIS for index in range(len(REQUIRED_ACCESS[key]))}
    tested = {(case.key, index) for case in CASES for index in case.needs}
    assert expected - tested == _NOT_SHOWN_ALONE
    without_route = {K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE}
    assert set(SERVED_APIS) - {case.key for case in CASES} == without_route
    assert set(REQUIRED_ACCESS) == set(SERVED_APIS)


@pytest.mark.asyncio(loop_scope="module")
async def test_an_api_without_a_row_stops_the_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = dict(REQUIRED_ACCESS)
    del table[K.END_TXN]
    monkeypatch.setattr("tidelog.broker.security.required_access.REQUIRED_ACCESS", table)
    with pytest.raises(ValueError, match="does not say what END_TXN needs"):
        build_handlers(world.services)
