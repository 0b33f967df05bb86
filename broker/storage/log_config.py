"""The settings of one partition's log, most of which a topic may set for itself.

Owns the table of topic settings: their names (Kafka's, as attributes), units, defaults and bounds, and the
broker's setting whose value holds where a topic sets none (`broker_name`). A setting is listed only if
changing it changes what the broker does, or if it has one value that the broker keeps and clients send.
Immutable: a changed setting is a new value, given to `PartitionLog.reconfigure`. Source: Kafka's TopicConfig
and LogConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.storage.producer_state import DEFAULT_RULES, ProducerRules
from tidelog.protocol.settings import setting

_INT = 2**31 - 1
_LONG = 2**63 - 1
_WEEK_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Sizes in bytes, times in milliseconds. Values are checked where they come in, not here. No topic sets
    `producers`, the broker's rules for them."""

    cleanup_policy: str = setting(
        "delete",
        "Old segments are deleted by retention.ms and retention.bytes. This broker does not compact.",
        choices=("delete",),
        broker_name="log.cleanup.policy",
        is_list=True,
    )
    compression_type: str = setting(
        "producer",
        "Batches are stored as the producer compressed them. This broker never compresses again.",
        choices=("producer",),
        broker_name="compression.type",
    )
    index_interval_bytes: int = setting(
        4096,
        "Bytes of batches between two entries of the offset index.",
        low=0,
        high=_INT,
        broker_name="log.index.interval.bytes",
    )
    max_message_bytes: int = setting(
        1_048_588, "Size of the largest record batch.", low=0, high=_INT, broker_name="message.max.bytes"
    )
    message_timestamp_after_max_ms: int = setting(
        3_600_000,
        "How far a producer's timestamp may be ahead of the broker's clock.",
        low=0,
        high=_LONG,
        broker_name="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        _LONG,
        "How far a producer's timestamp may be behind the broker's clock.",
        low=0,
        high=_LONG,
        broker_name="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        "CreateTime: records keep the producer's time. LogAppendTime: they get the broker's time at append.",
        choices=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
    )
    min_insync_replicas: int = setting(
        1,
        "Replicas that must hold a batch before acks=all is answered. This cluster keeps one replica.",
        low=1,
        high=1,
        broker_name="min.insync.replicas",
    )
    retention_bytes: int = setting(
        -1,
        "Size of a partition above which its oldest segments are deleted. -1: no limit.",
        low=-1,
        high=_LONG,
        broker_name="log.retention.bytes",
    )
    retention_ms: int = setting(
        _WEEK_MS,
        "Age above which a segment is deleted. -1: never.",
        low=-1,
        high=_LONG,
        broker_name="log.retention.ms",
    )
    segment_bytes: int = setting(
        1 << 30,
        "Size at which a new segment is begun.",
        low=14,
        high=_INT,
        broker_name="log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        10 << 20,
        "Size of an offset index at which a new segment is begun.",
        low=4,
        high=_INT,
        broker_name="log.index.size.max.bytes",
    )
    segment_ms: int = setting(
        _WEEK_MS, "Age at which a new segment is begun.", low=1, high=_LONG, broker_name="log.roll.ms"
    )
    producers: ProducerRules = DEFAULT_RULES
