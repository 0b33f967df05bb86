"""The APIs and versions that producers, consumers and administrators request (see `wire.asked_apis`).

Pure.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.protocol.schema import ApiKey
from tidelog.wire.asked_apis import OWN_APIS, AskedApis, Versions, every_version

ASKED_APIS: Final[AskedApis] = OWN_APIS | {
    # From version 13 on it names topics by id, which a record may not wait for.
    ApiKey.PRODUCE: Versions(3, 12),
    ApiKey.FETCH: Versions(4, 16),
    ApiKey.LIST_OFFSETS: Versions(1, 9),
    # The first that consumers may send.
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(3, 4),
    ApiKey.OFFSET_COMMIT: Versions(2, 10),
    ApiKey.OFFSET_FETCH: Versions(2, 10),
    # It has a list of keys from version 4 on.
    ApiKey.FIND_COORDINATOR: Versions(1, 3),
    ApiKey.JOIN_GROUP: Versions(2, 9),
    ApiKey.HEARTBEAT: Versions(1, 4),
    # Before version 3 a member leaves alone, not in a list.
    ApiKey.LEAVE_GROUP: Versions(3, 5),
    ApiKey.SYNC_GROUP: Versions(1, 5),
    # From version 1 on, members choose their ids.
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Versions(1, 1),
    # From version 6 on, an unknown group is an error.
    ApiKey.DESCRIBE_GROUPS: Versions(0, 5),
    ApiKey.CONSUMER_GROUP_DESCRIBE: every_version(ApiKey.CONSUMER_GROUP_DESCRIBE),
    ApiKey.LIST_GROUPS: every_version(ApiKey.LIST_GROUPS),
    ApiKey.CREATE_TOPICS: Versions(2, 7),
    ApiKey.DELETE_TOPICS: Versions(1, 6),
    ApiKey.DELETE_RECORDS: every_version(ApiKey.DELETE_RECORDS),
    ApiKey.INIT_PRODUCER_ID: Versions(0, 6),
    # From version 4 on, only brokers send it.
    ApiKey.ADD_PARTITIONS_TO_TXN: Versions(0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: every_version(ApiKey.ADD_OFFSETS_TO_TXN),
    ApiKey.TXN_OFFSET_COMMIT: every_version(ApiKey.TXN_OFFSET_COMMIT),
    ApiKey.END_TXN: every_version(ApiKey.END_TXN),
    ApiKey.DESCRIBE_ACLS: every_version(ApiKey.DESCRIBE_ACLS),
    ApiKey.CREATE_ACLS: every_version(ApiKey.CREATE_ACLS),
    ApiKey.DELETE_ACLS: every_version(ApiKey.DELETE_ACLS),
    ApiKey.DESCRIBE_CONFIGS: Versions(1, 4),
    ApiKey.CREATE_PARTITIONS: Versions(0, 3),
    ApiKey.DELETE_GROUPS: every_version(ApiKey.DELETE_GROUPS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: every_version(ApiKey.DESCRIBE_CLIENT_QUOTAS),
    ApiKey.ALTER_CLIENT_QUOTAS: every_version(ApiKey.ALTER_CLIENT_QUOTAS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0),
    ApiKey.DESCRIBE_PRODUCERS: Versions(0, 0),
    ApiKey.UNREGISTER_BROKER: Versions(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Versions(0, 0),
    ApiKey.LIST_TRANSACTIONS: Versions(0, 2),
    ApiKey.SHARE_GROUP_HEARTBEAT: every_version(ApiKey.SHARE_GROUP_HEARTBEAT),
    ApiKey.SHARE_GROUP_DESCRIBE: every_version(ApiKey.SHARE_GROUP_DESCRIBE),
    ApiKey.SHARE_FETCH: every_version(ApiKey.SHARE_FETCH),
    ApiKey.SHARE_ACKNOWLEDGE: every_version(ApiKey.SHARE_ACKNOWLEDGE),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: every_version(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: every_version(ApiKey.ALTER_SHARE_GROUP_OFFSETS),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: every_version(ApiKey.DELETE_SHARE_GROUP_OFFSETS),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Versions(0, 0),
    ApiKey.PUSH_TELEMETRY: Versions(0, 0),
}

LAST_BY_NAME: Final = {ApiKey.FETCH: 12, ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}
"""From the next versions on, requests name topics by id."""

LAST_WITHOUT_EPOCHS: Final = {ApiKey.TXN_OFFSET_COMMIT: 4, ApiKey.END_TXN: 4}
"""From the next versions on, requests expect an epoch per transaction, and brokers that add what is missing.
"""


def has_epoch_per_transaction(features: Mapping[str, int]) -> bool:
    """Whether a cluster that has finalized these features gives each transaction an epoch of its own."""
    return features.get("transaction.version", 0) >= 2
