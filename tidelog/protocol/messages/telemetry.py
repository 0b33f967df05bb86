"""GetTelemetrySubscriptions and PushTelemetry: the metrics that clients send to their brokers.

Declarations only. Source: the JSON definitions of the same names (KIP-714).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct


class GetTelemetrySubscriptionsRequest(Struct, flexible="0+"):
    client_instance_id: UUID


class GetTelemetrySubscriptionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    client_instance_id: UUID
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: bool  # Whether counters start anew with each push.
    requested_metrics: list[str]  # Prefixes of names; one empty: all.


class PushTelemetryRequest(Struct, flexible="0+"):
    client_instance_id: UUID
    subscription_id: Int32
    terminating: bool  # Whether it is the last push of the client.
    compression_type: Int8
    metrics: bytes


class PushTelemetryResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
