"""The settings of one partition's log, most of which a topic may set for itself.

Owns the table of topic settings, all of Kafka 4's and `acks.all.durable`: their names (Kafka's, as
attributes), units, defaults and bounds, and `without_effect`: why a setting that is taken, kept and described
changes nothing here. A setting without this reason has its effect. `broker_config` says which setting of the
broker holds where a topic sets none. Immutable: a changed setting is a new value, given to
`PartitionLog.reconfigure`. Source: Kafka's TopicConfig, LogConfig and ServerTopicConfigSynonyms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial

from tidelog.broker.storage.producer_state import DEFAULT_RULES, ProducerRules
from tidelog.protocol.settings import ConfigError, int32_setting, int64_setting, setting

_LONG = 2**63 - 1
_AS_IN_ALL = -2
"""The local retention that means: as retention.ms, or retention.bytes."""
LARGEST_RECORD_BYTES = 2**31 - 9
"""Kafka's default of max.decompressed.message.bytes: the longest array of Java."""
_DAY_MS = 86_400_000
_WEEK_MS = 7 * _DAY_MS
_THROTTLED = re.compile(r"[0-9]+:[0-9]+")


def _throttled_replicas(replicas: tuple[str, ...]) -> tuple[str, ...]:
    """Pairs of partition and broker, or * alone. Raises ConfigError."""
    if replicas == ("*",) or all(_THROTTLED.fullmatch(each) for each in replicas):
        return replicas
    raise ConfigError("it must be * or a list of replicas, each as partition:broker")


def _gzip_level(level: object) -> int:
    """zlib's levels without 0, which does not compress. Raises ConfigError."""
    if isinstance(level, int) and not isinstance(level, bool) and (level == -1 or 1 <= level <= 9):
        return level
    raise ConfigError("compression.gzip.level must be -1 or a whole number from 1 to 9")


