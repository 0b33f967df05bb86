"""The settings of one partition's log.

Owns their names (Kafka's, as attributes), units and defaults. Immutable: a changed setting is a new value,
given to `PartitionLog.reconfigure`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.storage.producer_state import ProducerRules

_FOREVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one topic's logs, by Kafka's names; sizes in bytes, -1 for no limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 86_400_000
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = 7 * 86_400_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    """CreateTime or LogAppendTime."""
    message_timestamp_before_max_ms: int = _FOREVER_MS
    message_timestamp_after_max_ms: int = 3_600_000
    producer_id_expiration_ms: int = 86_400_000
    max_producer_ids_per_partition: int = 1_000_000
    unknown_sequence: str = "reject"
    """reject or accept a batch of a producer that is not known here and does not begin at 0."""
    duplicate_below_window: bool = True

    def producer_rules(self) -> ProducerRules:
        return ProducerRules(
            reject_unknown_sequence=self.unknown_sequence == "reject",
            duplicate_below_window=self.duplicate_below_window,
            expiration_ms=self.producer_id_expiration_ms,
            max_producers=self.max_producer_ids_per_partition,
        )
