"""What changes or appends something and what reads it, sent together on one connection: the reader sees it.

The broker may take as long as it likes for the change. These requests arrive together, so that nothing but
the broker's own order stands between them.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from tests.conformance.raw import FETCH_VERSION, NOW_MS, PRODUCE_VERSION, RawClient, batch, connected
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.served_apis import SERVED_APIS, Kind
from tidelog.protocol.records import RecordBatchBuilder, iter_batches
from tidelog.protocol.schema import ApiKey

TIMES = 20
REFUSED = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""They change nothing as long as there is no listener with SASL."""
OF_CLUSTERS = {ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ELECT_LEADERS, ApiKey.UNREGISTER_BROKER}
"""They change nothing at a broker alone (`several`)."""
OF_ACLS = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
"""They change nothing without an authorizer. With one, each later request sees them (`test_acls`)."""
UNSEEN = {ApiKey.FIND_COORDINATOR, ApiKey.HEARTBEAT}
"""What they change no request reads: a topic is there the second time, and a session ends later."""
OF_GROUPS = {ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE, ApiKey.LEAVE_GROUP, ApiKey.DELETE_GROUPS}
"""They need more before them than a topic: a test of their own sends them all together."""
OF_SHARE_GROUPS = {
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
}
"""As those of groups."""
OF_TRANSACTIONS = {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
}
"""As those of groups: `test_wire_transactions`."""
TOPIC_RESOURCE = 2


class Question(NamedTuple):
    """One request; its values are those of the `number`th repetition."""

    api_key: ApiKey
    version: int
    values: Callable[[int], Mapping[str, Any]]


class Pair(NamedTuple):
    """A change, what reads it, and what in the reader's answer must be true of the `number`th repetition."""

    change: Question
    reader: Question
    sees: Callable[[Any, int], bool]
    topic_is_there: bool = True


def topic(number: int) -> str:
    return f"topic-{number}"


def settings_of(number: int) -> Mapping[str, Any]:
    return {"resources": [{"resource_type": TOPIC_RESOURCE, "resource_name": topic(number)}]}


def altered(number: int, **operation: int) -> Mapping[str, Any]:
    setting = {"name": "retention.ms", "value": str(1_000_000 + number), **operation}
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic(number), "configs": [setting]}
    return {"resources": [resource]}


def new_setting_is_described(answer: Any, number: int) -> bool:
    (result,) = answer.results
    return any(
        (config.name, config.value) == ("retention.ms", str(1_000_000 + number)) for config in result.configs
    )


def partitions_named(answer: Any) -> int:
    (named,) = answer.topics
    return len(named.partitions) if named.error_code == 0 else 0


READ_METADATA = Question(
    ApiKey.METADATA,
    9,
    lambda number: {"topics": [{"name": topic(number)}], "allow_auto_topic_creation": False},
)
READ_SETTINGS = Question(ApiKey.DESCRIBE_CONFIGS, 2, settings_of)
INIT_PRODUCER_ID = Question(ApiKey.INIT_PRODUCER_ID, 4, lambda number: {"transactional_id": None})

