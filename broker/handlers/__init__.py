"""Request values in, response values out: one handler for each API that this broker serves.

Owns the table from API key to handler. A handler is a plain function: everything that depends on the order of
arrival happens before it returns, and it returns the response or an awaitable of it.

Invariants: a refusal is a code in the response, never an exception; views in a request are not used after the
handler returned; every API that is listed here is answered completely.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidelog.broker.handlers.access_control import guarded
from tidelog.broker.handlers.acls import AclsHandler
from tidelog.broker.handlers.client_quotas import ClientQuotasHandler
from tidelog.broker.handlers.cluster_admin import ClusterAdminHandler
from tidelog.broker.handlers.configs import ConfigsHandler
from tidelog.broker.handlers.consumer_groups import ConsumerGroupsHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.handlers.coordinators import CoordinatorsHandler
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
from tidelog.broker.handlers.topic_partitions import TopicPartitionsHandler
from tidelog.broker.handlers.topics import TopicsHandler
from tidelog.broker.handlers.transaction_markers import TransactionMarkersHandler
from tidelog.broker.handlers.transactions import TransactionsHandler
from tidelog.broker.handlers.users import UsersHandler
from tidelog.broker.services import Services
from tidelog.protocol.schema import ApiKey

Response = Any
"""A mapping for `encode_response`; for Produce its topics or None (no answer); for Fetch a FetchResponse."""
Handler = Callable[[RequestContext, Any], Response | Awaitable[Response]]


def build_handlers(services: Services) -> Mapping[ApiKey, Handler]:
    """Handlers over open services. Call it on the running loop.

    Raises ValueError if the table of required access lacks one of their APIs.
    """
    return guarded(services, {**_of_data(services), **_of_security(services)})


def _of_data(services: Services) -> Mapping[ApiKey, Handler]:
    cluster_admin = ClusterAdminHandler(services)
    consumer_groups = ConsumerGroupsHandler(services)
    group_admin = GroupAdminHandler(services)
    group_membership = GroupMembershipHandler(services)
    group_offsets = GroupOffsetsHandler(services)
    metadata = MetadataHandler(services)
    offset_commits = OffsetCommitsHandler(services)
    offsets = OffsetsHandler(services)
    topics = TopicsHandler(services)
    configs = ConfigsHandler(services)
    producers = ProducersHandler(services)
    transactions = TransactionsHandler(services)
    return {
        ApiKey.PRODUCE: ProduceHandler(services),
        ApiKey.FETCH: FetchHandler(services).handle,
        ApiKey.LIST_OFFSETS: offsets.list_offsets,
        ApiKey.METADATA: metadata.metadata,
        ApiKey.OFFSET_COMMIT: offset_commits.offset_commit,
        ApiKey.OFFSET_FETCH: group_offsets.offset_fetch,
        ApiKey.OFFSET_DELETE: group_offsets.offset_delete,
        ApiKey.FIND_COORDINATOR: CoordinatorsHandler(services).find_coordinator,
        ApiKey.JOIN_GROUP: group_membership.join_group,
        ApiKey.HEARTBEAT: group_membership.heartbeat,
        ApiKey.LEAVE_GROUP: group_membership.leave_group,
        ApiKey.SYNC_GROUP: group_membership.sync_group,
        ApiKey.DESCRIBE_GROUPS: group_admin.describe_groups,
        ApiKey.LIST_GROUPS: group_admin.list_groups,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_groups.heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_groups.describe,
        ApiKey.API_VERSIONS: metadata.api_versions,
        ApiKey.CREATE_TOPICS: topics.create_topics,
        ApiKey.DELETE_TOPICS: topics.delete_topics,
        ApiKey.DELETE_RECORDS: offsets.delete_records,
        ApiKey.INIT_PRODUCER_ID: producers.init_producer_id,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
        ApiKey.WRITE_TXN_MARKERS: TransactionMarkersHandler(services).write_txn_markers,
        ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
        ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
        ApiKey.END_TXN: transactions.end_txn,
        ApiKey.TXN_OFFSET_COMMIT: offset_commits.txn_offset_commit,
        ApiKey.DESCRIBE_CONFIGS: configs.describe_configs,
        ApiKey.ALTER_CONFIGS: configs.alter_configs,
        ApiKey.CREATE_PARTITIONS: topics.create_partitions,
        ApiKey.DELETE_GROUPS: group_admin.delete_groups,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
        ApiKey.DESCRIBE_CLUSTER: metadata.describe_cluster,
        ApiKey.DESCRIBE_PRODUCERS: producers.describe_producers,
        ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
        ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
        ApiKey.DESCRIBE_LOG_DIRS: cluster_admin.describe_log_dirs,
        ApiKey.ELECT_LEADERS: cluster_admin.elect_leaders,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: cluster_admin.alter_partition_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: cluster_admin.list_partition_reassignments,
        ApiKey.DESCRIBE_QUORUM: cluster_admin.describe_quorum,
        ApiKey.UPDATE_FEATURES: cluster_admin.update_features,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: cluster_admin.get_telemetry_subscriptions,
        ApiKey.LIST_CONFIG_RESOURCES: cluster_admin.list_config_resources,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: TopicPartitionsHandler(services).describe_topic_partitions,
    }


def _of_security(services: Services) -> Mapping[ApiKey, Handler]:
    acls = AclsHandler(services)
    client_quotas = ClientQuotasHandler(services)
    sasl = SaslHandler(services)
    users = UsersHandler(services)
    return {
        ApiKey.SASL_HANDSHAKE: sasl.handshake,
        ApiKey.SASL_AUTHENTICATE: sasl.authenticate,
        ApiKey.DESCRIBE_ACLS: acls.describe_acls,
        ApiKey.CREATE_ACLS: acls.create_acls,
        ApiKey.DELETE_ACLS: acls.delete_acls,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.describe_client_quotas,
        ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.alter_client_quotas,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: users.describe,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: users.alter,
    }
