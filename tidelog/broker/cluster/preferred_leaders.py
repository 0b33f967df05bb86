"""Which partitions the controller returns to their first replica.

Owns the rule: a broker leads again all partitions of which it has the first replica, once others lead more
than a share of them. The election decides who may lead (`controller.elected_as_preferred`).

Pure. Source: Kafka's KafkaController.checkAndTriggerAutoLeaderRebalance.
"""

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from tidelog.broker.cluster.catalog import Catalog


class LeaderRebalance(NamedTuple):
    """How often the controller looks, and the share of a broker's partitions that others may lead."""

    interval_seconds: float
    percentage: int


def led_by_others(catalog: Catalog, percentage: int) -> dict[UUID, list[int]]:
    """The partitions, by topic, whose first replica is in sync and is to lead them again."""
    first: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    for topic in catalog.topics():
        for assigned in topic.partitions:
            first[assigned.replicas[0]] += 1
            elsewhere[assigned.replicas[0]] += assigned.leader_id != assigned.replicas[0]
    wanted: dict[UUID, list[int]] = {}
    imbalanced = {broker for broker, count in elsewhere.items() if count * 100 > first[broker] * percentage}
    for topic in catalog.topics() if imbalanced else ():
        for index, assigned in enumerate(topic.partitions):
            broker = assigned.replicas[0]
            if broker in imbalanced and broker in assigned.isr and assigned.leader_id != broker:
                wanted.setdefault(topic.topic_id, []).append(index)
    return wanted
