"""The consumer's own settings, checked once.

Owns the table of them: names (aiokafka's, where it has them), defaults (Kafka's), bounds and meanings.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.client.cluster_config import ClusterSettings
from tidelog.client.offset_lookup import EARLIEST, LATEST
from tidelog.protocol.settings import hold_checked, setting

__all__ = ["RESET_TIMESTAMPS", "ConsumerConfig", "ConsumerSettings"]

RESET_TIMESTAMPS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Sizes in bytes, times in milliseconds. Raises ValueError for an invalid value."""

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
    check_crcs: bool = setting(True, "Verify the checksum of every batch.")

    def __post_init__(self) -> None:
        hold_checked(self)


class ConsumerSettings(ClusterSettings, total=False):
    """The keywords of a consumer."""

    auto_offset_reset: str
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    buffer_bytes: int
    max_poll_records: int | None
    check_crcs: bool
