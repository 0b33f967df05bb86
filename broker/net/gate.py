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
from tidelog.protocol.schema import APIS, ApiKey

_IN: Final = frozenset((AuthenticationStep.NOT_REQUIRED, AuthenticationStep.AUTHENTICATED))
"""Where the client is who it is: authenticated, or on a listener without SASL."""
_BEFORE_TOO: Final = _IN | {AuthenticationStep.HANDSHAKE}
_HANDSHAKE: Final = frozenset(
    (AuthenticationStep.HANDSHAKE, AuthenticationStep.AUTHENTICATED, AuthenticationStep.EXPIRED)
)
_TOKENS: Final = frozenset((AuthenticationStep.AUTHENTICATING, AuthenticationStep.REAUTHENTICATING))

OPEN_AT: Mapping[ApiKey, frozenset[AuthenticationStep]] = {
    ApiKey.PRODUCE: _IN,
    ApiKey.FETCH: _IN,
    ApiKey.LIST_OFFSETS: _IN,
    ApiKey.METADATA: _IN,
    ApiKey.OFFSET_COMMIT: _IN,
    ApiKey.OFFSET_FETCH: _IN,
    ApiKey.FIND_COORDINATOR: _IN,
    ApiKey.JOIN_GROUP: _IN,
    ApiKey.HEARTBEAT: _IN,
    ApiKey.LEAVE_GROUP: _IN,
    ApiKey.SYNC_GROUP: _IN,
    ApiKey.DESCRIBE_GROUPS: _IN,
    ApiKey.LIST_GROUPS: _IN,
    ApiKey.SASL_HANDSHAKE: _HANDSHAKE,
    ApiKey.API_VERSIONS: _BEFORE_TOO,
    ApiKey.CREATE_TOPICS: _IN,
    ApiKey.DELETE_TOPICS: _IN,
    ApiKey.DELETE_RECORDS: _IN,
    ApiKey.INIT_PRODUCER_ID: _IN,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _IN,
    ApiKey.ADD_PARTITIONS_TO_TXN: _IN,
    ApiKey.ADD_OFFSETS_TO_TXN: _IN,
    ApiKey.END_TXN: _IN,
    ApiKey.WRITE_TXN_MARKERS: _IN,
    ApiKey.TXN_OFFSET_COMMIT: _IN,
    ApiKey.DESCRIBE_ACLS: _IN,
    ApiKey.CREATE_ACLS: _IN,
    ApiKey.DELETE_ACLS: _IN,
    ApiKey.DESCRIBE_CONFIGS: _IN,
    ApiKey.ALTER_CONFIGS: _IN,
    ApiKey.SASL_AUTHENTICATE: _TOKENS,
    ApiKey.CREATE_PARTITIONS: _IN,
    ApiKey.DELETE_GROUPS: _IN,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _IN,
    ApiKey.OFFSET_DELETE: _IN,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _IN,
    ApiKey.ALTER_CLIENT_QUOTAS: _IN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _IN,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _IN,
    ApiKey.DESCRIBE_CLUSTER: _IN,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _IN,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _IN,
    ApiKey.DESCRIBE_PRODUCERS: _IN,
    ApiKey.DESCRIBE_TRANSACTIONS: _IN,
    ApiKey.LIST_TRANSACTIONS: _IN,
    ApiKey.DESCRIBE_LOG_DIRS: _IN,
    ApiKey.ELECT_LEADERS: _IN,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _IN,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _IN,
    ApiKey.DESCRIBE_QUORUM: _IN,
    ApiKey.UPDATE_FEATURES: _IN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _IN,
    ApiKey.LIST_CONFIG_RESOURCES: _IN,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _IN,
}
"""API -> the steps at which it is open."""
_WHEN: Final = {
    AuthenticationStep.HANDSHAKE: "before SaslHandshake: set security.protocol to SASL_PLAINTEXT or SASL_SSL",
    AuthenticationStep.AUTHENTICATING: "during SASL authentication",
    AuthenticationStep.AUTHENTICATED: "after SASL authentication",
    AuthenticationStep.REAUTHENTICATING: "during SASL re-authentication",
    AuthenticationStep.EXPIRED: "after the session has ended (connections.max.reauth.ms): authenticate again",
    AuthenticationStep.FAILED: "after SASL authentication failed",
}


def check_complete(api_keys: Iterable[ApiKey]) -> None:
    """Raise ValueError for an API that has no entry in `OPEN_AT`, so that none is open by mistake."""
    missing = [key.name for key in api_keys if key not in OPEN_AT]
    if missing:
        raise ValueError(f"broker.net.gate does not say when {', '.join(missing)} may be asked")


def refusal(api_key: ApiKey, step: AuthenticationStep) -> ApiError | None:
    """Why this API is refused at this step; None where it is open."""
    if step in OPEN_AT[api_key]:
        return None
    if step is AuthenticationStep.NOT_REQUIRED:
        reason = "this listener has no SASL: connect with security.protocol=PLAINTEXT or SSL"
    else:
        reason = f"{APIS[api_key].name} is not allowed {_WHEN[step]}"
    return ApiError(ErrorCode.ILLEGAL_SASL_STATE, reason)


def closes(step: AuthenticationStep) -> bool:
    """Whether a request that is refused at this step ends the connection, as in Kafka."""
    return step not in _IN
