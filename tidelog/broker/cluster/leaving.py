"""For which partitions a broker that stops waits first.

Owns the rule: a stop takes no partition below min.insync.replicas while a live replica that is not in sync
may still join. Replicas of dead brokers, and those whose logs failed, are not awaited.

Pure. Kafka's controlled shutdown waits for no follower.
"""

from typing import NamedTuple

from tidelog.broker.cluster.catalog import Catalog
from tidelog.broker.cluster.controller import LeastInSync, able_to_lead, live_brokers, offline_replicas
from tidelog.broker.cluster.in_sync import needed


class Awaited(NamedTuple):
    """A partition that would have too few replicas in sync, and who may join them."""

    topic: str
    partition: int
    in_sync: tuple[int, ...]
    catching_up: tuple[int, ...]


def awaited_by(catalog: Catalog, leaving: int, least_in_sync: LeastInSync) -> list[Awaited]:
    """What the broker `leaving` waits for; looks at every partition."""
    live, offline = live_brokers(catalog) - {leaving}, offline_replicas(catalog)
    awaited = []
    for topic in catalog.topics():
        least = least_in_sync(topic)
        for index, assigned in enumerate(topic.partitions):
            if leaving not in assigned.isr or len(assigned.isr) > needed(assigned, least):
                continue
            able = able_to_lead(live, offline, topic.topic_id, index)
            catching_up = tuple(each for each in assigned.replicas if each in able - {*assigned.isr})
            if catching_up:
                awaited.append(Awaited(topic.name, index, assigned.isr, catching_up))
    return awaited
