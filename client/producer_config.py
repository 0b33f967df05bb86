"""The producer's settings, checked once.

Owns: names (aiokafka's, where it has them), defaults (Kafka's) and the conflicts between them. Invariants: a
`ProducerConfig` that exists is consistent.
"""

from dataclasses import dataclass

from tidelog.client.cluster import ClusterConfig
from tidelog.protocol.compression import Compression

__all__ = ["ProducerConfig"]

_ACKS = {"all": -1, -1: -1, 0: 0, 1: 1, "-1": -1, "0": 0, "1": 1}
_MAX_IN_FLIGHT_WITH_IDEMPOTENCE = 5


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Sizes in bytes, times in milliseconds. Raises ValueError for what contradicts itself."""

    acks: int | str = "all"
    enable_idempotence: bool = True
    compression_type: str | None = None
    max_batch_size: int = 262_144
    linger_ms: int = 0
    max_request_size: int = 1_048_576
    buffer_memory: int = 33_554_432
    request_timeout_ms: int = 40_000
    delivery_timeout_ms: int = 120_000
    max_in_flight_requests_per_connection: int = 5
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    producer_id_lease_ms: int = 43_200_000

    def __post_init__(self) -> None:
        if self.acks not in _ACKS:
            raise ValueError(f"acks is {self.acks!r}, expected 'all', 1 or 0")
        if self.enable_idempotence and self.acks_number != -1:
            raise ValueError(
                f"acks={self.acks!r} cannot be idempotent: a broker that fails may forget what it"
                " acknowledged. Set acks='all', or enable_idempotence=False"
            )
        if self.max_in_flight_requests_per_connection < 1:
            raise ValueError("max_in_flight_requests_per_connection must be at least 1")
        if self.enable_idempotence and (
            self.max_in_flight_requests_per_connection > _MAX_IN_FLIGHT_WITH_IDEMPOTENCE
        ):
            raise ValueError(
                f"max_in_flight_requests_per_connection is {self.max_in_flight_requests_per_connection}, but"
                " brokers recognise only the last 5 batches as duplicates. Set 5 or less, or"
                " enable_idempotence=False"
            )
        if self.compression_type not in (None, "none", "gzip", "snappy", "lz4", "zstd"):
            raise ValueError(
                f"compression_type is {self.compression_type!r},"
                " expected None, 'gzip', 'snappy', 'lz4' or 'zstd'"
            )
        if self.linger_ms < 0:
            raise ValueError(f"linger_ms is {self.linger_ms}, expected 0 or more")
        for name in (
            *("max_batch_size", "max_request_size"),
            *("delivery_timeout_ms", "request_timeout_ms", "producer_id_lease_ms"),
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected more than 0")
        if self.buffer_memory < self.max_batch_size:
            raise ValueError(
                f"buffer_memory={self.buffer_memory} does not hold one batch of"
                f" max_batch_size={self.max_batch_size}"
            )

    def require_idempotence(self, what: str) -> None:
        """Raises ValueError without it."""
        if not self.enable_idempotence:
            raise ValueError(f"{what} needs enable_idempotence=True")

    @property
    def acks_number(self) -> int:
        """-1, 0 or 1, as it stands in the request."""
        return _ACKS[self.acks]

    @property
    def compression(self) -> Compression:
        return Compression[(self.compression_type or "none").upper()]

    def cluster(
        self, bootstrap_servers: str | list[str], client_id: str, metadata_max_age_ms: int
    ) -> ClusterConfig:
        """The settings of the way to the brokers that go with these."""
        return ClusterConfig(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=self.request_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            allow_auto_create_topics=True,
        )
