"""Quotas of clients: how much users and client ids may send, receive and let the broker work per second.

Owns which quota holds for a client, and how much of it is used. Invariants:
- each kind of quota is looked up by itself, in Kafka's order: user and client id, then user, then client id,
  each by its name before the default;
- a client may use `burst_seconds` of its quota at once. What it uses beyond that is a debt, and it waits
  until the quota has paid it; so in the long run no client gets more than its quota;
- at most `MOST_CLIENTS` clients are remembered, the least recently active ones are forgotten first.

Pure: the caller passes the time, in seconds. Source: KIP-13, KIP-55, KIP-124, KIP-219, KIP-546; Kafka's
ClientQuotaManager, which measures over quota.window.num windows of quota.window.size.seconds.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from tidelog.protocol.quotas import (
    CLIENT_ID,
    CONTROLLER_MUTATION_RATE,
    IP,
    QUOTAS_OF_CLIENTS,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    Quotas,
)

MOST_CLIENTS: Final = 10_000
MOST_CLIENT_ID_CHARACTERS: Final = 1_000
"""A client id of a request may have 32,767; those that begin alike share their use then."""


class Bucket:
    """The use of one quota. `rate` and amounts are in one unit (bytes, seconds of work, connections)."""

    __slots__ = ("__weakref__", "_at", "_burst", "_debt", "rate")

    def __init__(self, rate: float, burst_seconds: float) -> None:
        self.rate = rate
        self._burst = rate * burst_seconds
        self._debt = -self._burst
        self._at = 0.0

    @property
    def burst(self) -> float:
        """How much may be used at once."""
        return self._burst

    def charge(self, amount: float, now: float) -> None:
        """`amount` was used."""
        self._debt = max(self._debt - (now - self._at) * self.rate, -self._burst) + amount
        self._at = now

    def delay_seconds(self, now: float) -> float:
        """How long it takes from now until the debt is paid; 0 where there is none."""
        return max(self._debt / self.rate - (now - self._at), 0.0)


class ClientBuckets(NamedTuple):
    """What one client uses of its quotas; None if it has no such quota."""

    produced_bytes: Bucket | None
    fetched_bytes: Bucket | None
    request_seconds: Bucket | None
    changed_partitions: Bucket | None


NO_QUOTA = ClientBuckets(None, None, None, None)


class ClientQuotas:
    """All quotas of users and client ids, and their use."""

    def __init__(self, burst_seconds: float, mutation_burst_seconds: float | None = None) -> None:
        """`mutation_burst_seconds` is the burst of CONTROLLER_MUTATION_RATE, where it is another one."""
        self._burst_seconds = dict.fromkeys(QUOTAS_OF_CLIENTS, burst_seconds)
        if mutation_burst_seconds is not None:
            self._burst_seconds[CONTROLLER_MUTATION_RATE] = mutation_burst_seconds
        self._quotas: Quotas = {}
        self._revision = 0
        self.is_empty = True
        """No user and no client id has a quota."""
        self._clients: OrderedDict[tuple[str, str], tuple[int, ClientBuckets]] = OrderedDict()
        """With the revision of the quotas when the buckets were looked up: older ones keep what was used."""
        # A bucket that several clients share (those of one user) is kept while one of them is remembered.
        self._buckets: WeakValueDictionary[tuple[str, str | None, str | None], Bucket] = WeakValueDictionary()

    def replace(self, quotas: Quotas) -> None:
        """These quotas hold from now on. Buckets whose quota has not changed keep what was used."""
        self._quotas = quotas
        self._revision += 1
        self.is_empty = all(entity[0][0] == IP for entity in quotas)

    def buckets(self, user: str, client_id: str) -> ClientBuckets:
        """Those of a client."""
        client_id = client_id[:MOST_CLIENT_ID_CHARACTERS]
        key = (user, client_id)
        known = self._clients.get(key)
        if known is not None and known[0] == self._revision:
            self._clients.move_to_end(key)
            return known[1]
        found = ClientBuckets(*(self._bucket(quota, user, client_id) for quota in QUOTAS_OF_CLIENTS))
        if found == NO_QUOTA:
            found = NO_QUOTA
        self._clients[key] = self._revision, found
        self._clients.move_to_end(key)
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return found

    def limits(self, user: str, client_id: str) -> dict[str, float]:
        """The quotas that hold for a client, by name; nothing is charged or remembered."""
        found = {quota: self._holding(quota, user, client_id) for quota in QUOTAS_OF_CLIENTS}
        return {quota: held[0] for quota, held in found.items() if held is not None}

    def _holding(self, quota: str, user: str, client_id: str) -> tuple[float, str | None, str | None] | None:
        """The value of the quota that holds for a client, and who shares its use."""
        for entity, of_user, of_client in _candidates(user, client_id[:MOST_CLIENT_ID_CHARACTERS]):
            value = self._quotas.get(entity, {}).get(quota)
            if value is not None:
                return value, of_user, of_client
        return None

    def _bucket(self, quota: str, user: str, client_id: str) -> Bucket | None:
        held = self._holding(quota, user, client_id)
        if held is None:
            return None
        value, of_user, of_client = held
        key = (quota, of_user, of_client)
        rate = value / 100 if quota == REQUEST_PERCENTAGE else value
        bucket = self._buckets.get(key)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[key] = Bucket(rate, self._burst_seconds[quota])
        return bucket


def _candidates(user: str, client_id: str) -> Iterable[tuple[QuotaEntity, str | None, str | None]]:
    """The entities whose quota may hold for a client, the one that counts most first, and who share its
    use."""
    for user_name in (user, None):
        for client_name in (client_id, None):
            yield ((CLIENT_ID, client_name), (USER, user_name)), user, client_id
        yield ((USER, user_name),), user, None
    for client_name in (client_id, None):
        yield ((CLIENT_ID, client_name),), None, client_id
