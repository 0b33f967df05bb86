"""Which metrics which clients push, and how often: the resources of client metrics, applied to a client.

Owns the match of clients, and the id of a subscription. Invariant: brokers with the same settings give a
client the same id, so that it may push to each of them.

Pure. Source: Kafka's ClientMetricsManager; KIP-714.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from tidelog.broker.configuration.resource_settings import CLIENT_METRICS, named_pattern
from tidelog.broker.configuration.topic_settings import parse_value

ALL_METRICS: Final = "*"
_INT32: Final = 1 << 32


class Client(NamedTuple):
    """What a client says of itself. The fields are the names of `resource_settings.MATCHED`."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(NamedTuple):
    """What one client pushes. `metrics`: beginnings of names; ALL_METRICS alone: all, empty: none."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


class _Resource(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, Any], ...]

    def matches(self, client: Client) -> bool:
        facts = client._asdict()
        return all(pattern.fullmatch(facts[name]) for name, pattern in self.patterns)


class Subscriptions:
    """What all resources of client metrics together say."""

    def __init__(self, resources: Iterable[Mapping[str, str]]) -> None:
        """`resources`: the settings of each, which were checked, as text."""
        self._resources = [_resource(own) for own in resources]

    def of(self, client: Client) -> Subscription:
        """The metrics of all resources that match, at the shortest of their intervals."""
        matching = [each for each in self._resources if each.matches(client)]
        metrics = tuple(sorted({name for each in matching for name in each.metrics}))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        default = CLIENT_METRICS.settings["interval.ms"].default
        interval_ms = min((each.interval_ms for each in matching), default=default)
        return Subscription(_id(metrics, interval_ms, client.client_instance_id), metrics, interval_ms)


def _resource(own: Mapping[str, str]) -> _Resource:
    metrics, interval_ms, match = (
        each.default if each.name not in own else parse_value(each, own[each.name])
        for each in (CLIENT_METRICS.settings[name] for name in ("metrics", "interval.ms", "match"))
    )
    return _Resource(metrics, interval_ms, tuple(map(named_pattern, match)))


def _id(metrics: tuple[str, ...], interval_ms: int, instance_id: str) -> int:
    """Of these metrics for this client, as an int32."""
    text = f"{','.join(metrics)} {interval_ms}".encode()
    number: int = crc32c(text) ^ (UUID(instance_id).int % _INT32)
    return number - _INT32 if number >= _INT32 // 2 else number
