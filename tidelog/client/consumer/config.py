"""The consumer's own settings, checked once.

Owns the table of them: names (aiokafka's, where it has them), defaults (Kafka's), bounds and meanings.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.client.offset_lookup import EARLIEST, LATEST
from tidelog.protocol.settings import ConfigError, hold_checked, setting
from tidelog.wire.cluster_config import ClusterSettings

ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Those of `groups.assignors`, which only a consumer in a group imports."""
RESET_TIMESTAMPS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}
_ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Sizes in bytes, times in milliseconds. Raises ConfigError for an invalid value."""

    auto_offset_reset: str = setting(
        "latest",
        "Where to begin if a partition's position was never set, or if the log no longer holds it.",
        choices=tuple(RESET_TIMESTAMPS),
    )
    fetch_max_wait_ms: int = setting(500, "How long a broker may wait for fetch_min_bytes.", low=0)
    fetch_min_bytes: int = setting(1, "Bytes that a broker waits for before it answers.", low=0)
    fetch_max_bytes: int = setting(52_428_800, "Most bytes of one answer.", low=1)
    max_partition_fetch_bytes: int = setting(
        1_048_576, "Most bytes of one partition in an answer, and of its unread records.", low=1
    )
    buffer_bytes: int = setting(67_108_864, "Unread bytes of all partitions at which fetching stops.", low=1)
    max_poll_records: int | None = setting(
        None, "Most records that one getmany returns. None: no limit.", low=1
    )
    isolation_level: str = setting(
        "read_uncommitted",
        "read_committed returns no records of transactions that are open or were aborted.",
        choices=tuple(_ISOLATION_LEVELS),
    )
    client_rack: str | None = setting(
        None,
        "The rack of this consumer, as in the brokers' broker.rack. It reads replicas in its rack if "
        "the brokers set replica.selector.class.",
    )
    check_crcs: bool = setting(True, "Verify the checksum of every batch.")
    group_id: str | None = setting(
        None, "The group that shares the topics and keeps the offsets. None: no group, no commits."
    )
    group_instance_id: str | None = setting(
        None, "A name that makes this a static member: it may restart without a rebalance."
    )
    group_protocol: str = setting(
        "classic",
        "Of the group: consumer (KIP-848) lets the broker assign, without a pause for all members.",
        choices=("classic", "consumer"),
    )
    group_remote_assignor: str | None = setting(
        None, "The broker's assignor, with the consumer protocol. None: the broker's default."
    )
    partition_assignment_strategy: tuple[str, ...] = setting(
        ("range", "roundrobin", "cooperative-sticky"),
        "With the classic protocol, assignors in the order of preference. Only cooperative-sticky "
        "alone rebalances cooperatively.",
        choices=ASSIGNORS,
    )
    session_timeout_ms: int = setting(
        45_000,
        "With the classic protocol: time without a heartbeat after which the group removes the member.",
        low=1,
    )
    heartbeat_interval_ms: int = setting(
        3_000, "Time between two heartbeats. With the consumer protocol, the broker sets it.", low=1
    )
    max_poll_interval_ms: int = setting(
        300_000,
        "Longest time between two reads of the application. After it, the consumer leaves the group.",
        low=1,
    )
    enable_auto_commit: bool = setting(
        True, "Commit the finished records regularly, before a rebalance and at the end."
    )
    auto_commit_interval_ms: int = setting(5_000, "Time between two automatic commits.", low=1)
    enable_metrics_push: bool = setting(
        True, "Push metrics to brokers whose operators ask for them (KIP-714). Without it: never."
    )

    def __post_init__(self) -> None:
        hold_checked(self)
        if self.group_id == "":
            raise ConfigError("group_id: expected a name or None, got an empty text")
        if self.group_id is None and self.group_instance_id is not None:
            raise ConfigError("group_instance_id needs a group_id")
        if not self.partition_assignment_strategy:
            raise ConfigError(
                f"partition_assignment_strategy: expected {', '.join(ASSIGNORS)}, got an empty list"
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            limits = f"{self.heartbeat_interval_ms} and {self.session_timeout_ms}"
            text = "heartbeat_interval_ms must be less than session_timeout_ms"
            raise ConfigError(f"{text}, they are {limits}")

    @property
    def isolation_code(self) -> int:
        """`isolation_level` as requests carry it."""
        return _ISOLATION_LEVELS[self.isolation_level]


class ConsumerSettings(ClusterSettings, total=False):
    """The keyword arguments that a consumer takes, with their types."""

    auto_offset_reset: str
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    buffer_bytes: int
    max_poll_records: int | None
    isolation_level: str
    client_rack: str | None
    check_crcs: bool
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    partition_assignment_strategy: tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    enable_metrics_push: bool
