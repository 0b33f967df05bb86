"""How to reach a cluster: the settings that producer, consumer and administrator share.

Owns: their names, defaults and the check of them, and how a list of servers is written. Invariants: a
`ClusterConfig` that exists has at least one server, and no time of 0 or less.
"""

from dataclasses import dataclass

__all__ = ["ClusterConfig", "parse_servers"]


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """How to reach the cluster. All times in milliseconds."""

    bootstrap_servers: str | list[str] = "127.0.0.1:9092"
    client_id: str = "tidelog"
    request_timeout_ms: int = 40_000
    connect_timeout_ms: int = 10_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    allow_auto_create_topics: bool = False

    def __post_init__(self) -> None:
        parse_servers(self.bootstrap_servers)
        for name in self.__slots__:
            if name.endswith("_ms") and getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected milliseconds above 0")

    @property
    def servers(self) -> str:
        """The bootstrap servers as one text, for messages."""
        return ", ".join(f"{host}:{port}" for host, port in parse_servers(self.bootstrap_servers))


def parse_servers(servers: str | list[str]) -> list[tuple[str, int]]:
    """("host", port) for each of "host:port,host:port" or of a list of such; port 9092 where none is given.

    Raises ValueError for what is not an address. IPv6 addresses stand in brackets: "[::1]:9092".
    """
    texts = servers.split(",") if isinstance(servers, str) else servers
    found: list[tuple[str, int]] = []
    for text in texts:
        host, colon, port = text.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = text.strip(), "9092"
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap_servers has {text.strip()!r}, expected host:port")
        found.append((host, int(port)))
    if not found:
        raise ValueError("bootstrap_servers is empty, expected host:port")
    return found
