"""The share consumer's own settings, checked once.

Owns the table of them: Kafka's names and meanings, their defaults and bounds.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.protocol.settings import ConfigError, hold_checked, setting
from tidelog.wire.cluster_config import ClusterSettings

EXPLICIT: Final = "explicit"
_ACQUIRE_MODES: Final = {"batch_optimized": 0, "record_limit": 1}


@dataclass(frozen=True, slots=True)
class ShareConsumerConfig:
    """Sizes in bytes, times in milliseconds. Raises ConfigError for an invalid value."""

    group_id: str = setting("", "The share group. Its members share the records of its topics.")
    share_acknowledgement_mode: str = setting(
        EXPLICIT,
        "explicit: the application acknowledges each record. implicit: a record that was returned is "
        "accepted when the next ones are asked for.",
        choices=(EXPLICIT, "implicit"),
    )
    share_acquire_mode: str = setting(
        "record_limit",
        "record_limit: never hold more than max_poll_records. batch_optimized: exceed it to take whole "
        "batches, which costs the broker less. Brokers before Kafka 4.2 know batch_optimized only.",
        choices=tuple(_ACQUIRE_MODES),
    )
    max_poll_records: int = setting(
        500,
        "Most records that this consumer holds: fetched, and not acknowledged yet. It bounds how many are "
        "processed at the same time.",
        low=1,
    )
    max_poll_interval_ms: int = setting(
        300_000,
        "Longest time without a read or a record in `processing`. After it, the consumer leaves the group "
        "until it reads again, so that others get its partitions.",
        low=1,
    )
    fetch_max_wait_ms: int = setting(500, "How long a broker may wait for records.", low=0)
    fetch_min_bytes: int = setting(1, "Bytes that a broker waits for before it answers.", low=0)
    fetch_max_bytes: int = setting(52_428_800, "Most bytes of one answer.", low=1)
    client_rack: str | None = setting(None, "The rack of this consumer, as in the brokers' broker.rack.")
    check_crcs: bool = setting(True, "Verify the checksum of every batch.")

    def __post_init__(self) -> None:
        hold_checked(self)
        if not self.group_id:
            raise ConfigError("group_id: expected the name of a share group, got none")

    @property
    def acquire_code(self) -> int:
        """`share_acquire_mode` as requests carry it."""
        return _ACQUIRE_MODES[self.share_acquire_mode]


class ShareConsumerSettings(ClusterSettings, total=False):
    """The keyword arguments that a share consumer takes, with their types."""

    group_id: str
    share_acknowledgement_mode: str
    share_acquire_mode: str
    max_poll_records: int
    max_poll_interval_ms: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    client_rack: str | None
    check_crcs: bool
