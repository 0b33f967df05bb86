"""The APIs that this broker serves: one row for each.

Owns the one table of them. A row says what a request does, in which versions it is served, at which steps of
authentication, what it needs, its answer where it fails as a whole, and its handler. It may be narrower than
`protocol.schema.APIS`, which lists what has codecs: an API without a row, or a version that a row leaves out
(by `_replace`), is neither advertised nor served. `docs/authorization` shows what each API needs.

Invariants: rows are plain data, by ascending key; the tests go through them: each need is necessary, and all
needs of an API together are enough.

Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from tidelog.broker.handlers import error_answers as failed
from tidelog.broker.handlers.access_control import AccessControl, guarded
from tidelog.broker.handlers.acls import AclsHandler
from tidelog.broker.handlers.client_quotas import ClientQuotasHandler
from tidelog.broker.handlers.cluster_admin import ClusterAdminHandler
from tidelog.broker.handlers.configs import ConfigsHandler
from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.handlers.console import ConsoleHandler
from tidelog.broker.handlers.consumer_groups import ConsumerGroupsHandler
from tidelog.broker.handlers.context import Handler, RequestContext
from tidelog.broker.handlers.coordinators import CoordinatorsHandler
from tidelog.broker.handlers.error_answers import ErrorAnswer
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.group_admin import GroupAdminHandler
from tidelog.broker.handlers.group_membership import GroupMembershipHandler
from tidelog.broker.handlers.group_offsets import GroupOffsetsHandler
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.broker.handlers.offset_commits import OffsetCommitsHandler
from tidelog.broker.handlers.offsets import OffsetsHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.producers import ProducersHandler
from tidelog.broker.handlers.sasl import SaslHandler
from tidelog.broker.handlers.snapshots import SnapshotsHandler
from tidelog.broker.handlers.telemetry import TelemetryHandler
from tidelog.broker.handlers.topic_partitions import TopicPartitionsHandler
from tidelog.broker.handlers.topics import TopicsHandler
from tidelog.broker.handlers.transaction_markers import TransactionMarkersHandler
from tidelog.broker.handlers.transactions import TransactionsHandler
from tidelog.broker.handlers.users import UsersHandler
from tidelog.broker.security import required_access as right
from tidelog.broker.security.required_access import NOTHING, Effect, Need, each, shown, whole
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import APIS, ApiKey, encode_response
from tidelog.protocol.types import NO_OFFSET

SIGNED_IN: Final = frozenset((AuthenticationStep.NOT_REQUIRED, AuthenticationStep.AUTHENTICATED))
"""Where the client is who it is: authenticated, or on a listener without SASL."""
_BEFORE_TOO: Final = SIGNED_IN | {AuthenticationStep.HANDSHAKE}
_HANDSHAKE: Final = frozenset(
    (AuthenticationStep.HANDSHAKE, AuthenticationStep.AUTHENTICATED, AuthenticationStep.EXPIRED)
)
_TOKENS: Final = frozenset((AuthenticationStep.AUTHENTICATING, AuthenticationStep.REAUTHENTICATING))


class Kind(Enum):
    """What a request does. It decides whether later requests of its connection wait for its answer.

    Here a request holds back later ones only if a client could otherwise see the difference.
    """

    APPEND = auto()
    """Takes effect before its handler returns and is answered once it is durable. Later requests are served
    meanwhile, so that five may be in flight."""
    LONG_POLL = auto()
    """Reads the state at the time of its answer, which may be much later. Later requests are served
    meanwhile: they take effect sooner than in Kafka, but their answers are still sent after its own."""
    READ = auto()
    """Reads, also after its handler returned. Later requests may change that state, so they wait."""
    CHANGE = auto()
    """Takes effect at any time until it is answered. Later requests must see the effect, so they wait."""
    LONG_CHANGE = auto()
    """A change that is answered when other clients have sent theirs, which may be much later. As in Kafka,
    later requests wait until then: a heartbeat behind a join belongs to the generation in the answer to the
    join."""

    @property
    def holds_back(self) -> bool:
        """Whether later requests of the connection wait until such a request is answered."""
        return self in (Kind.READ, Kind.CHANGE, Kind.LONG_CHANGE)

    @property
    def may_be_long(self) -> bool:
        """Whether it waits for other clients. A stop of the broker does not wait for that."""
        return self in (Kind.LONG_POLL, Kind.LONG_CHANGE)


class ServedApi(NamedTuple):
    """Serves one API in the versions `first` to `last`. ApiVersions names them from `advertised_first` on."""

    key: ApiKey
    kind: Kind
    handler: Callable[[Any, RequestContext, Any], Any] | str
    """The method of a class that is made of Services. A text names one that is imported with the first
    request, by its module in `handlers`, class and name."""
    error_answer: ErrorAnswer
    needs: tuple[Need, ...]
    open_at: frozenset[AuthenticationStep]
    first: int
    last: int
    advertised_first: int

    def has(self, version: int) -> bool:
        return self.first <= version <= self.last


def _api(
    key: ApiKey,
    kind: Kind,
    handler: Callable[[Any, RequestContext, Any], Any] | str,
    error_answer: ErrorAnswer,
    needs: tuple[Need, ...],
    open_at: frozenset[AuthenticationStep] = SIGNED_IN,
) -> ServedApi:
    """A row in each version that has codecs."""
    first, last = APIS[key].min_version, APIS[key].max_version
    return ServedApi(key, kind, handler, error_answer, needs, open_at, first, last, first)


_MEMBER: Final = (whole(right.READ_GROUP, field="group_id"),)
_OF_CONSUMED: Final = "not for offsets of __transaction_state, which has no consumers"
_OF_BROKERS: Final = "it names brokers or client metrics"
_RESOURCE: Final = ("resource_type", "resource_name")
_SHARE_STATE: Final = failed.by_partition(("topic_id",), "partition", results="results", has_message=True)
_SEES_OPERATIONS: Final = shown(
    right.DESCRIBE_CLUSTER, when="it asks for the authorized operations of the cluster"
)

# fmt: off
ROWS: Final = (
    # Advertised from 0: librdkafka before 2.11.1 otherwise turns compression off (KAFKA-18659).
    _api(ApiKey.PRODUCE, Kind.APPEND, ProduceHandler.__call__,
        failed.produce, (
            Need((right.WRITE_TRANSACTION,), Effect.REFUSED, "it names a transactional id"),
            each(right.WRITE_TOPIC),
        ))._replace(advertised_first=0),
    _api(ApiKey.FETCH, Kind.LONG_POLL, FetchHandler.handle,
        failed.fetch, (
            each(right.READ_TOPIC, when="it names no replica id"),
            Need((right.CLUSTER_ACTION,), Effect.REFUSED_ALONE,
                 "it names a replica id; each topic is refused",
                 code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        )),
    _api(ApiKey.LIST_OFFSETS, Kind.READ, OffsetsHandler.list_offsets,
        failed.by_partition(), (each(right.DESCRIBE_TOPIC),)),
    _api(ApiKey.METADATA, Kind.CHANGE, MetadataHandler.metadata,  # Creates topics.
        failed.metadata, (
            each(right.DESCRIBE_TOPIC, when="it names topics"),
            shown(right.DESCRIBE_TOPIC, when="it asks for all topics"),
            each(right.CREATE_CLUSTER, right.CREATE_TOPIC, when="it creates a topic that does not exist"),
            _SEES_OPERATIONS,
        )),
    _api(ApiKey.OFFSET_COMMIT, Kind.CHANGE, OffsetCommitsHandler.offset_commit,
        failed.by_partition(("name", "topic_id")), (*_MEMBER, each(right.READ_TOPIC, when=_OF_CONSUMED))),
    _api(ApiKey.OFFSET_FETCH, Kind.READ, GroupOffsetsHandler.offset_fetch,
        failed.offset_fetch, (
            each(right.DESCRIBE_GROUP),
            each(right.DESCRIBE_TOPIC, when=f"it names topics; {_OF_CONSUMED}"),
            shown(right.DESCRIBE_TOPIC, when=f"it asks for all topics; {_OF_CONSUMED}"),
        )),
    _api(ApiKey.FIND_COORDINATOR, Kind.CHANGE, CoordinatorsHandler.find_coordinator,  # Creates topics.
        failed.find_coordinator, (
            each(right.DESCRIBE_GROUP, when="it asks for groups"),
            each(right.DESCRIBE_TRANSACTION, when="it asks for transactional ids"),
            each(right.CLUSTER_ACTION, when="it asks for share partitions"),
        )),
    _api(ApiKey.JOIN_GROUP, Kind.LONG_CHANGE, GroupMembershipHandler.join_group, failed.join_group, _MEMBER),
    _api(ApiKey.HEARTBEAT, Kind.CHANGE, GroupMembershipHandler.heartbeat, failed.top_level, _MEMBER),
    _api(ApiKey.LEAVE_GROUP, Kind.CHANGE, GroupMembershipHandler.leave_group, failed.top_level, _MEMBER),
    _api(ApiKey.SYNC_GROUP, Kind.LONG_CHANGE, GroupMembershipHandler.sync_group, failed.top_level, _MEMBER),
    _api(ApiKey.DESCRIBE_GROUPS, Kind.READ, GroupAdminHandler.describe_groups,
        failed.by_element("groups", "groups", "group_id", has_message=False), (each(right.DESCRIBE_GROUP),)),
    _api(ApiKey.LIST_GROUPS, Kind.READ, GroupAdminHandler.list_groups,
        failed.top_level, (shown(right.DESCRIBE_CLUSTER, right.DESCRIBE_GROUP),)),
    _api(ApiKey.SASL_HANDSHAKE, Kind.CHANGE, SaslHandler.handshake,
        failed.top_level, NOTHING, open_at=_HANDSHAKE),
    _api(ApiKey.API_VERSIONS, Kind.READ, MetadataHandler.api_versions,
        failed.top_level, NOTHING, open_at=_BEFORE_TOO),
    _api(ApiKey.CREATE_TOPICS, Kind.CHANGE, TopicsHandler.create_topics,
        failed.by_element("topics", "topics", "name"), (
            each(right.CREATE_CLUSTER, right.CREATE_TOPIC),
            shown(right.DESCRIBE_TOPIC_CONFIGS, when="for the settings of the new topic in the answer"),
        )),
    _api(ApiKey.DELETE_TOPICS, Kind.CHANGE, TopicsHandler.delete_topics,
        failed.delete_topics, (
            each(right.DELETE_CLUSTER, right.DELETE_TOPIC),
            shown(right.DELETE_CLUSTER, right.DESCRIBE_TOPIC,
                  when="for the name of a topic that it names by id"),
        )),
    _api(ApiKey.DELETE_RECORDS, Kind.CHANGE, OffsetsHandler.delete_records,
        failed.by_partition(low_watermark=NO_OFFSET), (each(right.DELETE_TOPIC),)),
    _api(ApiKey.INIT_PRODUCER_ID, Kind.CHANGE, ProducersHandler.init_producer_id,
        failed.top_level_and(producer_id=-1, producer_epoch=-1), (
            whole(right.WRITE_TRANSACTION, field="transactional_id", when="it names a transactional id"),
            Need((right.TWO_PHASE_COMMIT,), Effect.REFUSED, "it asks for two-phase commit"),
            Need((right.WRITE_TOPIC, right.IDEMPOTENT_WRITE), Effect.REFUSED,
                 "it names no transactional id; Write on any topic is enough"),
        )),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, Kind.READ, OffsetsHandler.offset_for_leader_epoch,
        failed.by_partition(("topic",), "partition"), (each(right.CLUSTER_ACTION, right.DESCRIBE_TOPIC),)),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, Kind.CHANGE, TransactionsHandler.add_partitions_to_txn,
        failed.add_partitions_to_txn, (
            whole(right.WRITE_TRANSACTION, field="v3_and_below_transactional_id", last=3),
            each(right.WRITE_TOPIC, last=3),
            whole(right.CLUSTER_ACTION, first=4),
        )),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, Kind.CHANGE, TransactionsHandler.add_offsets_to_txn,
        failed.top_level, (
            whole(right.WRITE_TRANSACTION, field="transactional_id"),
            whole(right.READ_GROUP, field="group_id"),
        )),
    _api(ApiKey.END_TXN, Kind.CHANGE, TransactionsHandler.end_txn,
        failed.top_level, (whole(right.WRITE_TRANSACTION, field="transactional_id"),)),
    _api(ApiKey.WRITE_TXN_MARKERS, Kind.CHANGE, TransactionMarkersHandler.write_txn_markers,
        failed.write_txn_markers, (whole(right.ALTER_CLUSTER, right.CLUSTER_ACTION),)),
    _api(ApiKey.TXN_OFFSET_COMMIT, Kind.CHANGE, OffsetCommitsHandler.txn_offset_commit,
        failed.by_partition(), (
            whole(right.WRITE_TRANSACTION, field="transactional_id"),
            whole(right.READ_GROUP, field="group_id"),
            each(right.READ_TOPIC, when=_OF_CONSUMED),
        )),
    _api(ApiKey.DESCRIBE_ACLS, Kind.READ, AclsHandler.describe_acls,
        failed.top_level_with_message, (whole(right.DESCRIBE_CLUSTER),)),
    _api(ApiKey.CREATE_ACLS, Kind.CHANGE, AclsHandler.create_acls,
        failed.by_element("results", "creations"), (whole(right.ALTER_CLUSTER),)),
    _api(ApiKey.DELETE_ACLS, Kind.CHANGE, AclsHandler.delete_acls,
        failed.by_element("filter_results", "filters"), (whole(right.ALTER_CLUSTER),)),
    _api(ApiKey.DESCRIBE_CONFIGS, Kind.READ, ConfigsHandler.describe_configs,
        failed.by_element("results", "resources", *_RESOURCE), (
            each(right.DESCRIBE_TOPIC_CONFIGS, when="it names topics"),
            each(right.DESCRIBE_CLUSTER_CONFIGS, when=_OF_BROKERS),
            each(right.DESCRIBE_GROUP_CONFIGS, when="it names groups"),
        )),
    _api(ApiKey.ALTER_CONFIGS, Kind.CHANGE, ConfigsHandler.alter_configs,
        failed.by_element("responses", "resources", *_RESOURCE), (
            each(right.ALTER_TOPIC_CONFIGS, when="it names topics"),
            each(right.ALTER_CLUSTER_CONFIGS, when=_OF_BROKERS),
            each(right.ALTER_GROUP_CONFIGS, when="it names groups"),
        )),
    _api(ApiKey.ALTER_REPLICA_LOG_DIRS, Kind.READ, ClusterAdminHandler.alter_replica_log_dirs,
        failed.alter_replica_log_dirs, (whole(right.ALTER_CLUSTER),)),
    _api(ApiKey.DESCRIBE_LOG_DIRS, Kind.READ, ClusterAdminHandler.describe_log_dirs,
        failed.describe_log_dirs, (whole(right.DESCRIBE_CLUSTER),)),
    _api(ApiKey.SASL_AUTHENTICATE, Kind.CHANGE, SaslHandler.authenticate,
        failed.top_level_with_message, NOTHING, open_at=_TOKENS),
    _api(ApiKey.CREATE_PARTITIONS, Kind.CHANGE, TopicsHandler.create_partitions,
        failed.by_element("results", "topics", "name"), (each(right.ALTER_TOPIC),)),
    _api(ApiKey.DELETE_GROUPS, Kind.CHANGE, GroupAdminHandler.delete_groups,
        failed.by_element("results", "groups_names", "group_id", has_message=False),
        (each(right.DELETE_GROUP),)),
    _api(ApiKey.ELECT_LEADERS, Kind.CHANGE, ClusterAdminHandler.elect_leaders,
        failed.elect_leaders, (whole(right.ALTER_CLUSTER),)),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, Kind.CHANGE, ConfigsHandler.incremental_alter_configs,
        failed.by_element("responses", "resources", *_RESOURCE), (
            each(right.ALTER_TOPIC_CONFIGS, when="it names topics"),
            each(right.ALTER_CLUSTER_CONFIGS, when=_OF_BROKERS),
            each(right.ALTER_GROUP_CONFIGS, when="it names groups"),
        )),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, Kind.CHANGE, ClusterAdminHandler.alter_partition_reassignments,
        failed.top_level_with_message, (whole(right.ALTER_CLUSTER),)),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, Kind.READ, ClusterAdminHandler.list_partition_reassignments,
        failed.top_level_with_message, (whole(right.DESCRIBE_CLUSTER),)),
    _api(ApiKey.OFFSET_DELETE, Kind.CHANGE, GroupOffsetsHandler.offset_delete,
        failed.top_level, (whole(right.DELETE_GROUP, field="group_id"), each(right.READ_TOPIC))),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, Kind.READ, ClientQuotasHandler.describe_client_quotas,
        failed.top_level_and(entries=None, has_message=True), (whole(right.DESCRIBE_CLUSTER_CONFIGS),)),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, Kind.CHANGE, ClientQuotasHandler.alter_client_quotas,
        failed.alter_client_quotas, (whole(right.ALTER_CLUSTER_CONFIGS),)),
    _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Kind.READ, UsersHandler.describe,
        failed.top_level_with_message, (whole(right.DESCRIBE_CLUSTER),)),
    _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, Kind.CHANGE, UsersHandler.alter,
        failed.alter_user_scram_credentials, (whole(right.ALTER_CLUSTER),)),
    _api(ApiKey.DESCRIBE_QUORUM, Kind.READ, ClusterAdminHandler.describe_quorum,
        failed.top_level_with_message, (whole(right.DESCRIBE_CLUSTER),)),
    _api(ApiKey.UPDATE_FEATURES, Kind.READ, ClusterAdminHandler.update_features,
        failed.top_level_with_message, (whole(right.ALTER_CLUSTER),)),
    _api(ApiKey.FETCH_SNAPSHOT, Kind.READ, SnapshotsHandler.fetch_snapshot,
        failed.top_level_and(topics=[]), (whole(right.CLUSTER_ACTION),)),
    _api(ApiKey.DESCRIBE_CLUSTER, Kind.READ, MetadataHandler.describe_cluster,
        failed.top_level_with_message, (_SEES_OPERATIONS,)),
    _api(ApiKey.DESCRIBE_PRODUCERS, Kind.READ, ProducersHandler.describe_producers,
        failed.by_partition(partitions="partition_indexes", has_message=True), (each(right.READ_TOPIC),)),
    _api(ApiKey.UNREGISTER_BROKER, Kind.CHANGE, ClusterAdminHandler.unregister_broker,
        failed.top_level_with_message, (whole(right.ALTER_CLUSTER),)),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, Kind.READ, TransactionsHandler.describe_transactions,
        failed.by_element("transaction_states", "transactional_ids", "transactional_id", has_message=False),
        (each(right.DESCRIBE_TRANSACTION), shown(right.DESCRIBE_TOPIC))),
    _api(ApiKey.LIST_TRANSACTIONS, Kind.READ, TransactionsHandler.list_transactions,
        failed.top_level, (shown(right.DESCRIBE_TRANSACTION),)),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, Kind.CHANGE, ConsumerGroupsHandler.heartbeat,
        failed.top_level_with_message, (
            whole(right.READ_GROUP, field="group_id"),
            Need((right.DESCRIBE_TOPIC,), Effect.REFUSED, "it names topics; each of them"),
            shown(right.DESCRIBE_TOPIC, when="it subscribes by a regular expression"),
        )),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, Kind.READ, ConsumerGroupsHandler.describe,
        failed.by_element("groups", "group_ids", "group_id"), (
            each(right.DESCRIBE_GROUP),
            each(right.DESCRIBE_TOPIC,
                 when="topics are assigned to members of the group; the group is refused"),
        )),
    _api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, Kind.READ, TelemetryHandler.get_telemetry_subscriptions,
        failed.top_level, NOTHING),
    _api(ApiKey.PUSH_TELEMETRY, Kind.LONG_POLL, TelemetryHandler.push_telemetry, failed.top_level, NOTHING),
    _api(ApiKey.LIST_CONFIG_RESOURCES, Kind.READ, ClusterAdminHandler.list_config_resources,
        failed.top_level, (whole(right.DESCRIBE_CLUSTER_CONFIGS),)),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, Kind.READ, TopicPartitionsHandler.describe_topic_partitions,
        failed.by_element("topics", "topics", "name", has_message=False), (
            each(right.DESCRIBE_TOPIC, when="it names topics"),
            shown(right.DESCRIBE_TOPIC, when="it asks for all topics"),
        )),
    _api(ApiKey.SHARE_GROUP_HEARTBEAT, Kind.CHANGE, "share_groups.ShareGroupsHandler.heartbeat",
        failed.top_level_with_message, (
            whole(right.READ_GROUP, field="group_id"),
            Need((right.DESCRIBE_TOPIC,), Effect.REFUSED, "it names topics; each of them"),
        )),
    _api(ApiKey.SHARE_GROUP_DESCRIBE, Kind.READ, "share_groups.ShareGroupsHandler.describe",
        failed.by_element("groups", "group_ids", "group_id"), (
            each(right.DESCRIBE_GROUP),
            each(right.DESCRIBE_TOPIC,
                 when="topics are assigned to members of the group; the group is refused"),
        )),
    _api(ApiKey.SHARE_FETCH, Kind.LONG_POLL, "share_fetch.ShareFetchHandler.fetch",
        failed.top_level_with_message, (
            whole(right.READ_GROUP, field="group_id"), each(right.READ_TOPIC),
        )),
    _api(ApiKey.SHARE_ACKNOWLEDGE, Kind.CHANGE, "share_fetch.ShareFetchHandler.acknowledge",
        failed.top_level_with_message, (
            whole(right.READ_GROUP, field="group_id"), each(right.READ_TOPIC),
        )),
    _api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, Kind.LONG_POLL, "share_states.ShareStatesHandler.initialize",
        _SHARE_STATE, (whole(right.CLUSTER_ACTION),)),
    _api(ApiKey.READ_SHARE_GROUP_STATE, Kind.LONG_POLL, "share_states.ShareStatesHandler.read",
        _SHARE_STATE, (whole(right.CLUSTER_ACTION),)),
    _api(ApiKey.WRITE_SHARE_GROUP_STATE, Kind.LONG_POLL, "share_states.ShareStatesHandler.write",
        _SHARE_STATE, (whole(right.CLUSTER_ACTION),)),
    _api(ApiKey.DELETE_SHARE_GROUP_STATE, Kind.LONG_POLL, "share_states.ShareStatesHandler.delete",
        _SHARE_STATE, (whole(right.CLUSTER_ACTION),)),
    _api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, Kind.LONG_POLL, "share_states.ShareStatesHandler.summary",
        _SHARE_STATE, (whole(right.CLUSTER_ACTION),)),
    _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, Kind.READ, "share_groups.ShareGroupsHandler.describe_offsets",
        failed.by_element("groups", "groups", "group_id"), (
            each(right.DESCRIBE_GROUP),
            each(right.DESCRIBE_TOPIC, when="it names topics"),
            shown(right.DESCRIBE_TOPIC, when="it asks for all topics"),
        )),
    _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, Kind.CHANGE, "share_groups.ShareGroupsHandler.alter_offsets",
        failed.top_level_with_message, (
            whole(right.READ_GROUP, field="group_id"), each(right.READ_TOPIC),
        )),
    _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, Kind.CHANGE, "share_groups.ShareGroupsHandler.delete_offsets",
        failed.top_level_with_message, (
            whole(right.DELETE_GROUP, field="group_id"), each(right.READ_TOPIC),
        )),
    _api(ApiKey.ASK_CONSOLE, Kind.LONG_POLL, ConsoleHandler.ask_console,
        failed.top_level_with_message, (
            whole(right.CLUSTER_ACTION, when="always; only a super user may name another user"),
        )),
)
# fmt: on
SERVED_APIS: Mapping[ApiKey, ServedApi] = {row.key: row for row in ROWS}
BETWEEN_BROKERS: Final = frozenset((ApiKey.FETCH_SNAPSHOT, ApiKey.ASK_CONSOLE))
"""No client asks for these, so a broker alone does not name them."""


def build_handlers(services: Services) -> dict[ApiKey, Handler]:
    """The handler of each row, over open services. Call it on the running loop."""
    access = AccessControl(services)
    advertised = SERVED_APIS if services.membership is not None else SERVED_APIS.keys() - BETWEEN_BROKERS
    owners: dict[type, Any] = {MetadataHandler: MetadataHandler(services, advertised_api_keys(advertised))}
    handlers = {}
    for row in SERVED_APIS.values():
        if isinstance(row.handler, str):
            handler = _later(services, owners, row.handler)
        else:
            handler = _bound(services, owners, row.handler)
        if services.membership is not None:
            from tidelog.broker.handlers.cut_off import refused_while_cut_off

            handler = refused_while_cut_off(services.membership, row.key, handler)
        handlers[row.key] = guarded(access, row.needs, handler)
    return handlers


def _bound(services: Services, owners: dict[type, Any], method: Callable[..., Any]) -> Handler:
    """The method of the one object of its class."""
    owner: type = getattr(sys.modules[method.__module__], method.__qualname__.partition(".")[0])
    if owner not in owners:
        owners[owner] = owner(services)
    handler: Handler = method.__get__(owners[owner])
    return handler


def _later(services: Services, owners: dict[type, Any], path: str) -> Handler:
    @cache
    def handler() -> Handler:
        module, owner, name = path.split(".")
        imported = getattr(import_module(f"tidelog.broker.handlers.{module}"), owner)
        return _bound(services, owners, getattr(imported, name))

    return lambda context, request: handler()(context, request)


def advertised_api_keys(
    keys: Iterable[ApiKey] = SERVED_APIS,
) -> list[DictOf[types.ApiVersionsResponseApiKey]]:
    """The `api_keys` of an ApiVersions response for these APIs, in ascending order."""
    return [
        {
            "api_key": int(key),
            "min_version": SERVED_APIS[key].advertised_first,
            "max_version": SERVED_APIS[key].last,
        }
        for key in sorted(keys)
    ]


@cache
def unsupported_api_versions_body() -> bytes:
    """The answer to an ApiVersions request of an unknown version: a version 0 body with error 35."""
    values = {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": advertised_api_keys((ApiKey.API_VERSIONS,)),
    }
    return encode_response(ApiKey.API_VERSIONS, 0, values)


_WHEN: Final = {
    AuthenticationStep.HANDSHAKE: "before SaslHandshake: set security.protocol to SASL_PLAINTEXT or SASL_SSL",
    AuthenticationStep.AUTHENTICATING: "during SASL authentication",
    AuthenticationStep.AUTHENTICATED: "after SASL authentication",
    AuthenticationStep.REAUTHENTICATING: "during SASL re-authentication",
    AuthenticationStep.EXPIRED: "after the session has ended (connections.max.reauth.ms): authenticate again",
    AuthenticationStep.FAILED: "after SASL authentication failed",
}


def refusal(api_key: ApiKey, step: AuthenticationStep) -> ApiError | None:
    """Why this API is refused at this step; None if it is open."""
    if step in SERVED_APIS[api_key].open_at:
        return None
    if step is AuthenticationStep.NOT_REQUIRED:
        reason = "this listener has no SASL: connect with security.protocol=PLAINTEXT or SSL"
    else:
        reason = f"{APIS[api_key].name} is not allowed {_WHEN[step]}"
    return ApiError(ErrorCode.ILLEGAL_SASL_STATE, reason)


def closes(step: AuthenticationStep) -> bool:
    """Whether a request that is refused at this step ends the connection, as in Kafka."""
    return step not in SIGNED_IN