PAIRS: Mapping[ApiKey, Pair] = {
    pair.change.api_key: pair
    for pair in (
        Pair(
            Question(
                ApiKey.CREATE_TOPICS,
                5,
                lambda number: {
                    "topics": [{"name": topic(number), "num_partitions": 2, "replication_factor": 1}]
                },
            ),
            READ_METADATA,
            lambda answer, _: partitions_named(answer) == 2,
            topic_is_there=False,
        ),
        Pair(
            Question(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                1,
                lambda number: {
                    "group_id": f"group-{number}",
                    "member_id": "m",
                    "rebalance_timeout_ms": 1_000,
                    "subscribed_topic_names": [topic(number)],
                    "topic_partitions": [],
                },
            ),
            Question(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, lambda number: {"group_ids": [f"group-{number}"]}),
            lambda answer, _: len(answer.groups[0].members) == 1,
        ),
        Pair(
            Question(ApiKey.DELETE_TOPICS, 5, lambda number: {"topic_names": [topic(number)]}),
            READ_METADATA,
            lambda answer, _: partitions_named(answer) == 0,
        ),
        Pair(
            Question(
                ApiKey.CREATE_PARTITIONS,
                3,
                lambda number: {"topics": [{"name": topic(number), "count": 3, "assignments": None}]},
            ),
            READ_METADATA,
            lambda answer, _: partitions_named(answer) == 3,
        ),
        Pair(
            Question(
                ApiKey.DELETE_RECORDS,
                2,
                lambda number: {
                    "topics": [{"name": topic(number), "partitions": [{"partition_index": 0, "offset": 1}]}]
                },
            ),
            Question(
                ApiKey.LIST_OFFSETS,
                5,
                lambda number: {
                    "replica_id": -1,
                    "topics": [
                        {"name": topic(number), "partitions": [{"partition_index": 0, "timestamp": -2}]}
                    ],
                },
            ),
            lambda answer, _: answer.topics[0].partitions[0].offset == 1,
        ),
        Pair(Question(ApiKey.ALTER_CONFIGS, 1, altered), READ_SETTINGS, new_setting_is_described),
        Pair(
            Question(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, lambda number: altered(number, config_operation=0)),
            READ_SETTINGS,
            new_setting_is_described,
        ),
        Pair(
            Question(
                ApiKey.METADATA,
                9,
                lambda number: {"topics": [{"name": topic(number)}], "allow_auto_topic_creation": True},
            ),
            READ_METADATA,
            lambda answer, _: partitions_named(answer) > 0,
            topic_is_there=False,
        ),
        Pair(
            Question(
                ApiKey.ALTER_CLIENT_QUOTAS,
                1,
                lambda number: {
                    "entries": [
                        {
                            "entity": [{"entity_type": "user", "entity_name": topic(number)}],
                            "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                        }
                    ]
                },
            ),
            Question(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, lambda _: {"components": []}),
            lambda answer, number: len(answer.entries) == number + 1,
            topic_is_there=False,
        ),
        Pair(
            Question(
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
                0,
                lambda number: {
                    "deletions": [],
                    "upsertions": [
                        {
                            "name": topic(number),
                            "mechanism": 1,
                            "iterations": 4096,
                            "salt": b"salt",
                            "salted_password": bytes(32),
                        }
                    ],
                },
            ),
            Question(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, lambda _: {"users": None}),
            lambda answer, number: len(answer.results) == number + 1,
            topic_is_there=False,
        ),
        # Nothing reads what was issued but the next request: its id is another.
        Pair(INIT_PRODUCER_ID, INIT_PRODUCER_ID, lambda answer, number: answer.producer_id == 2 * number + 1),
    )
}


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RawClient]:
    # A slow disk may take longer than the default.
    monkeypatch.setattr("tidelog.broker.handlers.fetch.FLUSH_PATIENCE_SECONDS", DEADLINE_SECONDS)
    config = BrokerConfig(
        data_dir=tmp_path,
        port=0,
        http_port=-1,
        auto_create_topics_enable=True,
        group_initial_rebalance_delay_ms=0,
    )
    async with await Broker.start(config) as broker, connected(broker.port) as connection:
        yield connection


def test_every_api_that_changes_something_later_has_a_pair() -> None:
    changes = {key for key, served in SERVED_APIS.items() if served.kind is Kind.CHANGE}
    of_groups = OF_GROUPS | OF_SHARE_GROUPS | OF_TRANSACTIONS
    assert set(PAIRS) | REFUSED | UNSEEN | OF_CLUSTERS | OF_ACLS | of_groups == changes


