"""The catalog's facts as text, and the digest over all of them.

Owns the JSON of brokers, topics, users, ACLs, quotas and deltas, the checks of what is read back, and the
digest: the sum, modulo 2^128, of a hash of each fact.

Invariants: what is decoded equals what was encoded; all other input raises ValueError and nothing else. Equal
partitions next to each other are one entry with a count, so a topic of 10,000 is as short as one of 1.

Pure.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

from tidelog.broker.cluster.catalog import (
    NOBODY,
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
    check_topic_name,
)
from tidelog.protocol.acls import Acl, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.errors import ApiError
from tidelog.protocol.quotas import QuotaEntity, Quotas
from tidelog.protocol.scram import ScramCredential, ScramMechanism

DIGEST_MODULUS = 1 << 128
_INT32 = 2**31 - 1
_PORT = 2**16 - 1
MAX_INT64 = 2**63 - 1
_BROKER_FIELDS = frozenset(
    ("id", "listeners", "incarnation", "directory_id", "rack", "is_fenced", "offline", "is_stopping")
)


class UnknownFact(ValueError):
    """A fact of a kind, or with a part, that this release does not know: a newer one wrote it."""


class StoredCluster(NamedTuple):
    """What a store holds: the image, and the broker that it belongs to."""

    catalog: Catalog
    node_id: int


def encoded(value: object) -> str:
    """As JSON with exactly one form per value."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def decoded(text: str | bytes) -> Mapping[str, Any]:
    """The object that a JSON text holds. Raises ValueError."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def whole_number(value: object, most: int = MAX_INT64) -> int:
    """`value` where it is an integer from 0 to `most`. Raises ValueError."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"expected a number from 0 to {most}, got {value!r}")
    return value


def text_of(value: object) -> str:
    """`value` where it is a text that is not empty. Raises ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a text, got {value!r}")
    return value


def list_of(value: object) -> Sequence[Any]:
    """`value` where it is a list. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is no list")
    return value


def uuid_of(value: object) -> UUID:
    """The id that a text names. Raises ValueError."""
    return UUID(text_of(value))


def partition_from(
    leader_id: object,
    leader_epoch: object,
    replicas: object,
    isr: object,
    partition_epoch: object,
    elr: object,
    adding: object,
    removing: object,
) -> PartitionAssignment:
    """An assignment of what was read: its fields, in order. Raises ValueError unless it is one."""
    held, *some = map(_brokers, (replicas, isr, elr, adding, removing))
    leader = -1 if leader_id == -1 else whole_number(leader_id, _INT32)
    if not held or len(set(held)) != len(held) or not all(set(each) <= set(held) for each in some):
        raise ValueError(f"replicas {held} with {some[0]} in sync, {some[1:]} eligible, added, removed")
    if leader != -1 and leader not in held:
        raise ValueError(f"leader {leader} is none of the replicas {held}")
    in_sync, eligible, added, removed = some
    epochs = whole_number(leader_epoch, _INT32), whole_number(partition_epoch, _INT32)
    return PartitionAssignment(leader, epochs[0], held, in_sync, epochs[1], eligible, added, removed)


def _brokers(value: object) -> tuple[int, ...]:
    return tuple(whole_number(broker, _INT32) for broker in list_of(value))


def topic_from(
    name: object, topic_id: UUID, partitions: tuple[PartitionAssignment, ...], configs: object
) -> Topic:
    """A topic of what was read. Raises ValueError unless it is one."""
    try:
        check_topic_name(text_of(name))
    except ApiError as error:
        raise ValueError(str(error)) from error
    if not partitions:
        raise ValueError(f"topic {name} has no partition")
    return Topic(text_of(name), topic_id, partitions, configs_from(configs))


def configs_from(value: object) -> dict[str, str]:
    """Settings of a topic or broker of what was read. Raises ValueError."""
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError(f"settings {value!r}")
    return dict(value)


def _partitions_fields(partitions: Sequence[PartitionAssignment]) -> list[object]:
    return [[*equal, len(list(group))] for equal, group in groupby(partitions)]


def _partitions(value: object) -> tuple[PartitionAssignment, ...]:
    found: list[PartitionAssignment] = []
    for group in list_of(value):
        *fields, count = list_of(group)
        found += [_partition(fields)] * whole_number(count, _INT32)
    return tuple(found)