_throttled_setting = partial(setting, (), read=_throttled_replicas)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Sizes in bytes, times in milliseconds. Values are checked where they come in, not here. No topic sets
    `producers`, the broker's rules for them."""

    acks_all_durable: bool = setting(
        True,
        "Whether acks=all is answered after the flush, and consumers read only what is flushed. false: both "
        "as soon as it is written, as in Kafka. A killed broker still loses nothing, a power cut may "
        "lose records that were not flushed. Records of coordinators and ends of transactions are "
        "always flushed.",
    )
    cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        "delete: old segments are deleted by retention.ms and retention.bytes. compact: of each key the last "
        "record is kept, and records without a key are refused. Both: both. Empty: nothing is deleted.",
        choices=("delete", "compact"),
    )
    compression_gzip_level: int = setting(
        -1,
        "Level of gzip where compression.type is gzip, from 1 to 9. -1: 6.",
        low=-1,
        high=9,
        read=_gzip_level,
    )
    compression_lz4_level: int = setting(
        9, "Level of lz4 where compression.type is lz4. 9: the fast mode of lz4, as in Kafka.", low=1, high=17
    )
    compression_type: str = setting(
        "producer",
        "producer: batches are stored as they were sent. Else the records of each batch are stored as one "
        "block of this codec, or uncompressed. A batch that has the codec already stays as it is.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_zstd_level: int = setting(
        3, "Level of zstd where compression.type is zstd.", low=-131072, high=22
    )
    delete_retention_ms: int = int64_setting(
        _DAY_MS,
        "How long a tombstone (a record without a value) stays after the first compaction that kept it.",
        low=0,
    )
    file_delete_delay_ms: int = int64_setting(
        60_000,
        "How long the files of a deleted segment stay.",
        low=0,
        without_effect="files are deleted at once, and readers keep their open files",
    )
    errors_deadletterqueue_group_enable: bool = setting(
        False, "Let share groups write their dead letters to this topic."
    )
    flush_messages: int = int64_setting(
        _LONG,
        "Records that are not flushed yet at which a log is flushed before acks=1 is answered, and acks=all "
        "if acks.all.durable is false.",
    )
    flush_ms: int = int64_setting(
        _LONG,
        "Time within which records are flushed that no answer waits for. It is at most 5 ms while "
        "acks.all.durable is true, because consumers read only what is flushed.",
        low=0,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _throttled_setting(
        description="Replicas for which follower.replication.throttled.rate holds while they are not in "
        "sync, each as partition:broker, or * for all."
    )
    index_interval_bytes: int = int32_setting(
        4096, "Bytes of batches between two entries of the offset index.", low=0
    )
    leader_replication_throttled_replicas: tuple[str, ...] = _throttled_setting(
        description="Replicas for which leader.replication.throttled.rate holds while they lead, for "
        "followers that are not in sync, each as partition:broker, or * for all."
    )
    local_retention_bytes: int = int64_setting(
        -2,
        "Size of a partition's local segments above which the oldest are deleted, once they are in remote "
        "storage. -2: retention.bytes.",
        low=-2,
    )
    local_retention_ms: int = int64_setting(
        -2,
        "Age above which a local segment is deleted, once it is in remote storage. -2: retention.ms.",
        low=-2,
    )
    max_compaction_lag_ms: int = int64_setting(
        _LONG,
        "Longest time that a record stays before its log is compacted, even if little of the log is new. Its "
        "segment is closed by then, if records follow.",
    )
    max_decompressed_message_bytes: int = int32_setting(
        LARGEST_RECORD_BYTES,
        "Size of the largest record in a compressed batch, decompressed.",
        high=LARGEST_RECORD_BYTES,
    )
    max_message_bytes: int = int32_setting(1_048_588, "Size of the largest record batch.", low=0)
    message_timestamp_after_max_ms: int = int64_setting(
        3_600_000, "How far a producer's timestamp may be ahead of the broker's clock.", low=0
    )
    message_timestamp_before_max_ms: int = int64_setting(
        _LONG, "How far a producer's timestamp may be behind the broker's clock.", low=0
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        "CreateTime: records keep the producer's time. LogAppendTime: they get the broker's time at append.",
        choices=("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5,
        "Part of a log that must be new since the last compaction before it is compacted again.",
        low=0,
        high=1,
    )
    min_compaction_lag_ms: int = int64_setting(
        0, "Shortest time that a record stays before it may be removed by compaction.", low=0
    )
    min_insync_replicas: int = int32_setting(
        1, "Number of in-sync replicas below which acks=all is refused with NOT_ENOUGH_REPLICAS."
    )
    preallocate: bool = setting(
        False,
        "Make the file of the newest segment longer than its records, by up to 1 MiB of zeros that take no "
        "space. On a file system with a journal, a flush of small batches then takes less time.",
    )
    remote_copy_lag_bytes: int = int64_setting(
        -1,
        "Size of the newer log above which a closed segment is copied to remote storage, if "
        "remote.copy.lag.ms does not let it be copied before. -1: local.retention.bytes.",
        low=-1,
    )
    remote_copy_lag_ms: int = int64_setting(
        0,
        "Age of its newest record at which a closed segment is copied to remote storage. 0: at once. -1: "
        "local.retention.ms.",
        low=-1,
    )
    remote_log_copy_disable: bool = setting(False, "Copy no further segments to remote storage.")
    remote_log_delete_on_disable: bool = setting(
        False,
        "Delete a topic's segments from remote storage when remote.storage.enable becomes false. Without it "
        "that change is refused.",
    )
    remote_storage_enable: bool = setting(
        False,
        "Copy closed segments to remote storage, and keep them locally for local.retention.ms only. It needs "
        "remote.log.storage.system.enable, and a topic that is not compacted.",
    )
    retention_bytes: int = int64_setting(
        -1, "Size of a partition above which its oldest segments are deleted. -1: no limit.", low=-1
    )
    retention_ms: int = int64_setting(_WEEK_MS, "Age above which a segment is deleted. -1: never.", low=-1)
    segment_bytes: int = int32_setting(
        1 << 30, "Size at which a new segment is begun. Kafka 4 refuses less than 1048576.", low=14
    )
    segment_index_bytes: int = int32_setting(
        10 << 20, "Size of an offset index at which a new segment is begun.", low=4
    )
    segment_jitter_ms: int = int64_setting(
        0,
        "Longest time that is taken off segment.ms at random, so that not all logs begin a segment at once.",
        low=0,
    )
    segment_ms: int = int64_setting(_WEEK_MS, "Age at which a new segment is begun.")
    unclean_leader_election_enable: bool = setting(
        False,
        "Let a replica that is not in sync become the leader, and lose records.",
        without_effect="only ElectLeaders of an operator, with the type UNCLEAN, elects such a replica",
    )
    producers: ProducerRules = DEFAULT_RULES

    @property
    def of_local_segments(self) -> LogConfig:
        """With the retention that holds for local segments."""
        if not self.remote_storage_enable or self.remote_log_copy_disable:
            return self
        local_ms, local_bytes = self.local_retention_ms, self.local_retention_bytes
        return replace(
            self,
            retention_ms=self.retention_ms if local_ms == _AS_IN_ALL else local_ms,
            retention_bytes=self.retention_bytes if local_bytes == _AS_IN_ALL else local_bytes,
        )
