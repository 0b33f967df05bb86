"""A request, or several, for each need of each API."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.unit.broker.handlers.access_world import (
    ACL,
    ACL_FILTER,
    BROKER,
    CLIENT_METRICS,
    NO_ACLS,
    Names,
    Values,
    World,
    add_partitions,
    changed,
    commit,
    fetch,
    fixed,
    group_resource,
    heartbeat,
    in_group,
    in_topics,
    in_transaction,
    produce,
    share_acknowledge,
    share_fetch,
    share_heartbeat,
    share_state,
    topic_resource,
)
from tidelog.broker.security.required_access import Need
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


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
        return [SERVED_APIS[self.key].needs[index] for index in self.needs]


def named(attribute: str) -> Callable[[Names, bytes, Any], bool]:
    return lambda names, body, _: getattr(names, attribute).encode() in body


K = ApiKey
CASES = [
    Case(K.PRODUCE, 9, produce, needs=(1,)),
    Case(K.PRODUCE, 13, produce, needs=(1,), hides_existence=False),
    Case(
        K.PRODUCE,
        9,
        lambda names: produce(names, names.transaction),
        needs=(0, 1),
        hides_existence=False,
    ),
    Case(K.FETCH, 11, fetch),
    Case(K.FETCH, 17, fetch, hides_existence=False),
    Case(
        K.FETCH,
        11,
        lambda names: {**fetch(names), "replica_id": 2},
        needs=(1,),
        tolerated=(ErrorCode.UNKNOWN_LEADER_EPOCH,),
    ),
    Case(
        K.FETCH,
        17,
        lambda names: {**fetch(names), "replica_state": {"replica_id": 2}},
        needs=(1,),
        tolerated=(ErrorCode.UNKNOWN_LEADER_EPOCH,),
        hides_existence=False,
    ),
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
        K.FIND_COORDINATOR,
        6,
        lambda _: {"key_type": 2, "coordinator_keys": [f"g:{'A' * 22}:0"]},
        needs=(2,),
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
    Case(K.DESCRIBE_CONFIGS, 4, fixed(resources=[CLIENT_METRICS]), needs=(1,)),
    Case(K.DESCRIBE_CONFIGS, 4, lambda names: {"resources": [group_resource(names)]}, needs=(2,)),
    Case(K.ALTER_CONFIGS, 2, lambda names: changed(topic_resource(names), "retention.ms", "7000")),
    Case(K.ALTER_CONFIGS, 2, lambda names: changed(BROKER, "num.partitions", "1"), needs=(1,)),
    Case(K.ALTER_CONFIGS, 2, lambda names: changed(CLIENT_METRICS, "interval.ms", "100"), needs=(1,)),
    Case(
        K.ALTER_CONFIGS,
        2,
        lambda names: changed(group_resource(names), "consumer.session.timeout.ms", "50000"),
        needs=(2,),
    ),
    Case(
        K.INCREMENTAL_ALTER_CONFIGS, 1, lambda names: changed(topic_resource(names), "retention.ms", "7000")
    ),
    Case(K.INCREMENTAL_ALTER_CONFIGS, 1, lambda names: changed(BROKER, "num.partitions", "1"), needs=(1,)),
    Case(
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda names: changed(group_resource(names), "consumer.session.timeout.ms", "50000"),
        needs=(2,),
    ),
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
        K.FETCH_SNAPSHOT,
        1,
        lambda names: {
            "replica_id": 2,
            "topics": [
                {
                    "name": names.topic,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": 0,
                            "snapshot_id": {"end_offset": 0, "epoch": -1},
                            "position": 0,
                        }
                    ],
                }
            ],
        },
        tolerated=(ErrorCode.UNKNOWN_LEADER_EPOCH,),
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
    Case(K.SHARE_GROUP_HEARTBEAT, 1, share_heartbeat, needs=(0, 1)),
    Case(
        K.SHARE_GROUP_DESCRIBE,
        1,
        lambda names: {"group_ids": [names.group]},
        needs=(0, 1),
        before=(World.share,),
        shown=named("topic"),
        hides_existence=False,
    ),
    Case(K.SHARE_FETCH, 2, share_fetch, needs=(0, 1), before=(World.share,), hides_existence=False),
    Case(
        K.SHARE_ACKNOWLEDGE,
        2,
        share_acknowledge,
        needs=(0, 1),
        before=(World.share, World.fetch_shared),
        hides_existence=False,
    ),
    Case(K.INITIALIZE_SHARE_GROUP_STATE, 0, share_state(state_epoch=1, start_offset=-1)),
    Case(K.READ_SHARE_GROUP_STATE, 0, share_state(leader_epoch=0), before=(World.share,)),
    Case(
        K.WRITE_SHARE_GROUP_STATE,
        1,
        share_state(state_epoch=9, leader_epoch=0, start_offset=0, state_batches=[]),
        before=(World.share,),
    ),
    Case(K.READ_SHARE_GROUP_STATE_SUMMARY, 1, share_state(leader_epoch=0), before=(World.share,)),
    Case(K.DELETE_SHARE_GROUP_STATE, 0, share_state(), before=(World.share,)),
    Case(
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        lambda names: {
            "groups": [{"group_id": names.group, "topics": [{"topic_name": names.topic, "partitions": [0]}]}]
        },
        needs=(0, 1),
        before=(World.share,),
    ),
    Case(
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        lambda names: {"groups": [{"group_id": names.group, "topics": None}]},
        needs=(0, 2),
        before=(World.share,),
        shown=named("topic"),
    ),
    Case(
        K.ALTER_SHARE_GROUP_OFFSETS,
        0,
        lambda names: {
            "group_id": names.group,
            "topics": [
                {"topic_name": names.topic, "partitions": [{"partition_index": 0, "start_offset": 0}]}
            ],
        },
        needs=(0, 1),
        before=(World.share, World.leave_shared),
    ),
    Case(
        K.DELETE_SHARE_GROUP_OFFSETS,
        0,
        lambda names: {"group_id": names.group, "topics": [{"topic_name": names.topic}]},
        needs=(0, 1),
        before=(World.share, World.leave_shared),
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
    Case(
        K.ALTER_REPLICA_LOG_DIRS,
        2,
        lambda names: {"dirs": [{"path": "/d", "topics": [{"name": names.topic, "partitions": [0]}]}]},
        tolerated=(ErrorCode.LOG_DIR_NOT_FOUND,),
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
    Case(K.DESCRIBE_CLIENT_QUOTAS, 1, fixed(components=[], strict=False)),
    Case(
        K.ALTER_CLIENT_QUOTAS,
        1,
        lambda names: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": names.user}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": False,
        },
    ),
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
    Case(K.UNREGISTER_BROKER, 0, fixed(broker_id=77), tolerated=(ErrorCode.BROKER_ID_NOT_REGISTERED,)),
    Case(K.LIST_CONFIG_RESOURCES, 1, fixed(resource_types=[]), shown=named("topic")),
    Case(K.DESCRIBE_TOPIC_PARTITIONS, 0, lambda names: {"topics": [{"name": names.topic}]}),
    Case(K.DESCRIBE_TOPIC_PARTITIONS, 0, fixed(topics=[]), needs=(1,), shown=named("topic")),
    Case(
        K.ASK_CONSOLE,
        0,
        fixed(user="somebody", host="127.0.0.1", method="GET", path="/api/v1/broker", parameters=b"{}"),
        tolerated=(ErrorCode.UNSUPPORTED_VERSION,),  # There is no console.
    ),
    Case(K.GET_TELEMETRY_SUBSCRIPTIONS, 0, fixed(), needs=()),
    Case(
        K.PUSH_TELEMETRY,
        0,
        fixed(client_instance_id=UUID(int=1)),
        needs=(),
        tolerated=(ErrorCode.UNKNOWN_SUBSCRIPTION_ID,),
    ),
    Case(K.API_VERSIONS, SERVED_APIS[K.API_VERSIONS].last, fixed(), needs=()),
]