def _partition(fields: Sequence[object]) -> PartitionAssignment:
    if len(fields) != len(PartitionAssignment._fields):
        kind = UnknownFact if len(fields) > len(PartitionAssignment._fields) else ValueError
        raise kind(f"expected the {len(PartitionAssignment._fields)} fields of a partition, got {fields}")
    return partition_from(*fields)


def topic_fields(topic: Topic) -> dict[str, object]:
    """A topic as values that JSON knows."""
    return {
        "id": topic.topic_id.hex,
        "name": topic.name,
        "partitions": _partitions_fields(topic.partitions),
        "configs": dict(topic.configs),
    }


def topic_of(fields: Mapping[str, Any]) -> Topic:
    """The topic that `topic_fields` gave. Raises ValueError, KeyError."""
    partitions = _partitions(fields["partitions"])
    return topic_from(fields["name"], uuid_of(fields["id"]), partitions, fields["configs"])


def broker_fields(broker: BrokerRegistration) -> dict[str, object]:
    """A broker as values that JSON knows."""
    return {
        "id": broker.node_id,
        "listeners": broker.listeners,
        "incarnation": broker.incarnation.hex,
        "directory_id": broker.directory_id.hex,
        "rack": broker.rack,
        "is_fenced": broker.is_fenced,
        **({"offline": [[each.hex, index] for each, index in broker.offline]} if broker.offline else {}),
        **({"is_stopping": True} if broker.is_stopping else {}),
        **(decoded(broker.others) if broker.others else {}),
    }


def broker_of(fields: Mapping[str, Any]) -> BrokerRegistration:
    """The broker that `broker_fields` gave. Raises ValueError, KeyError."""
    rack, is_fenced = fields["rack"], fields["is_fenced"]
    others = {name: value for name, value in fields.items() if name not in _BROKER_FIELDS}
    if not isinstance(rack, str | None) or not isinstance(is_fenced, bool):
        raise ValueError(f"rack {rack!r}, fenced {is_fenced!r}")
    return BrokerRegistration(
        whole_number(fields["id"], _INT32),
        tuple(map(_listener, list_of(fields["listeners"]))),
        uuid_of(fields["incarnation"]),
        uuid_of(fields["directory_id"]),
        rack,
        is_fenced,
        tuple((uuid_of(each), whole_number(index, _INT32)) for each, index in fields.get("offline", ())),
        fields.get("is_stopping") is True,
        encoded(others) if others else "",
    )


def _listener(value: object) -> Listener:
    name, host, port = list_of(value)
    if not isinstance(host, str):
        raise ValueError(f"host {host!r}")
    return Listener(text_of(name), host, whole_number(port, _PORT))


def acl_from(value: object) -> Acl:
    """An ACL of what was read: its fields, in order. Raises ValueError unless they are one."""
    resource_type, pattern_type, name, principal, host, operation, permission = list_of(value)
    return Acl(
        ResourceType(resource_type),
        PatternType(pattern_type),
        text_of(name),
        text_of(principal),
        text_of(host),
        Operation(operation),
        Permission(permission),
    )


def acls_from(value: object) -> tuple[Acl, ...]:
    """ACLs of what was read. Raises ValueError."""
    return tuple(map(acl_from, list_of(value)))


def user_fields(user: str, credentials: Mapping[ScramMechanism, ScramCredential]) -> dict[str, object]:
    """A user as values that JSON knows."""
    return {"name": user, "credentials": credentials_fields(credentials)}


def credentials_fields(credentials: Mapping[ScramMechanism, ScramCredential]) -> list[object]:
    """A user's credentials as values that JSON knows, in the order of the mechanisms."""
    return [
        [int(mechanism), held.salt.hex(), held.stored_key.hex(), held.server_key.hex(), held.iterations]
        for mechanism, held in sorted(credentials.items())
    ]


def user_of(fields: Mapping[str, Any]) -> tuple[str, dict[ScramMechanism, ScramCredential]]:
    """The user that `user_fields` gave. Raises ValueError, KeyError."""
    return user_name(fields["name"]), credentials_from(fields["credentials"])


def user_name(value: object) -> str:
    """The name of a user, or NOBODY. Raises ValueError."""
    return NOBODY if value == NOBODY else text_of(value)


