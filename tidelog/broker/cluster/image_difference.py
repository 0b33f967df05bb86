"""The deltas that change one image of the catalog into a later one, for a broker that missed the commits
between them.

Invariants: applied in this order to `before`, they give `after`, except for the revision and the deleted
topics, which no delta carries over; each delta fits the image to which it is applied. What was created and
deleted in between is left out.

Pure.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from tidelog.broker.cluster.catalog import (
    AclsChanged,
    BrokerConfigsChanged,
    BrokerRegistered,
    BrokerUnregistered,
    Catalog,
    ClientQuotasChanged,
    Delta,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsReserved,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    UserChanged,
)
from tidelog.protocol.quotas import QuotaEntity

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


def difference(before: Catalog, after: Catalog) -> Iterator[Delta]:
    """The deltas, oldest kind of fact first: what a topic needs comes before it."""
    for node_id in before.brokers.keys() - after.brokers.keys():
        yield BrokerUnregistered(node_id)
    for _, broker in _news(before.brokers, after.brokers):
        yield BrokerRegistered(broker)
    for name in before.broker_configs.keys() - after.broker_configs.keys():
        yield BrokerConfigsChanged(name, {})
    for name, configs in _news(before.broker_configs, after.broker_configs):
        yield BrokerConfigsChanged(name, configs)
    added = tuple(acl for acl in after.acls if acl not in before.acls)
    removed = tuple(acl for acl in before.acls if acl not in after.acls)
    if added or removed:
        yield AclsChanged(added, removed)
    for user in before.users.keys() - after.users.keys():
        yield UserChanged(user, {})
    for user, credentials in _news(before.users, after.users):
        yield UserChanged(user, credentials)
    gone = before.client_quotas.keys() - after.client_quotas.keys()
    quotas: dict[QuotaEntity, Mapping[str, float]] = {entity: {} for entity in gone}
    quotas.update(_news(before.client_quotas, after.client_quotas))
    if quotas:
        yield ClientQuotasChanged(quotas)
    for topic in list(before.topics()):
        if after.topic_by_id(topic.topic_id) is None:
            yield TopicDeleted(topic.topic_id)
    for topic in after.topics():
        known = before.topic_by_id(topic.topic_id)
        if known is None:
            yield TopicCreated(topic)
        elif known != topic:
            yield from _of_topic(known, topic)
    if before.next_producer_id != after.next_producer_id:
        yield ProducerIdsReserved(after.next_producer_id)


def _news(before: Mapping[_K, _V], after: Mapping[_K, _V]) -> Iterator[tuple[_K, _V]]:
    """The entries that are not in `before`, or are others there."""
    for key, value in after.items():
        if before.get(key) != value:
            yield key, value


def _of_topic(before: Topic, after: Topic) -> Iterator[Delta]:
    kept = len(before.partitions)
    if len(after.partitions) > kept:
        yield PartitionsAdded(after.topic_id, after.partitions[kept:])
    pairs = enumerate(zip(before.partitions, after.partitions, strict=False))
    changed = {index: now for index, (then, now) in pairs if then != now}
    if changed:
        yield PartitionsChanged(after.topic_id, changed)
    if before.configs != after.configs:
        yield TopicConfigsChanged(after.topic_id, after.configs)
