"""A client's metrics for prometheus-client, by Kafka's names. They are read at each scrape.

Owns: the translation of names ("record-send-rate" is `tidelog_client_record_send_rate`, totals are counters)
and the collector. prometheus-client is imported only when a collector is created.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.client.metrics import Measured

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

__all__ = ["PrometheusMetrics"]

_PREFIX = "tidelog_client_"


class PrometheusMetrics:
    """Create it for prometheus-client's default registry or for `registry`; then call `add(client)`.

    Each client's samples have its `client_id` as a label. Remove a client when it is closed.
    """

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        import prometheus_client

        self._clients: dict[str, Measured] = {}
        self._registry = registry or prometheus_client.REGISTRY
        self._registry.register(self)

    def add(self, client: Measured, client_id: str) -> None:
        """Show `client` from the next scrape on. Raises ValueError if the id is used already."""
        if client_id in self._clients:
            raise ValueError(f"a client with the id {client_id!r} was added already")
        self._clients[client_id] = client

    def remove(self, client_id: str) -> None:
        """Stop showing it. Does nothing if it is not shown."""
        self._clients.pop(client_id, None)

    def close(self) -> None:
        """Unregister from the registry."""
        self._registry.unregister(self)

    def describe(self) -> list[Any]:
        """An empty list: the names depend on the clients."""
        return []

    def collect(self) -> Iterator[Any]:
        """prometheus-client's families, one for each metric."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, Any] = {}
        for client_id, client in self._clients.items():
            for name, value in client.metrics().items():
                family = families.get(name)
                if family is None:
                    is_counter = name.endswith("-total")
                    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
                    outward = _PREFIX + name.removesuffix("-total").replace("-", "_")
                    family = families[name] = kind(outward, f"Kafka's {name}", labels=["client_id"])
                family.add_metric([client_id], value)
        yield from families.values()