def credentials_from(value: object) -> dict[ScramMechanism, ScramCredential]:
    """A user's credentials of what was read. Raises ValueError."""
    return dict(map(_credential, list_of(value)))


def _credential(value: object) -> tuple[ScramMechanism, ScramCredential]:
    number, salt, stored_key, server_key, iterations = list_of(value)
    mechanism = ScramMechanism(whole_number(number))
    keys = [bytes.fromhex(text_of(key)) for key in (stored_key, server_key)]
    if {len(key) for key in keys} != {mechanism.key_bytes}:
        raise ValueError(f"a credential for {mechanism.sasl_name} with keys of another length")
    salt_bytes = bytes.fromhex(text_of(salt))
    return mechanism, ScramCredential(salt_bytes, keys[0], keys[1], whole_number(iterations, _INT32))


def quota_entity_from(value: object) -> QuotaEntity:
    """Who quotas hold for, of what was read. Raises ValueError."""
    entity = tuple((text_of(kind), None if name is None else text_of(name)) for kind, name in list_of(value))
    if not entity or sorted(kind for kind, _ in entity) != [kind for kind, _ in entity]:
        raise ValueError(f"quotas for {value!r}")
    return entity


def quotas_from(value: object) -> dict[str, float]:
    """The quotas of one entity of what was read. Raises ValueError."""
    if not isinstance(value, dict) or not all(
        type(each) in (int, float) and 0 < each < math.inf for each in value.values()
    ):
        raise ValueError(f"quotas {value!r}")
    return {text_of(name): float(each) for name, each in value.items()}


def quota_rows(quotas: Quotas) -> list[list[object]]:
    """The quotas of all entities as values that JSON knows."""
    return [[entity, dict(values)] for entity, values in quotas.items()]


