"""The connection settings that every client shares, as one value.

Owns the table of them and how they are read: from keywords of a client's constructor, or from options by
Kafka's names. Code that connects to a cluster takes and passes on a `ClusterConfig`, never its parts. So a
setting is added only in this file: in the table, and with its type in `ClusterSettings`.

Invariants: a `ClusterConfig` never changes, can be pickled, and has at least one server. Its repr and the
errors here show no secret, because the table declares which settings are secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from tidelog.protocol.settings import hold_checked, setting, settings_of

__all__ = ["ClusterConfig", "ClusterSettings", "cluster_from_options", "take_cluster"]

_DEFAULT_PORT = 9092


def _servers(servers: object) -> str:
    """Servers in their one form: "host:port,host:port". Raises ValueError for an invalid address.

    Takes such text or a list of addresses. The default port is 9092. IPv6 is in brackets: "[::1]:9092".
    """
    texts = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"bootstrap_servers is {servers!r}, expected host:port,host:port")
    found = []
    for text in texts:
        host, colon, port = text.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = text.strip(), str(_DEFAULT_PORT)
        bare = host.removeprefix("[").removesuffix("]")
        if not bare or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap_servers has {text.strip()!r}, expected host:port")
        found.append(f"[{bare}]:{int(port)}" if ":" in bare else f"{bare}:{int(port)}")
    if not found:
        raise ValueError("bootstrap_servers is empty, expected host:port")
    return ",".join(found)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The connection settings. Raises ValueError for an invalid value."""

    bootstrap_servers: str | list[str] = setting(
        f"127.0.0.1:{_DEFAULT_PORT}",
        "Brokers to ask first, as host:port,host:port or a list. They name the others.",
        read=_servers,
    )
    client_id: str = setting("tidelog", "Name of the client in the broker's logs and metrics.")
    request_timeout_ms: int = setting(40_000, "How long to wait for an answer to a request.", low=1)
    connect_timeout_ms: int = setting(10_000, "How long to wait for a connection.", low=1)
    metadata_max_age_ms: int = setting(
        300_000, "Age at which topics, partitions and leaders are asked for again.", low=1
    )
    retry_backoff_ms: int = setting(100, "First wait before a request is sent again. It doubles.", low=1)
    retry_backoff_max_ms: int = setting(1_000, "Longest wait before a request is sent again.", low=1)
    reconnect_backoff_ms: int = setting(50, "First wait before a new connection. It doubles.", low=1)
    reconnect_backoff_max_ms: int = setting(1_000, "Longest wait before a new connection.", low=1)

    def __post_init__(self) -> None:
        hold_checked(self)

    def __str__(self) -> str:
        """The bootstrap servers, for messages: "host:port,host:port"."""
        return str(self.bootstrap_servers)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """("host", port) of each bootstrap server. An IPv6 address has no brackets."""
        parts = [text.rpartition(":") for text in str(self).split(",")]
        return [(host.removeprefix("[").removesuffix("]"), int(port)) for host, _, port in parts]

    def to_options(self) -> dict[str, str]:
        """The settings that differ from their defaults, as text by Kafka's names, for
        `cluster_from_options`."""
        values = {
            each.name: (getattr(self, each.attribute), each.default) for each in settings_of(ClusterConfig)
        }
        return {"bootstrap.servers": str(self)} | {
            name: str(value) for name, (value, default) in values.items() if value != default
        }


class ClusterSettings(TypedDict, total=False):
    """The keywords that every client takes: a `cluster`, and settings that override those of `cluster`."""

    cluster: ClusterConfig
    bootstrap_servers: str | list[str]
    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int
    metadata_max_age_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int


OPTIONS = frozenset(each.name for each in settings_of(ClusterConfig))
"""Kafka's names of the settings, for example `bootstrap.servers`."""


def take_cluster(keywords: dict[str, Any], *, client_id: str) -> ClusterConfig:
    """The connection settings in a client's keywords. They are removed from `keywords`.

    `client_id` is the default client id. Raises ValueError.
    """
    cluster: ClusterConfig = keywords.pop("cluster", None) or ClusterConfig(client_id=client_id)
    names = {each.attribute for each in settings_of(ClusterConfig)} & keywords.keys()
    return replace(cluster, **{name: keywords.pop(name) for name in names})


def cluster_from_options(options: Mapping[str, str]) -> ClusterConfig | None:
    """The connection settings in options by Kafka's names, None if they name no server.

    Other options are ignored. Raises ValueError.
    """
    if not options.get("bootstrap.servers"):
        return None
    given = {each.attribute: (each, options.get(each.name)) for each in settings_of(ClusterConfig)}
    return ClusterConfig(**{name: each.parse(text) for name, (each, text) in given.items() if text})
