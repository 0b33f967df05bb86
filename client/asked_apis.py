"""The APIs and versions that this client requests.

Owns the one table of them. It may be narrower than `protocol.schema.APIS`, the table of codecs: a version
that is not listed here is never requested, even if a broker offers it.

Invariant: pure; every listed API has codecs for its versions (a test checks this).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.protocol.schema import APIS, ApiKey


class Versions(NamedTuple):
    """The versions `first` to `last`."""

    first: int
    last: int


def _every_version(key: ApiKey) -> Versions:
    """Each version that has codecs."""
    return Versions(APIS[key].min_version, APIS[key].max_version)


ASKED_APIS: Final[Mapping[ApiKey, Versions]] = {
    ApiKey.PRODUCE: _every_version(ApiKey.PRODUCE),
    ApiKey.FETCH: _every_version(ApiKey.FETCH),
    ApiKey.LIST_OFFSETS: Versions(1, 7),
    ApiKey.METADATA: Versions(0, 12),
    # OffsetFetch has a list of groups from version 8 on, FindCoordinator a list of keys from version 4 on.
    ApiKey.OFFSET_COMMIT: Versions(2, 9),
    ApiKey.OFFSET_FETCH: Versions(2, 7),
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
    ApiKey.CONSUMER_GROUP_DESCRIBE: _every_version(ApiKey.CONSUMER_GROUP_DESCRIBE),
    ApiKey.LIST_GROUPS: _every_version(ApiKey.LIST_GROUPS),
    # In version 0, what follows has no header and no error code.
    ApiKey.SASL_HANDSHAKE: Versions(1, 1),
    ApiKey.SASL_AUTHENTICATE: _every_version(ApiKey.SASL_AUTHENTICATE),
    ApiKey.API_VERSIONS: Versions(0, 4),
    ApiKey.CREATE_TOPICS: Versions(2, 7),
    ApiKey.DELETE_TOPICS: Versions(1, 6),
    ApiKey.DELETE_RECORDS: _every_version(ApiKey.DELETE_RECORDS),
    ApiKey.INIT_PRODUCER_ID: Versions(0, 6),
    # From version 4 on, only brokers send it.
    ApiKey.ADD_PARTITIONS_TO_TXN: Versions(0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: _every_version(ApiKey.ADD_OFFSETS_TO_TXN),
    ApiKey.TXN_OFFSET_COMMIT: _every_version(ApiKey.TXN_OFFSET_COMMIT),
    ApiKey.END_TXN: _every_version(ApiKey.END_TXN),
    ApiKey.DESCRIBE_ACLS: _every_version(ApiKey.DESCRIBE_ACLS),
    ApiKey.CREATE_ACLS: _every_version(ApiKey.CREATE_ACLS),
    ApiKey.DELETE_ACLS: _every_version(ApiKey.DELETE_ACLS),
    ApiKey.DESCRIBE_CONFIGS: Versions(1, 4),
    ApiKey.CREATE_PARTITIONS: Versions(0, 3),
    ApiKey.DELETE_GROUPS: _every_version(ApiKey.DELETE_GROUPS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _every_version(ApiKey.DESCRIBE_CLIENT_QUOTAS),
    ApiKey.ALTER_CLIENT_QUOTAS: _every_version(ApiKey.ALTER_CLIENT_QUOTAS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    ApiKey.DESCRIBE_PRODUCERS: Versions(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Versions(0, 0),
    ApiKey.LIST_TRANSACTIONS: Versions(0, 2),
}
