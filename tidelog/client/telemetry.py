"""A client's metrics, pushed to its brokers if an operator asks for them (KIP-714).

Owns the requests and their times, and the names: those of Java's client. Invariants: a client whose brokers
do not serve this, or ask for nothing, asks again every few minutes and does nothing else; OpenTelemetry's
package is imported with the first push, in a thread; no failure here disturbs the client.
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import UUID
from weakref import ref

from tidelog.client.metrics import Measured
from tidelog.protocol.compression import Compression, compress
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import ClientError, UnsupportedVersionError

_FIRST_SECONDS: Final = 2.0
"""Shorter lives are not measured."""
_RETRY_SECONDS: Final = 300.0
_LAST_PUSH_SECONDS: Final = 1.0
_ALL: Final = "*"
_GROUPS: Final = {
    "records-lag-max": "consumer.fetch.manager",
    "assigned-partitions": "consumer.coordinator",
    "commit-total": "consumer.coordinator",
    "rebalance-total": "consumer.coordinator",
}
"""Metric -> Java's group of it, where it is not that of the client as a whole."""


class TelemetryPusher:
    """Pushes the metrics of `client`, a "producer" or "consumer", while it is started."""

    def __init__(
        self, cluster: Cluster, client: Measured, kind: str, attributes: Mapping[str, str | None]
    ) -> None:
        """`attributes`: what the client is, such as its group_id; without those that are None."""
        self._cluster = cluster
        self._client = ref(client)
        """A client that an application forgets to stop is collected all the same."""
        self._kind = kind
        self._attributes = {name: value for name, value in attributes.items() if value is not None}
        self._instance_id = UUID(int=0)
        self._subscription: Any = None
        self._pushed: Mapping[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin in a while. A second call does nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End. A broker that got metrics gets the last ones, and is told that they are."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._subscription is not None and self._pushed:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(_LAST_PUSH_SECONDS):
                    await self._push(is_last=True)

    async def _run(self) -> None:
        wait_s = _FIRST_SECONDS
        while True:
            await asyncio.sleep(wait_s)
            if self._client() is None:
                return
            try:
                wait_s = await (self._ask() if self._subscription is None else self._push())
            except UnsupportedVersionError:
                return
            except ClientError:
                self._subscription, wait_s = None, _RETRY_SECONDS

    async def _ask(self) -> float:
        """Seconds until the next request."""
        answer = await self._cluster.call_any(
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {"client_instance_id": self._instance_id}
        )
        if answer.error_code:
            return _RETRY_SECONDS
        self._instance_id = answer.client_instance_id
        interval_s = float(answer.push_interval_ms) / 1000
        if not answer.requested_metrics:
            return interval_s
        self._subscription = answer
        # So that clients that start together do not push together.
        return interval_s * random.uniform(0.5, 1.5)

    async def _push(self, *, is_last: bool = False) -> float:
        """Seconds until the next request."""
        subscription, told = self._subscription, self._wanted()
        is_delta = bool(subscription.delta_temporality)
        before = self._pushed if is_delta else {}
        sent = {name: number - before.get(name, 0.0) * is_total(name) for name, number in told.items()}
        codec = _codec(subscription.accepted_compression_types)
        encoded = partial(encode, sent, self._attributes, is_delta=is_delta, codec=codec)
        metrics = await asyncio.to_thread(encoded)
        values = {
            "client_instance_id": self._instance_id,
            "subscription_id": subscription.subscription_id,
            "terminating": is_last,
            "compression_type": codec,
            "metrics": metrics,
        }
        answer = await self._cluster.call_any(ApiKey.PUSH_TELEMETRY, values)
        interval_s = float(subscription.push_interval_ms) / 1000
        if answer.error_code == ErrorCode.NONE:
            self._pushed = told
        elif answer.error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
            self._subscription = None
            return 0.0
        elif answer.error_code != ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self._subscription = None
        return interval_s

    def _wanted(self) -> dict[str, float]:
        """The metrics that are asked for, by Java's names."""
        client = self._client()
        named = {
            f"org.apache.kafka.{_GROUPS.get(name, self._kind)}.{name.replace('-', '.')}": number
            for name, number in ({} if client is None else client.metrics()).items()
        }
        wanted = tuple(self._subscription.requested_metrics)
        return named if _ALL in wanted else {name: n for name, n in named.items() if name.startswith(wanted)}


def is_total(name: str) -> bool:
    """Whether the metric only grows."""
    return name.endswith(".total")


def _codec(accepted: list[int]) -> Compression:
    """The first that this client has; the broker names them in its order."""
    return next((Compression(each) for each in accepted if each in tuple(Compression)), Compression.NONE)


def encode(
    metrics: Mapping[str, float], attributes: Mapping[str, str], *, is_delta: bool, codec: Compression
) -> bytes:
    """OpenTelemetry's MetricsData with these values, compressed. It takes milliseconds, the first time a
    tenth of a second."""
    from opentelemetry.proto.metrics.v1 import metrics_pb2

    temporality = "DELTA" if is_delta else "CUMULATIVE"
    data = metrics_pb2.MetricsData()
    resource = data.resource_metrics.add()
    for key, value in attributes.items():
        resource.resource.attributes.add(key=key).value.string_value = value
    scope = resource.scope_metrics.add()
    for name, number in metrics.items():
        metric = scope.metrics.add(name=name)
        if is_total(name):
            metric.sum.aggregation_temporality = getattr(
                metrics_pb2, f"AGGREGATION_TEMPORALITY_{temporality}"
            )
            metric.sum.is_monotonic = True
        values = metric.sum if is_total(name) else metric.gauge
        values.data_points.add(as_double=number)
    return compress(codec, data.SerializeToString())