def quotas_of_rows(value: object) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas that `quota_rows` gave. Raises ValueError."""
    return {quota_entity_from(entity): quotas_from(values) for entity, values in map(list_of, list_of(value))}


def delta_fields(delta: Delta) -> dict[str, object]:
    """A delta as values that JSON knows."""
    match delta:
        case BrokerRegistered(broker):
            return {"registered": broker_fields(broker)}
        case BrokerUnregistered(node_id):
            return {"unregistered": node_id}
        case TopicCreated(topic):
            return {"created": topic_fields(topic)}
        case TopicDeleted(topic_id, held_by, gone, gone_from):
            removed = [each.hex for each in gone]
            return {"deleted": topic_id.hex, "held_by": held_by, "gone": removed, "gone_from": gone_from}
        case FoldersRemoved(node_id, topic_ids):
            return {"folders_removed": [each.hex for each in topic_ids], "from": node_id}
        case PartitionsAdded(topic_id, partitions):
            return {"grown": topic_id.hex, "partitions": _partitions_fields(partitions)}
        case PartitionsChanged(topic_id, changed):
            return {"changed": topic_id.hex, "partitions": sorted([i, *each] for i, each in changed.items())}
        case TopicConfigsChanged(topic_id, configs):
            return {"configured": topic_id.hex, "configs": dict(configs)}
        case BrokerConfigsChanged(broker_name, configs):
            return {"broker_configured": broker_name, "configs": dict(configs)}
        case AclsChanged(added, removed):
            return {"acls_added": added, "acls_removed": removed}
        case UserChanged(user, credentials):
            return {"user": user_fields(user, credentials)}
        case ClientQuotasChanged(quotas):
            return {"client_quotas": quota_rows(quotas)}
        case ProducerIdsReserved(next_producer_id):
            return {"next_producer_id": next_producer_id}


def delta_of(fields: Mapping[str, Any]) -> Delta:
    """The delta that `delta_fields` gave. Raises ValueError, KeyError."""
    match fields:
        case {"registered": dict(broker)}:
            return BrokerRegistered(broker_of(broker))
        case {"unregistered": node_id}:
            return BrokerUnregistered(whole_number(node_id, _INT32))
        case {"created": dict(topic)}:
            return TopicCreated(topic_of(topic))
        case {"deleted": str(topic_id), "held_by": held_by, "gone": list(gone), "gone_from": int(gone_from)}:
            return TopicDeleted(UUID(topic_id), _brokers(held_by), tuple(map(uuid_of, gone)), gone_from)
        case {"folders_removed": list(topic_ids), "from": node_id}:
            return FoldersRemoved(whole_number(node_id, _INT32), tuple(map(uuid_of, topic_ids)))
        case {"grown": str(topic_id), "partitions": partitions}:
            return PartitionsAdded(UUID(topic_id), _partitions(partitions))
        case {"changed": str(topic_id), "partitions": list(changed)}:
            return PartitionsChanged(UUID(topic_id), dict(map(_changed, changed)))
        case {"configured": str(topic_id), "configs": configs}:
            return TopicConfigsChanged(UUID(topic_id), configs_from(configs))
        case {"broker_configured": str(broker_name), "configs": configs}:
            return BrokerConfigsChanged(broker_name, configs_from(configs))
        case {"acls_added": added, "acls_removed": removed}:
            return AclsChanged(acls_from(added), acls_from(removed))
        case {"user": dict(user)}:
            return UserChanged(*user_of(user))
        case {"client_quotas": quotas}:
            return ClientQuotasChanged(quotas_of_rows(quotas))
        case {"next_producer_id": next_producer_id}:
            return ProducerIdsReserved(whole_number(next_producer_id))
    raise UnknownFact(f"no delta has the fields {sorted(fields)}")


def _changed(value: object) -> tuple[int, PartitionAssignment]:
    index, *fields = list_of(value)
    return whole_number(index, _INT32), _partition(fields)


def fact_digest(kind: str, value: object) -> int:
    """What one fact adds to the digest."""
    return int.from_bytes(blake2b(encoded([kind, value]).encode(), digest_size=16).digest(), "big")


def broker_digest(broker: BrokerRegistration) -> int:
    return fact_digest("broker", broker_fields(broker))


def broker_configs_digest(broker: str, configs: Mapping[str, str]) -> int:
    return fact_digest("broker_configs", [broker, dict(configs)])


def acl_digest(acl: Acl) -> int:
    return fact_digest("acl", acl)


def user_digest(user: str, credentials: Mapping[ScramMechanism, ScramCredential]) -> int:
    return fact_digest("user", user_fields(user, credentials))


def client_quotas_digest(entity: QuotaEntity, quotas: Mapping[str, float]) -> int:
    return fact_digest("client_quotas", [entity, dict(quotas)])


def topic_digest(topic: Topic) -> int:
    return fact_digest("topic", topic_fields(topic))


def deleted_digest(topic_id: UUID, node_id: int) -> int:
    """Of one broker that may have a folder of a deleted topic."""
    return fact_digest("deleted", [topic_id.hex, node_id])


def deleted_fields(deleted: Mapping[UUID, Iterable[int]]) -> dict[str, list[int]]:
    """`Catalog.deleted` as values that JSON knows."""
    return {topic_id.hex: sorted(held_by) for topic_id, held_by in deleted.items()}


def deleted_of(value: object) -> dict[UUID, frozenset[int]]:
    """What `deleted_fields` gave. Raises ValueError."""
    if not isinstance(value, dict) or not all(value.values()):
        raise ValueError(f"deleted topics {value!r}")
    return {uuid_of(topic_id): frozenset(_brokers(held_by)) for topic_id, held_by in value.items()}


def catalog_digest(cluster: StoredCluster) -> int:
    """Over everything that a store holds."""
    return sum(_digests(cluster)) % DIGEST_MODULUS


def _digests(cluster: StoredCluster) -> Iterator[int]:
    catalog = cluster.catalog
    yield fact_digest("cluster_id", catalog.cluster_id)
    yield fact_digest("node_id", cluster.node_id)
    yield fact_digest("next_producer_id", catalog.next_producer_id)
    yield fact_digest("revision", catalog.revision)
    yield from map(broker_digest, catalog.brokers.values())
    for broker, configs in catalog.broker_configs.items():
        yield broker_configs_digest(broker, configs)
    yield from map(acl_digest, catalog.acls)
    for user, credentials in catalog.users.items():
        yield user_digest(user, credentials)
    for entity, quotas in catalog.client_quotas.items():
        yield client_quotas_digest(entity, quotas)
    yield from map(topic_digest, catalog.topics())
    for topic_id, held_by in catalog.deleted.items():
        yield from (deleted_digest(topic_id, node_id) for node_id in held_by)
