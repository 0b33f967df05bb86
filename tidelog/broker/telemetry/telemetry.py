"""The telemetry of clients at one broker: what they ask, what they push, and what /metrics shows of it.

Owns the answers to the two requests, without their encoding. Invariants: a push is decoded in a thread; what
it may hold is bounded by telemetry.max.bytes, compressed and decompressed. With telemetry.otlp.endpoint each
push is passed on, also the last one of a client.

For the event loop only. Source: Kafka's ClientMetricsManager; KIP-714.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

from tidelog.broker.cluster.catalog import BrokerConfigsChanged, Change
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.resource_settings import CLIENT_METRICS
from tidelog.broker.telemetry.client_instances import ClientInstances, Instance
from tidelog.broker.telemetry.exposition import exposition
from tidelog.broker.telemetry.metrics_data import Series, Value, decoded, series, with_attributes
from tidelog.broker.telemetry.otlp_exporter import OtlpExporter
from tidelog.broker.telemetry.subscriptions import Client, Subscriptions
from tidelog.protocol import message_types as types
from tidelog.protocol.compression import Compression, TooLargeError
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Steps

ACCEPTED_COMPRESSION: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""In the order in which clients are asked to choose."""
_EXPORT_SECONDS: Final = 1


class Telemetry:
    """What the clients of one broker push."""

    def __init__(self, cluster: Cluster, settings: BrokerSettings, clock_ms: Callable[[], int]) -> None:
        self._catalog = cluster.catalog
        self._settings = settings
        self._clock_ms = clock_ms
        self._instances = ClientInstances()
        self._decoding = asyncio.Lock()
        """One push at a time is decoded: it holds the interpreter."""
        self._subscriptions = self._read()
        endpoint = settings.config.telemetry_otlp_endpoint
        self._exporter = OtlpExporter(endpoint) if endpoint else None
        cluster.follow(self._follow)

    def _read(self) -> Subscriptions:
        return Subscriptions(CLIENT_METRICS.named(self._catalog.broker_configs).values())

    def _follow(self, change: Change) -> None:
        delta = change.delta
        if isinstance(delta, BrokerConfigsChanged) and delta.broker.startswith(CLIENT_METRICS.prefix):
            self._subscriptions = self._read()

    def subscription(
        self, instance_id: UUID, client: Client, connection_id: int
    ) -> DictOf[types.GetTelemetrySubscriptionsResponse]:
        """What a client with this id is to push. Raises ApiError: THROTTLING_QUOTA_EXCEEDED."""
        now_ms = self._clock_ms()
        instance = self._instance(instance_id, client, connection_id, now_ms)
        instance.check_get(now_ms)
        subscription = instance.subscription
        return {
            "error_code": ErrorCode.NONE,
            "client_instance_id": instance_id,
            "subscription_id": subscription.subscription_id,
            "accepted_compression_types": ACCEPTED_COMPRESSION,
            "push_interval_ms": subscription.interval_ms,
            "telemetry_max_bytes": self._settings.config.telemetry_max_bytes,
            # A push that is lost then changes no counter.
            "delta_temporality": False,
            "requested_metrics": subscription.metrics,
        }

    def _instance(self, instance_id: UUID, client: Client, connection_id: int, now_ms: int) -> Instance:
        """The client with its subscription of today. Another broker may have given it its id."""
        subscription = self._subscriptions.of(client._replace(client_instance_id=str(instance_id)))
        known = self._instances.get(instance_id, now_ms)
        if known is None or known.subscription != subscription:
            known = self._instances.add(instance_id, Instance(client, subscription), now_ms)
        known.connection_id = connection_id
        return known

    async def push(self, request: types.PushTelemetryRequest, client: Client, connection_id: int) -> None:
        """Take what a client pushes. Raises ApiError: INVALID_REQUEST, INVALID_RECORD, TELEMETRY_TOO_LARGE,
        THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE."""
        instance = self._instance(request.client_instance_id, client, connection_id, self._clock_ms())
        try:
            await self._take(instance, request)
        except ApiError as error:
            instance.last_error = error.code
            raise
        instance.last_error = ErrorCode.NONE

    async def _take(self, instance: Instance, request: types.PushTelemetryRequest) -> None:
        config = self._settings.config
        instance.check_push(self._clock_ms(), request.subscription_id, is_terminating=request.terminating)
        if request.compression_type not in tuple(Compression):
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > config.telemetry_max_bytes:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE)
        instance_id, most_series = request.client_instance_id, config.metrics_max_client_series
        if request.terminating:
            self._instances.take(instance_id, instance, {}, most_series)
            if self._exporter is None:
                return
        try:
            async with self._decoding:
                pushed, passed_on = await asyncio.to_thread(
                    _read, request, config.telemetry_max_bytes, instance.client, self._exporter is not None
                )
        except TooLargeError:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE) from None
        except ProtocolError:
            raise ApiError(ErrorCode.INVALID_RECORD) from None
        if not instance.is_terminating:  # Its last push may have come meanwhile.
            self._instances.take(instance_id, instance, pushed, most_series)
        if self._exporter is not None and passed_on:
            self._exporter.add(passed_on)

    def closed(self, instance_id: UUID, connection_id: int) -> None:
        """A client that has no other connection by now shows nothing more."""
        self._instances.leave(instance_id, connection_id)

    def clients(self) -> list[Instance]:
        """The clients that asked or pushed lately."""
        return self._instances.living(self._clock_ms())

    def exposition(self) -> Steps[bytes]:
        """What clients pushed, as /metrics shows it."""
        return exposition(self.clients())

    async def close(self) -> None:
        """Pass on what came last, for `_EXPORT_SECONDS` at most."""
        if self._exporter is not None:
            await self._exporter.close(_EXPORT_SECONDS)


def _read(
    request: types.PushTelemetryRequest, max_bytes: int, client: Client, is_passed_on: bool
) -> tuple[dict[Series, Value], bytes]:
    """What a client pushed, and the same for an OTLP endpoint. Raises what `decoded` does."""
    data = decoded(request.compression_type, request.metrics, max_bytes)
    return series(data), with_attributes(data, client._asdict()) if is_passed_on else b""
