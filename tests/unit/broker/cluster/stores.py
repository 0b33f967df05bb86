"""A store with something of everything in it, and what a test reads of one."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

from tidelog.broker.cluster.catalog import (
    AclsChanged,
    BrokerConfigsChanged,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    Catalog,
    ClientQuotasChanged,
    Delta,
    FoldersRemoved,
    Listener,
    PartitionAssignment,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsReserved,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    UserChanged,
)
from tidelog.broker.cluster.placement import assign
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import ClusterStore
from tidelog.protocol.acls import Acl, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.quotas import CLIENT_ID, PRODUCER_BYTE_RATE, USER, QuotaEntity
from tidelog.protocol.scram import ScramCredential, ScramMechanism, credential_of

DATABASE, LOG, COPY = "cluster.db", "cluster.db-wal", "cluster.copy"


class Facts(NamedTuple):
    """All that a catalog says, to be compared."""

    cluster_id: str
    brokers: list[BrokerRegistration]
    broker_configs: dict[str, Mapping[str, str]]
    acls: set[Acl]
    topics: list[Topic]
    deleted: dict[UUID, frozenset[int]]
    client_quotas: dict[QuotaEntity, Mapping[str, float]]
    users: dict[str, Mapping[ScramMechanism, ScramCredential]]
    next_producer_id: int
    revision: int


def facts_of(catalog: Catalog) -> Facts:
    return Facts(
        catalog.cluster_id,
        list(catalog.brokers.values()),
        dict(catalog.broker_configs),
        set(catalog.acls),
        list(catalog.topics()),
        dict(catalog.deleted),
        dict(catalog.client_quotas),
        dict(catalog.users),
        catalog.next_producer_id,
        catalog.revision,
    )


def topic(name: str, partitions: int = 1) -> Topic:
    return Topic(name, uuid4(), assign(partitions, [1]), {"retention.ms": "5"})


def broker(node_id: int, *ports: int) -> BrokerRegistered:
    listeners = tuple(Listener(f"on-{port}", "", port) for port in ports)
    return BrokerRegistered(BrokerRegistration(node_id, listeners))


def acl(principal: str, prefix: str = "") -> Acl:
    """An ACL that lets a principal read a topic, or those with a prefix."""
    pattern = (PatternType.PREFIXED, prefix) if prefix else (PatternType.LITERAL, "t")
    return Acl(ResourceType.TOPIC, *pattern, principal, "*", Operation.READ, Permission.ALLOW)


def led_anew(topic: Topic, *indexes: int) -> PartitionsChanged:
    """Partitions that broker 2 leads now."""
    epochs = {index: topic.partitions[index].leader_epoch + 1 for index in indexes}
    return PartitionsChanged(
        topic.topic_id, {index: PartitionAssignment(2, epochs[index], (1, 2), (2,)) for index in indexes}
    )


def quotas(entity: QuotaEntity, rate: float) -> ClientQuotasChanged:
    """The quota of bytes per second of one entity."""
    return ClientQuotasChanged({entity: {PRODUCER_BYTE_RATE: rate}})


def user(name: str, *mechanisms: ScramMechanism) -> UserChanged:
    """A user whose password is stored for these mechanisms, or a user that was deleted."""
    made = {each: credential_of(each, bytes(each.key_bytes), b"salt", 4096) for each in mechanisms}
    return UserChanged(name, made)


async def commit(store: ClusterStore, catalog: Catalog, *deltas: Delta) -> None:
    await store.commit(deltas, catalog.revision)
    for delta in deltas:
        catalog.apply(delta)


async def loaded(folder: Path) -> Facts:
    """What a store in `folder` gives to a broker that starts."""
    store = SqliteStore(folder / DATABASE, node_id=1)
    try:
        return facts_of(await store.load())
    finally:
        await store.close()


async def filled(folder: Path, rng: random.Random) -> tuple[SqliteStore, Catalog]:
    """A store that is open, with each kind of delta in it."""
    store = SqliteStore(folder / DATABASE, node_id=1)
    catalog = await store.load()
    await fill(store, catalog, rng)
    return store, catalog


async def fill(store: ClusterStore, catalog: Catalog, rng: random.Random) -> None:
    """Commit each kind of delta to a store that is empty."""
    await commit(store, catalog, broker(1, 9092, 9093), broker(2, 9092))
    topics = [topic(f"t{number}", rng.randint(1, 6)) for number in range(20)]
    for made in topics:
        await commit(store, catalog, TopicCreated(made))
    await commit(store, catalog, ProducerIdsReserved(3000), TopicDeleted(topics[3].topic_id, (1, 2)))
    await commit(store, catalog, TopicDeleted(topics[4].topic_id, (1, 2), (topics[3].topic_id,), 1))
    await commit(store, catalog, TopicConfigsChanged(topics[5].topic_id, {"segment.bytes": "12345"}))
    await commit(store, catalog, PartitionsAdded(topics[6].topic_id, assign(3, [1])))
    await commit(store, catalog, led_anew(topics[7], 0), broker(2, 9094))
    for name in ("", "1", "2"):
        await commit(store, catalog, BrokerConfigsChanged(name, {"log.retention.ms": "5"}))
    await commit(
        store, catalog, BrokerConfigsChanged("1", {"num.partitions": "3"}), BrokerConfigsChanged("2", {})
    )
    await commit(store, catalog, AclsChanged((acl("User:a"), acl("User:b"), acl("User:a", "p-"))))
    await commit(store, catalog, AclsChanged((acl("User:c"),), (acl("User:b"),)))
    for name in ("alice", "bob"):
        await commit(store, catalog, user(name, *ScramMechanism))
    await commit(store, catalog, user("alice", ScramMechanism.SCRAM_SHA_256), user("bob"), user("carol"))
    for quota_user in ("alice", "bob", None):
        await commit(store, catalog, quotas(((USER, quota_user),), 5.0))
    await commit(store, catalog, quotas(((USER, "alice"),), 7.5), ClientQuotasChanged({((USER, "bob"),): {}}))
    await commit(store, catalog, quotas(((CLIENT_ID, "app"), (USER, None)), 1.0))
    await commit(store, catalog, BrokerRegistered(BrokerRegistration(3, (), uuid4(), uuid4(), "r")))
    await commit(store, catalog, TopicDeleted(topics[8].topic_id, (1, 2, 3)), BrokerUnregistered(3))
    await commit(store, catalog, FoldersRemoved(2, (topics[8].topic_id,)))