@pytest.mark.parametrize("api_key", PAIRS)
async def test_a_reader_right_behind_a_change_on_one_connection_sees_it(
    client: RawClient, api_key: ApiKey
) -> None:
    change, reader, sees, topic_is_there = PAIRS[api_key]
    for number in range(TIMES):
        if topic_is_there:
            await client.create(topic(number))
            assert await client.produce(batch("x", -1, -1, count=2), topic=topic(number)) == (0, 0)
        await client.send_together(
            (key, version, values(number)) for key, version, values in (change, reader)
        )
        await client.receive()
        answer = await client.receive()
        assert sees(answer, number), answer


def life_of_a_group(group_id: str) -> list[tuple[ApiKey, int, Mapping[str, Any]]]:
    """Offsets are committed, deleted, committed again; a member comes and leaves; the group is deleted."""
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
    commit = (ApiKey.OFFSET_COMMIT, 7, {"group_id": group_id, "topics": topics})
    partitions = [{"name": "t", "partition_indexes": [0]}]
    fetch = (ApiKey.OFFSET_FETCH, 7, {"group_id": group_id, "topics": partitions})
    unwanted = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    join = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "group_instance_id": "i",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    leave = {"group_id": group_id, "members": [{"member_id": "", "group_instance_id": "i"}]}
    describe = (ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group_id]})
    return [
        commit,
        fetch,
        (ApiKey.OFFSET_DELETE, 0, {"group_id": group_id, "topics": unwanted}),
        fetch,
        commit,
        (ApiKey.JOIN_GROUP, 5, join),
        describe,
        (ApiKey.LEAVE_GROUP, 3, leave),
        describe,
        (ApiKey.DELETE_GROUPS, 2, {"groups_names": [group_id]}),
        describe,
    ]


async def test_each_reader_behind_a_change_of_a_group_sees_it_and_nothing_that_comes_later(
    client: RawClient,
) -> None:
    await client.create("t")
    await client.send_together([(ApiKey.FIND_COORDINATOR, 3, {"key": "g"})])
    await client.receive()
    for number in range(TIMES):
        requests = life_of_a_group(f"g{number}")
        await client.send_together(requests)
        answers = [(key, await client.receive()) for key, _, _ in requests]
        offsets = [
            answer.topics[0].partitions[0].committed_offset
            for key, answer in answers
            if key == ApiKey.OFFSET_FETCH
        ]
        states = [
            (answer.groups[0].group_state, len(answer.groups[0].members))
            for key, answer in answers
            if key == ApiKey.DESCRIBE_GROUPS
        ]
        assert offsets == [7, -1]
        assert states == [("CompletingRebalance", 1), ("Empty", 0), ("Dead", 0)]


