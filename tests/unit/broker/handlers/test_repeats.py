"""What a request names twice is answered once or refused: repeats multiply neither work nor answers."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.net.routes import RouteTable
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchRequest, encode_fetch_request
from tidelog.protocol.quotas import PRODUCER_BYTE_RATE, USER
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import finish

TIMES = 3
Repeats = Callable[[Asker], Awaitable[list[tuple[Any, int]]]]
"""Names one thing `TIMES` times and another once; (what, error code) of each part of the answer."""


async def create_topics(asker: Asker) -> list[tuple[Any, int]]:
    topic = {"num_partitions": 1, "replication_factor": 1}
    topics = [{"name": name, **topic} for name in ["again"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.CREATE_TOPICS, 7, topics=topics)
    assert [held.name for held in asker.services.catalog.topics()] == ["t", "once"]
    return [(held.name, held.error_code) for held in answer.topics]


async def delete_topics(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"] * TIMES + ["once"])
    assert [held.name for held in asker.services.catalog.topics()] == ["t"]
    return [(held.name, held.error_code) for held in answer.responses]


async def create_partitions(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"name": name, "count": 2, "assignments": None} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=topics)
    counts = [len(held.partitions) for held in asker.services.catalog.topics()]
    assert counts == [1, 2]
    return [(held.name, held.error_code) for held in answer.results]


async def commit_for(asker: Asker, *groups: str) -> None:
    partitions = [{"partition_index": 0, "committed_offset": 7}]
    for group_id in groups:
        topics = [{"name": "t", "partitions": partitions}]
        await asker.ask(ApiKey.OFFSET_COMMIT, 9, group_id=group_id, topics=topics)


async def describe_groups(asker: Asker) -> list[tuple[Any, int]]:
    await commit_for(asker, "t", "once")
    answer = await asker.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["t"] * TIMES + ["once"])
    return [(held.group_id, held.error_code) for held in answer.groups]


async def consumer_group_describe(asker: Asker) -> list[tuple[Any, int]]:
    for group in ("t", "once"):
        await asker.join_consumer_group(group, topic_names=["t"])
    answer = await asker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["t"] * TIMES + ["once"])
    return [(held.group_id, held.error_code) for held in answer.groups]


async def share_group_describe(asker: Asker) -> list[tuple[Any, int]]:
    for group in ("t", "once"):
        values = {"group_id": group, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
        await asker.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **values)
    answer = await asker.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["t"] * TIMES + ["once"])
    return [(held.group_id, held.error_code) for held in answer.groups]


async def delete_groups(asker: Asker) -> list[tuple[Any, int]]:
    await commit_for(asker, "t", "once")
    answer = await asker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["t"] * TIMES + ["once"])
    return [(held.group_id, held.error_code) for held in answer.results]


async def find_coordinator(asker: Asker) -> list[tuple[Any, int]]:
    answer = await asker.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["t"] * TIMES + ["once"])
    return [(held.key, held.error_code) for held in answer.coordinators]


async def metadata(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"name": name} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.METADATA, 12, topics=topics)
    return [(held.name, held.error_code) for held in answer.topics]


async def describe_topic_partitions(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"name": name} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics)
    return [(held.name, held.error_code) for held in reversed(answer.topics)]  # They come by name.


def resources(**more: Any) -> list[dict[str, Any]]:
    return [{"resource_type": 2, "resource_name": name, **more} for name in ["t"] * TIMES + ["once"]]


async def describe_configs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources(configuration_keys=None))
    return [(held.resource_name, held.error_code) for held in answer.results]


async def alter_configs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.ask(ApiKey.ALTER_CONFIGS, 2, resources=resources(configs=[]))
    return [(held.resource_name, held.error_code) for held in answer.responses]


async def incremental_alter_configs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources(configs=[]))
    return [(held.resource_name, held.error_code) for held in answer.responses]


async def describe_producers(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"name": name, "partition_indexes": [0] * TIMES} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    return [(topic.name, part.error_code) for topic in answer.topics for part in topic.partitions]


async def fetch(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    partition = FetchPartition(0, -1, 0, -1, -1, 1)
    topics = [("t", [partition] * 2), ("t", [partition]), ("once", [partition])]
    request = FetchRequest(-1, 0, 1, 1, 0, 0, -1, topics)
    routes = RouteTable(asker.handlers, asker.services.metrics, AuthenticationStep.NOT_REQUIRED)
    route = routes[ApiKey.FETCH, 12]
    assert route is not None
    decoded = finish(route.decode(12, memoryview(encode_fetch_request(12, request))))
    answer = asker.call(ApiKey.FETCH, 12, decoded)
    return [(name, result.error_code) for name, results in answer.topics for result in results]


async def offset_fetch(asker: Asker) -> list[tuple[Any, int]]:
    topics = [{"name": name, "partition_indexes": [0] * TIMES} for name in ["t"] * TIMES + ["once"]]
    groups = [{"group_id": "g", "topics": topics}] * TIMES
    answer = await asker.ask(ApiKey.OFFSET_FETCH, 9, groups=groups)
    (group,) = answer.groups
    return [(topic.name, part.error_code) for topic in group.topics for part in topic.partitions]


async def offset_delete(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    partitions = [{"partition_index": 0}] * TIMES
    topics = [{"name": name, "partitions": partitions} for name in ["t"] * TIMES + ["once"]]
    await asker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=topics)
    answer = await asker.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
    return [(topic.name, part.error_code) for topic in answer.topics for part in topic.partitions]


async def by_partition(asker: Asker, api_key: ApiKey, version: int, **asked: Any) -> list[tuple[Any, int]]:
    """An API that names a topic "name" and a partition "partition_index", or "topic" and "partition"."""
    await asker.create("once")
    name = "topic" if "partition" in asked else "name"
    named = [{name: topic, "partitions": [asked]} for topic in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(api_key, version, topics=named)
    return [(topic[name], part.error_code) for topic in answer.topics for part in topic.partitions]


async def list_offsets(asker: Asker) -> list[tuple[Any, int]]:
    return await by_partition(asker, ApiKey.LIST_OFFSETS, 7, partition_index=0, timestamp=-1)


async def offset_for_leader_epoch(asker: Asker) -> list[tuple[Any, int]]:
    return await by_partition(asker, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, partition=0, leader_epoch=0)


async def delete_records(asker: Asker) -> list[tuple[Any, int]]:
    return await by_partition(asker, ApiKey.DELETE_RECORDS, 2, partition_index=0, offset=0)


async def produce(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.send(*((name, 0, make_batch(b"v")) for name in ["t"] * TIMES + ["once"]))
    ends = {name: asker.replica(name).log.end_offset for name in ("t", "once")}
    assert ends == {"t": 0, "once": 1}
    return [(name, result.error_code) for name, results in answer for result in results]


async def describe_log_dirs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"topic": name, "partitions": [0] * TIMES} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=topics)
    (folder,) = answer.results
    return [(topic.name, folder.error_code) for topic in folder.topics for _ in topic.partitions]


async def alter_replica_log_dirs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    path = str(asker.services.config.data_dir.absolute())
    topics = [{"name": name, "partitions": [0] * TIMES} for name in ["t"] * TIMES + ["once"]]
    dirs = [{"path": "/elsewhere", "topics": topics[:1]}, {"path": path, "topics": topics}]
    answer = await asker.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
    return [(topic.topic_name, part.error_code) for topic in answer.results for part in topic.partitions]


async def elect_leaders(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"topic": name, "partitions": [0] * TIMES} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.ELECT_LEADERS, 2, topic_partitions=topics)
    results = [
        (held.topic, part) for held in answer.replica_election_results for part in held.partition_result
    ]
    assert {part.error_code for _, part in results} == {ErrorCode.ELECTION_NOT_NEEDED}
    return [(topic, answer.error_code) for topic, _ in results]


async def alter_partition_reassignments(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    partition = {"partition_index": 0, "replicas": [asker.services.node_id]}
    topics = [{"name": name, "partitions": [partition] * TIMES} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, topics=topics)
    return [(topic.name, part.error_code) for topic in answer.responses for part in topic.partitions]


async def list_config_resources(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[2] * TIMES)
    return [(held.resource_name, answer.error_code) for held in answer.config_resources]


async def begun(asker: Asker, transactional_id: str) -> dict[str, Any]:
    """The fields by which a client names itself."""
    await asker.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[transactional_id])
    wanted = {"transactional_id": transactional_id, "transaction_timeout_ms": 1_000}
    given = await asker.ask(ApiKey.INIT_PRODUCER_ID, 4, **wanted)
    return {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}


async def add_partitions_to_txn(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"name": name, "partitions": [0] * TIMES} for name in ["t"] * TIMES + ["once"]]
    one = {"transactional_id": "x", **await begun(asker, "x"), "topics": topics}
    answer = await asker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, transactions=[one] * TIMES)
    (results,) = answer.results_by_transaction
    return [
        (topic.name, part.partition_error_code)
        for topic in results.topic_results
        for part in topic.results_by_partition
    ]


async def describe_users(asker: Asker) -> list[tuple[Any, int]]:
    await with_users(asker)
    answer = await asker.ask(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": n} for n in ["t"] * TIMES + ["once"]]
    )
    return [(result.user, result.error_code) for result in answer.results]


async def alter_users(asker: Asker) -> list[tuple[Any, int]]:
    return [
        (result.user, result.error_code)
        for result in (await with_users(asker, *["t"] * TIMES, "once")).results
    ]


async def with_users(asker: Asker, *names: str) -> Any:
    values = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
    users = [{"name": name, **values} for name in names or ("t", "once")]
    return await asker.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=users)


async def describe_transactions(asker: Asker) -> list[tuple[Any, int]]:
    for name in ("t", "once"):
        await begun(asker, name)
    answer = await asker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t"] * TIMES + ["once"])
    return [(held.transactional_id, held.error_code) for held in answer.transaction_states]


async def alter_client_quotas(asker: Asker) -> list[tuple[Any, int]]:
    op = {"key": PRODUCER_BYTE_RATE, "value": 1.0, "remove": False}
    entries = [
        {"entity": [{"entity_type": USER, "entity_name": name}], "ops": [op]}
        for name in ["t"] * TIMES + ["once"]
    ]
    answer = await asker.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
    return [(entry.entity[0].entity_name, entry.error_code) for entry in answer.entries]


ANSWERED_ONCE: dict[ApiKey, Repeats] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.FETCH: fetch,
    ApiKey.METADATA: metadata,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
    ApiKey.SHARE_GROUP_DESCRIBE: share_group_describe,
    ApiKey.DELETE_GROUPS: delete_groups,
}
REFUSED: dict[ApiKey, Repeats] = {
    ApiKey.PRODUCE: produce,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_users,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_users,
}
ABOUT_USERS = {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS}


# A marker that is written again changes nothing: `test_transaction_markers`.
ANSWERED_EACH = {
    ApiKey.OFFSET_COMMIT,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.LEAVE_GROUP,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
}
ANSWERED_AS_A_WHOLE = {
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
}
# The acknowledgements of a partition that is named twice are joined: `test_share_fetch`.
OF_SESSIONS = {ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}
# With an authorizer only: `test_acls`.
ABOUT_ACLS = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
# What they name is not made by anybody, so `test_cluster_admin` asks them twice.
ABOUT_THE_CLUSTER = {ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES}


def test_each_api_that_can_name_a_thing_twice_is_of_a_known_kind() -> None:
    naming = {key for key in SERVED_APIS if any(field.is_array for field in APIS[key].request.fields)}
    answered = ANSWERED_ONCE.keys() | ANSWERED_EACH | ANSWERED_AS_A_WHOLE
    assert naming == answered | REFUSED.keys() | ABOUT_THE_CLUSTER | ABOUT_ACLS | OF_SESSIONS


@pytest.mark.parametrize("api_key", ANSWERED_ONCE)
async def test_what_reads_or_may_be_done_twice_answers_a_repeat_once(asker: Asker, api_key: ApiKey) -> None:
    await asker.create("t")
    assert await ANSWERED_ONCE[api_key](asker) == [("t", ErrorCode.NONE), ("once", ErrorCode.NONE)]


@pytest.mark.parametrize("api_key", REFUSED)
async def test_what_could_not_tell_repeats_apart_refuses_them_and_does_the_rest(
    asker: Asker, api_key: ApiKey
) -> None:
    await asker.create("t")
    *refused, done = await REFUSED[api_key](asker)
    assert done == ("once", ErrorCode.NONE)
    code = ErrorCode.DUPLICATE_RESOURCE if api_key in ABOUT_USERS else ErrorCode.INVALID_REQUEST
    assert {refusal for _, refusal in refused} == {code}
    assert {name for name, _ in refused} <= {"t", "again"}


async def test_of_two_offsets_committed_for_a_partition_the_last_counts_and_each_is_answered(
    asker: Asker,
) -> None:
    await asker.create("t")
    partitions = [{"partition_index": 0, "committed_offset": offset} for offset in (7, 5)]
    answer = await asker.ask(
        ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=[{"name": "t", "partitions": partitions}]
    )
    assert [part.error_code for part in answer.topics[0].partitions] == [ErrorCode.NONE] * 2
    found = await asker.ask(ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": None}])
    assert found.groups[0].topics[0].partitions[0].committed_offset == 5


async def test_settings_asked_for_in_two_places_are_described_in_one(asker: Asker) -> None:
    await asker.create("t")
    wanted = [
        {"resource_type": 2, "resource_name": "t", "configuration_keys": keys}
        for keys in (["segment.ms"], ["retention.ms"], ["segment.ms"])
    ]
    answer = await asker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=wanted)
    assert [[held.name for held in result.configs] for result in answer.results] == [
        ["retention.ms", "segment.ms"]
    ]


async def test_partitions_of_a_topic_named_in_two_places_are_all_described(asker: Asker) -> None:
    await asker.create("t", 2)
    topics = [{"name": "t", "partition_indexes": [index]} for index in (1, 0)]
    answer = await asker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    assert [[part.partition_index for part in topic.partitions] for topic in answer.topics] == [[1, 0]]


async def test_a_protocol_an_assignment_and_a_member_that_are_named_twice_count_once(asker: Asker) -> None:
    protocols = [{"name": "range", "metadata": data} for data in (b"first", b"second")]
    joined = await asker.ask(
        ApiKey.JOIN_GROUP,
        3,
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    assert [member.metadata for member in joined.members] == [b"first"]
    assignments = [{"member_id": joined.member_id, "assignment": data} for data in (b"first", b"last")]
    same = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    synced = await asker.ask(ApiKey.SYNC_GROUP, 3, **same, assignments=assignments)
    assert synced.assignment == b"last"
    leaving = [{"member_id": joined.member_id}] * 2
    left = await asker.ask(ApiKey.LEAVE_GROUP, 3, group_id="g", members=leaving)
    assert [member.error_code for member in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
