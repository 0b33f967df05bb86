"""For which partitions a broker that stops waits first.

Owns the rule: a stop takes no partition below min.insync.replicas while a replica that is not in sync may
still join. Such a replica is on a live broker, or on one that began to stop before, because that may be
started again. Replicas of other dead brokers, and those whose logs failed, are not awaited. When all live
brokers stop, none waits.

Invariant: brokers that stop together leave in the order in which they began, so they never wait for each
other.

Pure. Kafka's controlled shutdown waits for no follower.
"""

from collections.abc import Set
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


def stopping_brokers(catalog: Catalog) -> frozenset[int]:
    """The live brokers that were asked to stop."""
    return frozenset(each for each in live_brokers(catalog) if catalog.brokers[each].is_stopping)


def awaited_by(
    catalog: Catalog, leaving: int, stopping_before: Set[int], least_in_sync: LeastInSync
) -> list[Awaited]:
    """What the broker `leaving` waits for, those of `stopping_before` having begun to stop before it did.

    Looks at every partition.
    """
    live, offline = live_brokers(catalog) - {leaving}, offline_replicas(catalog)
    stopping = {each.node_id for each in catalog.brokers.values() if each.is_stopping}
    if live <= stopping:
        return []
    gone = {leaving, *(stopping_before & stopping)}
    awaited = []
    for topic in catalog.topics():
        least = least_in_sync(topic)
        for index, assigned in enumerate(topic.partitions):
            staying = {*assigned.isr} - gone
            if leaving not in assigned.isr or len(staying) >= needed(assigned, least):
                continue
            able = able_to_lead(live | stopping_before, offline, topic.topic_id, index)
            catching_up = tuple(each for each in assigned.replicas if each in able - staying)
            if catching_up:
                awaited.append(Awaited(topic.name, index, assigned.isr, catching_up))
    return awaited