def life_of_a_share_group(group_id: str, topic_id: UUID) -> list[tuple[ApiKey, int, Mapping[str, Any]]]:
    """A member comes, gets a record, rejects it and leaves; the start is set and forgotten."""
    identity = {"group_id": group_id, "member_id": "m"}
    join = {**identity, "member_epoch": 0, "subscribed_topic_names": ["t"]}
    describe = (ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [group_id]})
    wanted = [{"topic_name": "t", "partitions": [0]}]
    offsets = (
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        {"groups": [{"group_id": group_id, "topics": wanted}]},
    )
    start = [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 0}]}]
    rejected = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [3]}]
    partition = {"partition_index": 0, "acknowledgement_batches": []}
    fetch = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 1, "batch_size": 1}
    topics = [{"topic_id": topic_id, "partitions": [partition]}]
    acknowledged = [
        {"topic_id": topic_id, "partitions": [{**partition, "acknowledgement_batches": rejected}]}
    ]
    return [
        (ApiKey.SHARE_GROUP_HEARTBEAT, 1, join),
        describe,
        (ApiKey.SHARE_GROUP_HEARTBEAT, 1, {**join, "member_epoch": -1}),
        describe,
        (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": group_id, "topics": start}),
        offsets,
        (ApiKey.SHARE_FETCH, 2, {**identity, **fetch, "share_session_epoch": 0, "topics": topics}),
        (ApiKey.SHARE_ACKNOWLEDGE, 2, {**identity, "share_session_epoch": 1, "topics": acknowledged}),
        offsets,
        (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": group_id, "topics": [{"topic_name": "t"}]}),
        offsets,
    ]


async def test_each_reader_behind_a_change_of_a_share_group_sees_it_and_nothing_that_comes_later(
    client: RawClient,
) -> None:
    await client.create("t")
    await client.produce(batch("x", -1, -1), topic="t")
    await client.send_together([(ApiKey.METADATA, 12, {"topics": [{"name": "t"}]})])
    topic_id = (await client.receive()).topics[0].topic_id
    for number in range(TIMES):
        requests = life_of_a_share_group(f"g{number}", topic_id)
        await client.send_together(requests)
        answers = [(key, await client.receive()) for key, _, _ in requests]
        members = [len(each.groups[0].members) for key, each in answers if key == ApiKey.SHARE_GROUP_DESCRIBE]
        offsets = [
            each.groups[0].topics[0].partitions[0].start_offset
            for key, each in answers
            if key == ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
        ]
        assert members == [1, 0]
        assert offsets == [0, 1, -1]


def appended(number: int, acks: int) -> Mapping[str, Any]:
    builder = RecordBatchBuilder()
    builder.append(NOW_MS + number, None, b"x")
    partition = {"index": 0, "records": bytes(builder.build())}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 30_000,
        "topic_data": [{"name": "t", "partition_data": [partition]}],
    }


def listed(timestamp: int) -> Mapping[str, Any]:
    partition = {"partition_index": 0, "timestamp": timestamp}
    return {"replica_id": -1, "topics": [{"name": "t", "partitions": [partition]}]}


def fetched(number: int) -> Mapping[str, Any]:
    partition = {"partition": 0, "fetch_offset": number, "partition_max_bytes": 1 << 20}
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [partition]}],
    }


READERS: Mapping[str, tuple[Question, Callable[[Any], int]]] = {
    "ListOffsets, latest": (
        Question(ApiKey.LIST_OFFSETS, 7, lambda _: listed(-1)),
        lambda answer: int(answer.topics[0].partitions[0].offset) - 1,
    ),
    "ListOffsets, by time": (
        Question(ApiKey.LIST_OFFSETS, 7, lambda number: listed(NOW_MS + number)),
        lambda answer: int(answer.topics[0].partitions[0].offset),
    ),
    "OffsetForLeaderEpoch": (
        Question(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            4,
            lambda _: {"topics": [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        ),
        lambda answer: int(answer.topics[0].partitions[0].end_offset) - 1,
    ),
    "DeleteRecords": (
        Question(
            ApiKey.DELETE_RECORDS,
            2,
            lambda _: {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": -1}]}]},
        ),
        lambda answer: int(answer.topics[0].partitions[0].low_watermark) - 1,
    ),
    "Fetch": (
        Question(ApiKey.FETCH, FETCH_VERSION, fetched),
        lambda answer: next(iter_batches(bytes(answer.topics[0][1][0].records)))[1].base_offset,
    ),
}


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("name", READERS)
async def test_a_reader_right_behind_an_append_on_one_connection_sees_it(
    client: RawClient, name: str, acks: int
) -> None:
    reader, offset_seen = READERS[name]
    await client.create()
    for number in range(TIMES):
        await client.send_together(
            [
                (ApiKey.PRODUCE, PRODUCE_VERSION, appended(number, acks)),
                (reader.api_key, reader.version, reader.values(number)),
            ]
        )
        result = await client.receive_result()
        assert (result.error_code, result.base_offset) == (0, number)
        assert offset_seen(await client.receive()) == number


async def test_an_append_behind_the_creation_of_its_topic_is_stored(client: RawClient) -> None:
    create = PAIRS[ApiKey.CREATE_TOPICS].change
    for number in range(TIMES):
        await client.send_together([(create.api_key, create.version, create.values(number))])
        await client.send_batch(batch("x", -1, -1), topic=topic(number))
        await client.receive()
        result = await client.receive_result()
        assert (result.error_code, result.base_offset) == (0, 0)
