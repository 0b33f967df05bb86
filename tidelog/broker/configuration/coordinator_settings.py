"""The settings of groups and transactions: names, defaults and the meaning of each.

Owns `CoordinatorSettings`, a part of the table of a broker's settings (`broker_config`). Pure.

Source: Kafka's GroupCoordinatorConfig, TransactionLogConfig and TransactionStateManagerConfig.
"""

from dataclasses import dataclass

from tidelog.protocol.settings import int32_setting, int64_setting
from tidelog.protocol.settings import setting as _setting

_INT = 2**31 - 1


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class CoordinatorSettings:
    """Part of `BrokerConfig`, which checks the values and has the generated methods."""

    group_initial_rebalance_delay_ms: int = int32_setting(
        3_000,
        "How long the first member of a group waits for others to join; 0 suits tests and single consumers.",
        low=0,
        dynamic=True,
    )
    group_min_session_timeout_ms: int = int32_setting(
        6_000, "Shortest session timeout that a member of a group may ask for.", dynamic=True
    )
    group_max_session_timeout_ms: int = int32_setting(
        1_800_000, "Longest session timeout that a member of a group may ask for.", dynamic=True
    )
    group_max_size: int = int32_setting(_INT, "Members that a group may have.", dynamic=True)
    group_coordinator_rebalance_protocols: tuple[str, ...] = _setting(
        ("classic", "consumer"),
        "Protocols by which members may join groups. Without consumer, ConsumerGroupHeartbeat is refused.",
        choices=("classic", "consumer"),
    )
    group_consumer_session_timeout_ms: int = int32_setting(
        45_000, "Session timeout of all members of the consumer protocol.", dynamic=True
    )
    group_consumer_min_session_timeout_ms: int = int32_setting(
        45_000, "Shortest value of group.consumer.session.timeout.ms."
    )
    group_consumer_max_session_timeout_ms: int = int32_setting(
        60_000, "Longest value of group.consumer.session.timeout.ms."
    )
    group_consumer_heartbeat_interval_ms: int = int32_setting(
        5_000, "How often members of the consumer protocol send heartbeats.", dynamic=True
    )
    group_consumer_min_heartbeat_interval_ms: int = int32_setting(
        5_000, "Shortest value of group.consumer.heartbeat.interval.ms."
    )
    group_consumer_max_heartbeat_interval_ms: int = int32_setting(
        15_000, "Longest value of group.consumer.heartbeat.interval.ms."
    )
    group_consumer_max_size: int = int32_setting(
        _INT, "Members that a group of the consumer protocol may have.", dynamic=True
    )
    group_consumer_assignors: tuple[str, ...] = _setting(
        ("uniform", "range"),
        "Assignors that members of the consumer protocol may ask for. The first is the default.",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = _setting(
        "bidirectional",
        "Whether a group with members may change its protocol, and in which direction.",
        choices=("upgrade", "downgrade", "bidirectional", "disabled"),
    )
    groups_max_bytes: int = int64_setting(
        64 << 20,
        "Most memory of the groups in one partition of __consumer_offsets: the metadata and the "
        "assignments of their members. Members beyond it are refused.",
        low=1 << 20,
        dynamic=True,
    )
    offsets_topic_num_partitions: int = _setting(
        5, "Partitions of __consumer_offsets at its creation. A group uses one of them.", low=1, high=10_000
    )
    offsets_topic_replication_factor: int = _setting(
        3,
        "Most replicas of __consumer_offsets at its creation; fewer if fewer brokers are live, but not "
        "fewer than default.replication.factor: clients wait until so many are live.",
        low=1,
        high=32767,
    )
    offsets_topic_segment_bytes: int = int32_setting(
        100 << 20, "Value of segment.bytes of __consumer_offsets at its creation.", low=14
    )
    offset_metadata_max_bytes: int = int32_setting(
        4096, "Longest metadata of a committed offset, in characters.", low=0, dynamic=True
    )
    offsets_retention_minutes: int = int32_setting(
        7 * 24 * 60,
        "Minutes that committed offsets are kept after their group lost its last member. If it never had "
        "one: after the commit.",
        dynamic=True,
    )
    offsets_retention_check_interval_ms: int = int64_setting(
        600_000, "Interval at which expired offsets are looked for and deleted."
    )

    transaction_state_log_num_partitions: int = _setting(
        5,
        "Partitions of __transaction_state at its creation. A transactional id uses one of them.",
        low=1,
        high=10_000,
    )
    transaction_state_log_replication_factor: int = _setting(
        3,
        "Most replicas of __transaction_state at its creation; fewer if fewer brokers are live, but not "
        "fewer than default.replication.factor: clients wait until so many are live.",
        low=1,
        high=32767,
    )
    transaction_state_log_segment_bytes: int = int32_setting(
        100 << 20, "Value of segment.bytes of __transaction_state at its creation.", low=14
    )
    transaction_max_timeout_ms: int = int32_setting(
        900_000, "Longest transaction.timeout.ms that a producer may ask for."
    )
    transactional_id_expiration_ms: int = int32_setting(
        7 * 24 * 3_600_000, "Time without a transaction after which a transactional id is forgotten."
    )
    transactions_max_bytes: int = int64_setting(
        64 << 20,
        "Most memory of the transactional ids in one partition of __transaction_state, with the partitions "
        "of their transactions. New ids and larger transactions beyond it are refused.",
        low=1 << 20,
        dynamic=True,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32_setting(
        10_000, "Interval at which transactions past their timeout are aborted."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32_setting(
        3_600_000, "Interval at which expired transactional ids are forgotten."
    )
    transaction_two_phase_commit_enable: bool = _setting(
        False,
        "Whether producers may prepare transactions (KIP-939). No timeout aborts a transaction of such a "
        "producer; its end is decided by a client or an operator.",
    )
    transaction_two_phase_commit_allowed_ids: tuple[str, ...] = _setting(
        ("*",),
        "Transactional ids that may prepare transactions, separated by commas. A * at the end stands for "
        "any continuation.",
    )
