"""Families of series for prometheus_client, which is imported by the first scrape."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import prometheus_client

Metric: TypeAlias = "prometheus_client.Metric"


def _family(
    kind: str, name: str, description: str, values: Mapping[Any, float] | float, *labels: str
) -> Metric:
    from prometheus_client import metrics_core

    family: Metric = getattr(metrics_core, f"{kind}MetricFamily")(name, description, labels=labels)
    for given, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        family.add_metric(given, value)  # type: ignore[attr-defined]
    return family


counter: Final = partial(_family, "Counter")
"""A family of counters: its name, its description, the values by those of its labels (or one value), and the
names of its labels."""
gauge: Final = partial(_family, "Gauge")
"""As `counter`, of gauges."""
