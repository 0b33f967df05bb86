"""What clients push, made by OpenTelemetry's own package."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData


def payload(*metrics: tuple[str, float], counters: tuple[str, ...] = (), **labels: str) -> bytes:
    """MetricsData with a gauge each, or a monotonic sum if named in `counters`, with these attributes."""
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name, number in metrics:
        metric = scope.metrics.add(name=name)
        if name in counters:
            metric.sum.is_monotonic = True
        values = metric.sum if name in counters else metric.gauge
        point = values.data_points.add(as_double=number)
        for key, value in labels.items():
            point.attributes.add(key=key).value.string_value = value
    return bytes(data.SerializeToString())
