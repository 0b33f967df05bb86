"""Which API is open at which step of authentication: the one gate in front of the handlers.

Owns the table of that. The gate decides when a route is made, once per step, and not again for each request.
Invariants: pure; an API without an entry here cannot be served (`check_complete`).

Source: Kafka's SaslServerAuthenticator and KafkaApis.handleSaslHandshakeRequest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

_WITHOUT_AUTHENTICATION: Final = frozenset((AuthenticationStep.NOT_REQUIRED,))
_ON_NO_LISTENER: Final[frozenset[AuthenticationStep]] = frozenset()

OPEN_AT: Mapping[ApiKey, frozenset[AuthenticationStep]] = {
    ApiKey.PRODUCE: _WITHOUT_AUTHENTICATION,
    ApiKey.FETCH: _WITHOUT_AUTHENTICATION,
    ApiKey.LIST_OFFSETS: _WITHOUT_AUTHENTICATION,
    ApiKey.METADATA: _WITHOUT_AUTHENTICATION,
    ApiKey.OFFSET_COMMIT: _WITHOUT_AUTHENTICATION,
    ApiKey.OFFSET_FETCH: _WITHOUT_AUTHENTICATION,
    ApiKey.FIND_COORDINATOR: _WITHOUT_AUTHENTICATION,
    ApiKey.JOIN_GROUP: _WITHOUT_AUTHENTICATION,
    ApiKey.HEARTBEAT: _WITHOUT_AUTHENTICATION,
    ApiKey.LEAVE_GROUP: _WITHOUT_AUTHENTICATION,
    ApiKey.SYNC_GROUP: _WITHOUT_AUTHENTICATION,
    ApiKey.DESCRIBE_GROUPS: _WITHOUT_AUTHENTICATION,
    ApiKey.LIST_GROUPS: _WITHOUT_AUTHENTICATION,
    # Both need a listener with SASL.
    ApiKey.SASL_HANDSHAKE: _ON_NO_LISTENER,
    ApiKey.API_VERSIONS: _WITHOUT_AUTHENTICATION,
    ApiKey.CREATE_TOPICS: _WITHOUT_AUTHENTICATION,
    ApiKey.DELETE_TOPICS: _WITHOUT_AUTHENTICATION,
    ApiKey.DELETE_RECORDS: _WITHOUT_AUTHENTICATION,
    ApiKey.INIT_PRODUCER_ID: _WITHOUT_AUTHENTICATION,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _WITHOUT_AUTHENTICATION,
    ApiKey.ADD_PARTITIONS_TO_TXN: _WITHOUT_AUTHENTICATION,
    ApiKey.ADD_OFFSETS_TO_TXN: _WITHOUT_AUTHENTICATION,
    ApiKey.END_TXN: _WITHOUT_AUTHENTICATION,
    ApiKey.WRITE_TXN_MARKERS: _WITHOUT_AUTHENTICATION,
    ApiKey.TXN_OFFSET_COMMIT: _WITHOUT_AUTHENTICATION,
    ApiKey.DESCRIBE_CONFIGS: _WITHOUT_AUTHENTICATION,
    ApiKey.ALTER_CONFIGS: _WITHOUT_AUTHENTICATION,
    ApiKey.SASL_AUTHENTICATE: _ON_NO_LISTENER,
    ApiKey.CREATE_PARTITIONS: _WITHOUT_AUTHENTICATION,
    ApiKey.DELETE_GROUPS: _WITHOUT_AUTHENTICATION,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _WITHOUT_AUTHENTICATION,
    ApiKey.OFFSET_DELETE: _WITHOUT_AUTHENTICATION,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _WITHOUT_AUTHENTICATION,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _WITHOUT_AUTHENTICATION,
    ApiKey.DESCRIBE_CLUSTER: _WITHOUT_AUTHENTICATION,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _WITHOUT_AUTHENTICATION,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _WITHOUT_AUTHENTICATION,
    ApiKey.DESCRIBE_PRODUCERS: _WITHOUT_AUTHENTICATION,
    ApiKey.DESCRIBE_TRANSACTIONS: _WITHOUT_AUTHENTICATION,
    ApiKey.LIST_TRANSACTIONS: _WITHOUT_AUTHENTICATION,
    ApiKey.DESCRIBE_LOG_DIRS: _WITHOUT_AUTHENTICATION,
    ApiKey.ELECT_LEADERS: _WITHOUT_AUTHENTICATION,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _WITHOUT_AUTHENTICATION,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _WITHOUT_AUTHENTICATION,
    ApiKey.DESCRIBE_QUORUM: _WITHOUT_AUTHENTICATION,
    ApiKey.UPDATE_FEATURES: _WITHOUT_AUTHENTICATION,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _WITHOUT_AUTHENTICATION,
    ApiKey.LIST_CONFIG_RESOURCES: _WITHOUT_AUTHENTICATION,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _WITHOUT_AUTHENTICATION,
}
"""API -> the steps at which it is open."""


def check_complete(api_keys: Iterable[ApiKey]) -> None:
    """Raise ValueError for an API that has no entry in `OPEN_AT`, so that none is open by mistake."""
    missing = [key.name for key in api_keys if key not in OPEN_AT]
    if missing:
        raise ValueError(f"broker.net.gate does not say when {', '.join(missing)} may be asked")


def refusal(api_key: ApiKey, step: AuthenticationStep) -> ApiError | None:
    """Why this API is refused at this step; None where it is open."""
    if step in OPEN_AT[api_key]:
        return None
    return ApiError(
        ErrorCode.ILLEGAL_SASL_STATE,
        "this listener has no SASL: connect with security.protocol=PLAINTEXT",
    )
