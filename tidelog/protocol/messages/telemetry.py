"""GetTelemetrySubscriptions and PushTelemetry: the metrics that clients send to their brokers.

Declarations only. Source: the JSON definitions of the same names (KIP-714).
"""

from uuid import UUID

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct


class GetTelemetrySubscriptionsRequest(Struct, flexible="0+"):
    client_instance_id: UUID  # The zero uuid: the broker makes one.


class GetTelemetrySubscriptionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    client_instance_id: UUID  # As in the request, or a new one.
    subscription_id: Int32  # Another one with each change of the metrics or of the interval.
    accepted_compression_types: list[Int8]  # The best first; 1: gzip, 2: snappy, 3: lz4, 4: zstd.
    push_interval_ms: Int32  # The shortest of the subscriptions that match the client.
    telemetry_max_bytes: Int32  # Of one push, before and after compression.
    delta_temporality: bool  # Whether counters start anew with each push; always false here.
    requested_metrics: list[str]  # Prefixes of names; * alone: all, empty: none.


class PushTelemetryRequest(Struct, flexible="0+"):
    client_instance_id: UUID  # The zero uuid is refused.
    subscription_id: Int32  # As last answered; another one is refused.
    terminating: bool  # Whether it is the last push of the client.
    compression_type: Int8  # 0: none, 1: gzip, 2: snappy, 3: lz4, 4: zstd.
    metrics: bytes  # OpenTelemetry's MetricsData v1, compressed.


class PushTelemetryResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
