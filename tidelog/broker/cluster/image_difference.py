"""The deltas that change one image of the catalog into a later one, for a broker that missed the commits
between them.

Invariants: applied in this order to `before`, they give `after`, except for the revision and the deleted
topics, which no delta carries over; each delta fits the image to which it is applied. What was created and
deleted in between is left out.

Pure.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from tidelog.broker.cluster import catalog
from tidelog.protocol.quotas import QuotaEntity

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


def difference(before: catalog.Catalog, after: catalog.Catalog) -> Iterator[catalog.Delta]:
    """The deltas, oldest kind of fact first: what a topic needs comes before it."""
    for node_id in before.brokers.keys() - after.brokers.keys():
        yield catalog.BrokerUnregistered(node_id)
    for _, broker in _news(before.brokers, after.brokers):
        yield catalog.BrokerRegistered(broker)
    for name in before.broker_configs.keys() - after.broker_configs.keys():
        yield catalog.BrokerConfigsChanged(name, {})
    for name, configs in _news(before.broker_configs, after.broker_configs):
        yield catalog.BrokerConfigsChanged(name, configs)
    added = tuple(acl for acl in after.acls if acl not in before.acls)
    removed = tuple(acl for acl in before.acls if acl not in after.acls)
    if added or removed:
        yield catalog.AclsChanged(added, removed)
    for user in before.users.keys() - after.users.keys():
        yield catalog.UserChanged(user, {})
    for user, credentials in _news(before.users, after.users):
        yield catalog.UserChanged(user, credentials)
    gone = before.client_quotas.keys() - after.client_quotas.keys()
    quotas: dict[QuotaEntity, Mapping[str, float]] = {entity: {} for entity in gone}
    quotas.update(_news(before.client_quotas, after.client_quotas))
    if quotas:
        yield catalog.ClientQuotasChanged(quotas)
    for topic in list(before.topics()):
        if after.topic_by_id(topic.topic_id) is None:
            yield catalog.TopicDeleted(topic.topic_id)
    for topic in after.topics():
        known = before.topic_by_id(topic.topic_id)
        if known is None:
            yield catalog.TopicCreated(topic)
        elif known != topic:
            yield from _of_topic(known, topic)
    if before.next_producer_id != after.next_producer_id:
        yield catalog.ProducerIdsReserved(after.next_producer_id)


def _news(before: Mapping[_K, _V], after: Mapping[_K, _V]) -> Iterator[tuple[_K, _V]]:
    """The entries that are not in `before`, or are others there."""
    for key, value in after.items():
        if before.get(key) != value:
            yield key, value


def _of_topic(before: catalog.Topic, after: catalog.Topic) -> Iterator[catalog.Delta]:
    kept = len(before.partitions)
    if len(after.partitions) > kept:
        yield catalog.PartitionsAdded(after.topic_id, after.partitions[kept:])
    pairs = enumerate(zip(before.partitions, after.partitions, strict=False))
    changed = {index: now for index, (then, now) in pairs if then != now}
    if changed:
        yield catalog.PartitionsChanged(after.topic_id, changed)
    if before.configs != after.configs:
        yield catalog.TopicConfigsChanged(after.topic_id, after.configs)
