"""GetTelemetrySubscriptions and PushTelemetry: the metrics that clients send to their brokers.

Declarations only. Source: the JSON definitions of the same names (KIP-714).
"""

from tidelog.protocol.messages.declaration import Field, message

_THROTTLE = Field("throttle_time_ms", "int32")
_INSTANCE = Field("client_instance_id", "uuid")

GET_TELEMETRY_SUBSCRIPTIONS_REQUEST = message("GetTelemetrySubscriptionsRequest", "0+", _INSTANCE)

GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE = message(
    "GetTelemetrySubscriptionsResponse",
    "0+",
    _THROTTLE,
    Field("error_code", "int16"),
    _INSTANCE,
    Field("subscription_id", "int32"),
    Field("accepted_compression_types", "[]int8"),
    Field("push_interval_ms", "int32"),
    Field("telemetry_max_bytes", "int32"),
    Field("delta_temporality", "bool"),
    Field("requested_metrics", "[]string"),
)

PUSH_TELEMETRY_REQUEST = message(
    "PushTelemetryRequest",
    "0+",
    _INSTANCE,
    Field("subscription_id", "int32"),
    Field("terminating", "bool"),
    Field("compression_type", "int8"),
    Field("metrics", "bytes"),
)

PUSH_TELEMETRY_RESPONSE = message("PushTelemetryResponse", "0+", _THROTTLE, Field("error_code", "int16"))
