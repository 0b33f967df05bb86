"""The producer's own settings, checked once.

Owns the table of them: names (aiokafka's, where it has them), defaults (Kafka's), bounds, meanings, and the
conflicts between them. Invariants: a `ProducerConfig` that exists is consistent.
"""

from dataclasses import dataclass

from tidelog.protocol.compression import Compression
from tidelog.protocol.settings import ConfigError, hold_checked, setting
from tidelog.wire.cluster_config import ClusterSettings

CODECS = tuple(codec.name.lower() for codec in Compression)
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_MAX_IN_FLIGHT_WITH_IDEMPOTENCE = 5


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Sizes in bytes, times in milliseconds. Raises ConfigError for invalid or contradictory settings."""

    acks: str | int = setting(
        "all", "Acknowledgements to wait for. Only all (-1) is idempotent.", choices=tuple(_ACKS)
    )
    enable_idempotence: bool = setting(True, "Store each record once and in order, through every retry.")
    compression_type: str | None = setting(None, "Compression of batches. None: none.", choices=CODECS)
    max_batch_size: int = setting(
        262_144, "Size before compression up to which a batch grows while it cannot be sent.", low=1
    )
    linger_ms: int = setting(0, "How long a batch waits for more records.", low=0)
    max_request_size: int = setting(1_048_576, "Size of the largest request.", low=1)
    buffer_memory: int = setting(
        33_554_432, "Memory of all records that are not acknowledged. Above it, send waits.", low=1
    )
    delivery_timeout_ms: int = setting(
        120_000, "Time after which a record that is not acknowledged is given up.", low=1
    )
    max_in_flight_requests_per_connection: int = setting(
        5, "Requests that may wait for an answer at a time. At most 5 with idempotence.", low=1
    )
    producer_id_lease_ms: int = setting(
        43_200_000,
        "Idle time after which a partition gets a new producer epoch. Keep it below producer.id.expiration.ms"
        " of the broker.",
        low=1,
    )
    transactional_id: str | None = setting(
        None, "Transactional id of the producer. A new producer with the same id fences the old one."
    )
    transaction_timeout_ms: int = setting(
        60_000, "Age at which the broker aborts a transaction that has not ended.", low=1
    )
    transaction_two_phase_commit_enable: bool = setting(
        False,
        "Whether no timeout aborts a transaction, so that it can be prepared. The broker must allow it.",
    )
    enable_metrics_push: bool = setting(
        True, "Push metrics to brokers whose operators ask for them (KIP-714). Without it: never."
    )

    def __post_init__(self) -> None:
        hold_checked(self)
        if self.enable_idempotence and self.acks_number != -1:
            raise ConfigError(
                f"acks={self.acks!r} cannot be idempotent: a broker that fails may lose acknowledged records."
                " Set acks='all', or enable_idempotence=False"
            )
        if self.enable_idempotence and (
            self.max_in_flight_requests_per_connection > _MAX_IN_FLIGHT_WITH_IDEMPOTENCE
        ):
            raise ConfigError(
                f"max_in_flight_requests_per_connection is {self.max_in_flight_requests_per_connection}, but"
                " brokers recognise only the last 5 batches as duplicates. Set 5 or less, or"
                " enable_idempotence=False"
            )
        if self.transactional_id is not None:
            if not self.transactional_id:
                raise ConfigError("transactional_id: expected a name or None, got an empty text")
            self.require_idempotence("transactional_id")
        elif self.transaction_two_phase_commit_enable:
            raise ConfigError("transaction_two_phase_commit_enable needs a transactional_id")
        if self.buffer_memory < self.max_batch_size:
            raise ConfigError(
                f"buffer_memory={self.buffer_memory} is smaller than one batch of"
                f" max_batch_size={self.max_batch_size}"
            )

    def require_idempotence(self, what: str) -> None:
        """Raises ConfigError without it."""
        if not self.enable_idempotence:
            raise ConfigError(f"{what} needs enable_idempotence=True")

    @property
    def acks_number(self) -> int:
        """-1, 0 or 1, as in the request."""
        return _ACKS[str(self.acks)]

    @property
    def compression(self) -> Compression:
        return Compression[(self.compression_type or "none").upper()]


class ProducerSettings(ClusterSettings, total=False):
    """The keyword arguments that a producer takes, with their types."""

    acks: str | int
    enable_idempotence: bool
    compression_type: str | None
    max_batch_size: int
    linger_ms: int
    max_request_size: int
    buffer_memory: int
    delivery_timeout_ms: int
    max_in_flight_requests_per_connection: int
    producer_id_lease_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    enable_metrics_push: bool
