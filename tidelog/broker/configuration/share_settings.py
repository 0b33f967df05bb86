"""The settings of share groups: names, defaults and the meaning of each.

Owns `ShareSettings`, a part of the table of a broker's settings (`broker_config`). Pure.

Source: KIP-1191, Kafka's ShareGroupConfig, GroupCoordinatorConfig and ShareCoordinatorConfig.
"""

from dataclasses import dataclass

from tidelog.protocol.settings import int32_setting
from tidelog.protocol.settings import setting as _setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ShareSettings:
    """Part of `BrokerConfig`, which checks the values and has the generated methods."""

    group_share_session_timeout_ms: int = int32_setting(
        45_000, "Session timeout of the members of share groups.", dynamic=True
    )
    group_share_min_session_timeout_ms: int = int32_setting(
        45_000, "Shortest session timeout of the members of share groups."
    )
    group_share_max_session_timeout_ms: int = int32_setting(
        60_000, "Longest session timeout of the members of share groups."
    )
    group_share_heartbeat_interval_ms: int = int32_setting(
        5_000, "How often members of share groups send heartbeats.", dynamic=True
    )
    group_share_min_heartbeat_interval_ms: int = int32_setting(
        5_000, "Shortest heartbeat interval of the members of share groups."
    )
    group_share_max_heartbeat_interval_ms: int = int32_setting(
        15_000, "Longest heartbeat interval of the members of share groups."
    )
    group_share_max_size: int = _setting(
        200, "Members that a share group may have.", low=1, high=1000, dynamic=True
    )
    group_share_record_lock_duration_ms: int = int32_setting(
        30_000, "How long a member of a share group has a record before others may get it.", dynamic=True
    )
    group_share_min_record_lock_duration_ms: int = int32_setting(
        15_000, "Shortest lock duration of share groups."
    )
    group_share_max_record_lock_duration_ms: int = int32_setting(
        60_000, "Longest lock duration of share groups."
    )
    group_share_delivery_count_limit: int = _setting(
        5,
        "How often a share group delivers a record that is not accepted. After that it is archived.",
        low=2,
        high=100,
        dynamic=True,
    )
    group_share_min_delivery_count_limit: int = _setting(
        2, "Lowest delivery count limit of share groups.", low=1, high=100
    )
    group_share_max_delivery_count_limit: int = _setting(
        10, "Highest delivery count limit of share groups.", low=2, high=100
    )
    group_share_partition_max_record_locks: int = _setting(
        2_000,
        "Records of one partition that a share group has in flight at most; one more batch may exceed it.",
        low=100,
        high=10_000,
        dynamic=True,
    )
    group_share_min_partition_max_record_locks: int = _setting(
        100, "Lowest limit of records in flight of share groups.", low=1, high=10_000
    )
    group_share_max_partition_max_record_locks: int = _setting(
        4_000, "Highest limit of records in flight of share groups.", low=100, high=10_000
    )
    group_share_max_share_sessions: int = int32_setting(
        2_000, "Members of share groups that may fetch from this broker at a time.", dynamic=True
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = _setting(
        False, "Create a share group's topic of dead letters when it is needed first.", dynamic=True
    )
    errors_deadletterqueue_topic_name_prefix: str = _setting(
        "dlq.",
        "How the name of a share group's topic of dead letters has to begin. Empty: any name.",
        dynamic=True,
    )
    share_coordinator_state_topic_num_partitions: int = _setting(
        5,
        "Partitions of __share_group_state at its creation. A partition of a share group uses one of them.",
        low=1,
        high=10_000,
    )
    share_coordinator_state_topic_replication_factor: int = _setting(
        3,
        "Most replicas of __share_group_state at its creation; fewer if fewer brokers are live, but not "
        "fewer than default.replication.factor: clients wait until so many are live.",
        low=1,
        high=32767,
    )
    share_coordinator_state_topic_segment_bytes: int = int32_setting(
        100 << 20, "Value of segment.bytes of __share_group_state at its creation.", low=14
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = _setting(
        500, "Updates of a share partition's state between two snapshots of it.", low=0, high=500
    )
    share_coordinator_state_topic_prune_interval_ms: int = int32_setting(
        300_000, "Interval at which records of __share_group_state that no state needs are deleted."
    )
