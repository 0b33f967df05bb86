"""OpenTelemetry's MetricsData, which clients push, as plain values.

Owns which parts are taken: numbers of gauges and sums with `LABELS`; and what is added where a push is passed
on. Invariants: OpenTelemetry's package, and
protobuf, are imported with the first push; names and labels have bounded lengths, and a push at most
`MOST_SERIES` series.

Source: opentelemetry/proto/metrics/v1/metrics.proto; KIP-714.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.protocol.compression import Compression, decompress
from tidelog.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

MOST_SERIES: Final = 2_000
_MOST_CHARACTERS: Final = 200
LABELS: Final = {
    "group_id": "group",
    "transactional_id": "transactional_id",
    "topic": "topic",
    "partition": "partition",
    "node_id": "node",
    "node-id": "node",
    "request_type": "request",
}
"""Attribute of a data point, or of the client as a resource -> the label that shows it. Others are left out:
most of them are different for each start of a client."""


class Series(NamedTuple):
    """A metric by its name, and (label, value) of what it is about."""

    name: str
    labels: tuple[tuple[str, str], ...]


class Value(NamedTuple):
    """`is_counter`: it only grows while its client runs."""

    number: float
    is_counter: bool


def decoded(compression: int, payload: bytes, max_bytes: int) -> MetricsData:
    """What a client pushed. Raises ProtocolError for what is no MetricsData, TooLargeError if it has more
    than `max_bytes`, decompressed. Takes milliseconds: call it in a thread."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    try:
        data.ParseFromString(decompress(Compression(compression), payload, max_bytes))
    except DecodeError as error:
        raise ProtocolError(f"expected OpenTelemetry's MetricsData: {error}") from None
    return data


def series(data: MetricsData) -> dict[Series, Value]:
    """The first `MOST_SERIES` numbers of a push."""
    found: dict[Series, Value] = {}
    for one, value in _points(data):
        if len(found) == MOST_SERIES:
            break
        found[one] = value
    return found


def with_attributes(data: MetricsData, attributes: Mapping[str, str]) -> bytes:
    """A push as an ExportMetricsServiceRequest of OTLP, which has the same fields, with these attributes of
    its client in place of what the client says under these names."""
    for resource in data.resource_metrics:
        own = [each for each in resource.resource.attributes if each.key not in attributes]
        del resource.resource.attributes[:]
        resource.resource.attributes.extend(own)
        for key, text in attributes.items():
            resource.resource.attributes.add(key=key).value.string_value = text
    return bytes(data.SerializeToString())


def _points(data: MetricsData) -> Iterator[tuple[Series, Value]]:
    for resource in data.resource_metrics:
        of_client = _labels(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                if kind not in ("gauge", "sum"):
                    continue
                values = getattr(metric, kind)
                is_counter = kind == "sum" and values.is_monotonic
                name = metric.name[:_MOST_CHARACTERS]
                for point in values.data_points:
                    number = float(getattr(point, point.WhichOneof("value") or "as_int"))
                    if math.isfinite(number):
                        labels = tuple(sorted({**of_client, **_labels(point.attributes)}.items()))
                        yield Series(name, labels), Value(number, is_counter)


def _labels(attributes: Any) -> dict[str, str]:
    named = ((LABELS.get(each.key), each.value) for each in attributes)
    return {label: _text(value) for label, value in named if label is not None}


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    return str(getattr(value, kind))[:_MOST_CHARACTERS] if kind in ("string_value", "int_value") else ""
