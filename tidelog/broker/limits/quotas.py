"""The quotas of the cluster: changed here only, and followed by what enforces them.

Owns which quotas there may be for whom, and their values. Invariants: a change is durable when it returns,
and holds for each later request.

On the event loop. Source: KIP-546, KIP-612; Kafka's ClientQuotaControlManager.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from tidelog.broker.cluster.catalog import Catalog, Change, ClientQuotasChanged
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.configuration.address_overrides import is_address
from tidelog.broker.limits.client_quotas import MOST_CLIENT_ID_CHARACTERS, ClientQuotas
from tidelog.broker.limits.connection_limits import ConnectionLimits
from tidelog.broker.limits.mutation_quota import MutationQuota
from tidelog.protocol import quotas
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.framing import RequestHeader

MAX_ENTITIES: Final = 100_000
_CHANGED_AT_ONCE: Final = 500
"""Entities of one commit: the loop takes them over in one step of about a millisecond."""
QuotaChanges = Mapping[str, float | None]
"""Name of a quota -> its value from now on, None to remove it."""


class QuotaStore:
    """All quotas of one cluster, and their use on this broker."""

    def __init__(self, cluster: Cluster, burst_seconds: float, mutation_burst_seconds: float) -> None:
        self.of_clients = ClientQuotas(burst_seconds, mutation_burst_seconds)
        self.of_connections = ConnectionLimits(burst_seconds)
        self._cluster = cluster
        self._followers: list[Callable[[], None]] = []
        self._enforce()
        cluster.follow(self._take_over)

    def follow(self, follower: Callable[[], None]) -> None:
        """Call now and after each change of the quotas."""
        self._followers.append(follower)
        follower()

    @property
    def all(self) -> quotas.Quotas:
        return self._cluster.catalog.client_quotas

    def for_mutations(self, user: str, header: RequestHeader) -> MutationQuota:
        """The quota on changes of topics for one request."""
        bucket = None
        if not self.of_clients.is_empty:
            bucket = self.of_clients.buckets(user, header.client_id or "").changed_partitions
        return MutationQuota(bucket, header.api_key, header.api_version, time.monotonic)

    def check(self, entity: quotas.QuotaEntity, changes: QuotaChanges) -> None:
        """Raise ApiError(INVALID_REQUEST) for an entity, a name or a value that Kafka does not allow."""
        _check_entity(entity)
        _check_changes(entity, changes)

    async def alter(self, changes: Mapping[quotas.QuotaEntity, QuotaChanges]) -> None:
        """Set quotas that were checked, and remove those whose value is None.

        Raises ApiError; then some of the entities may have been changed.
        """
        entities = list(changes)
        for first in range(0, len(entities), _CHANGED_AT_ONCE):
            some = {entity: changes[entity] for entity in entities[first : first + _CHANGED_AT_ONCE]}
            await self._cluster.change_as_asked(partial(_planned, some))

    def _take_over(self, change: Change) -> None:
        if isinstance(change.delta, ClientQuotasChanged):
            self._enforce()

    def _enforce(self) -> None:
        self.of_clients.replace(self.all)
        self.of_connections.replace(self.all)
        for follower in self._followers:
            follower()


def _planned(changes: Mapping[quotas.QuotaEntity, QuotaChanges], catalog: Catalog) -> ClientQuotasChanged:
    present = catalog.client_quotas
    if len(present) + sum(entity not in present for entity in changes) > MAX_ENTITIES:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"there may be quotas for at most {MAX_ENTITIES} entities")
    merged = {entity: {**present.get(entity, {}), **of_entity} for entity, of_entity in changes.items()}
    return ClientQuotasChanged(
        {
            entity: {name: value for name, value in values.items() if value is not None}
            for entity, values in merged.items()
        }
    )


def _check_entity(entity: quotas.QuotaEntity) -> None:
    types: Sequence[str] = [kind for kind, _ in entity]
    unknown = [kind for kind in types if kind not in quotas.ENTITY_TYPES]
    if unknown:
        expected = ", ".join(quotas.ENTITY_TYPES)
        raise _invalid(f"Unhandled client quota entity type: expected one of {expected}, got {unknown[0]}")
    if not types or len(set(types)) != len(types):
        raise _invalid("Invalid empty client quota entity" if not types else "Duplicate entity type")
    if quotas.IP in types and len(types) > 1:
        raise _invalid("Invalid quota entity combination: ip stands alone")
    for kind, name in entity:
        if name == "" or len(name or "") > MOST_CLIENT_ID_CHARACTERS:
            raise _invalid(f"Empty or too long {kind} not supported; null stands for the default")
        if kind == quotas.IP and name is not None and not is_address(name):
            raise _invalid(f"ip: expected an address such as 10.0.0.1 or 2001:db8::1, got {name}")


def _check_changes(entity: quotas.QuotaEntity, changes: QuotaChanges) -> None:
    allowed = (quotas.CONNECTION_CREATION_RATE,) if entity[0][0] == quotas.IP else quotas.QUOTAS_OF_CLIENTS
    for name, value in changes.items():
        if name not in allowed:
            expected = ", ".join(allowed)
            raise _invalid(f"Invalid configuration key {name}; quotas of this entity are {expected}")
        if value is not None and not (math.isfinite(value) and value > 0):
            raise _invalid(f"Quota {name}: expected more than 0, got {value}")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
