"""What the settings of a share group mean, with those of the broker that hold without them.

Pure. Source: Kafka's GroupConfig.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.broker.cluster.catalog import Catalog
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.resource_settings import GROUPS, LATEST, duration_ms

EARLIEST, BY_DURATION = "earliest", "by_duration"


class ShareGroupConfig(NamedTuple):
    """What holds for a group. `reset_duration_ms`: how old the first records are with by_duration.
    `dead_letter_topic`: empty for none."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    lock_duration_ms: int
    max_delivery_count: int
    max_record_locks: int
    auto_offset_reset: str
    reset_duration_ms: int
    reads_committed: bool
    may_renew: bool
    dead_letter_topic: str
    copies_dead_letters: bool


def share_group_config(broker: BrokerConfig, catalog: Catalog, group_id: str) -> ShareGroupConfig:
    own: Mapping[str, str] = catalog.broker_configs.get(GROUPS.key(group_id), {})

    def number(name: str, of_broker: int) -> int:
        return int(own.get(name, of_broker))

    reset, _, duration = own.get("share.auto.offset.reset", LATEST).partition(":")
    return ShareGroupConfig(
        number("share.session.timeout.ms", broker.group_share_session_timeout_ms),
        number("share.heartbeat.interval.ms", broker.group_share_heartbeat_interval_ms),
        number("share.record.lock.duration.ms", broker.group_share_record_lock_duration_ms),
        number("share.delivery.count.limit", broker.group_share_delivery_count_limit),
        number("share.partition.max.record.locks", broker.group_share_partition_max_record_locks),
        reset,
        duration_ms(duration) or 0,
        own.get("share.isolation.level") == "read_committed",
        own.get("share.renew.acknowledge.enable") != "false",
        own.get("errors.deadletterqueue.topic.name", ""),
        own.get("errors.deadletterqueue.copy.record.enable") == "true",
    )
