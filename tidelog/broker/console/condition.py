"""What may be wrong with a broker, gathered: disk, partitions, handles, memory, certificates, transactions.

Owns which facts that are, and how long a look at them is shared by all who ask. Invariants: partitions are
looked at in steps, at most once in `SHARED_SECONDS`, and the disk in a thread, so the loop goes on; at most
`MOST_NAMED` of them are named.
"""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from tidelog.broker.cluster.catalog import NO_LEADER, least_in_sync
from tidelog.broker.cluster.in_sync import needed
from tidelog.broker.cluster.store import StoreView
from tidelog.broker.services import Services
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps

SHARED_SECONDS: Final = 8.0
MOST_NAMED: Final = 100
TopicPartition = tuple[str, int]


class OpenTransaction(NamedTuple):
    """A transaction that its coordinator knows, and the partitions that take part."""

    transactional_id: str
    producer_id: int
    partitions: Sequence[tuple[str, int]]


AskOpen: TypeAlias = Callable[[Sequence[int]], Awaitable[tuple[dict[int, OpenTransaction], bool]]]
"""By producer id, those of these producers that any coordinator knows, and whether each one answered."""


class Named(NamedTuple):
    """How many partitions, and the first MOST_NAMED of them."""

    number: int = 0
    first: tuple[TopicPartition, ...] = ()


class Partitions(NamedTuple):
    """This broker's partitions, and what is wrong with them."""

    held: int
    size_bytes: int
    offline: Named = Named()
    with_holes: Named = Named()
    without_replicas: Named = Named()
    """Some of their replicas are not in sync."""
    below_least: Named = Named()
    """Fewer of their replicas are in sync than min.insync.replicas asks for."""
    lagging: tuple[tuple[int, int], ...] = ()
    """Live brokers with replicas that are not in sync, and how many."""
    reassigned: Named = Named()
    """Their replicas are being moved."""
    leaderless_count: int = 0
    """Those of all brokers that no broker leads: theirs are gone."""
    held_back: tuple[tuple[TopicPartition, int], ...] = ()
    """Those that an open transaction holds back, with the producer id of the oldest one."""


class Disk(NamedTuple):
    """The file system of the data folder, in bytes."""

    total: int
    free: int


class Condition(NamedTuple):
    """The facts that one look at a broker gathered."""

    partitions: Partitions
    is_cut_off: bool
    """Whether this broker's session in the store of the cluster may have ended."""
    gone_brokers: tuple[int, ...]
    """Node ids of brokers of the cluster that are not there."""
    hanging: tuple[TopicPartition, ...]
    """Those held back by a transaction that its coordinator does not know, so that it never ends
    (KIP-664)."""
    disk: Disk | None
    """None: it could not be read."""
    free_handles: int
    handle_limit: int
    kept_handles: int
    """Kept for logs: below it no connection is accepted."""
    queued_bytes: int
    queued_max_bytes: int
    certificate_seconds: dict[str, float]
    """Listener -> how long its certificate is valid."""
    prepared_seconds: dict[str, float]
    """Transactional id -> how long a transaction without a timeout has waited; the oldest ones."""
    uncleanable_partitions: int
    ordered_faults: int | None
    """None: faults are not enabled."""
    store: StoreView
    """Of several members; nothing if the catalog is in no such store."""
    has_open_store: bool
    """Whether etcd has neither a password nor TLS, and a listener has security."""


class Conditions:
    """Gathers the condition of one broker, and shares each look among all who ask."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = asyncio.Lock()
        self._looked = -SHARED_SECONDS
        self._last: Condition | None = None

    async def now(self, ordered_faults: int | None, ask_open: AskOpen) -> Condition:
        """The condition, at most SHARED_SECONDS old."""
        async with self._lock:
            if self._last is None or time.monotonic() - self._looked >= SHARED_SECONDS:
                self._last = await self._look(ordered_faults, ask_open)
                self._looked = time.monotonic()
            return self._last

    async def _look(self, ordered_faults: int | None, ask_open: AskOpen) -> Condition:
        services = self._services
        transactions = services.transactions.counts()
        free, limit, kept = services.handles.facts()
        partitions = await services.turns.run(_partitions(services))
        return Condition(
            partitions=partitions,
            is_cut_off=services.membership is not None and services.membership.is_cut_off,
            gone_brokers=tuple(each for each in services.catalog.brokers if not services.is_live(each)),
            hanging=await _hanging(services, partitions.held_back, ask_open),
            disk=await asyncio.to_thread(_disk, services),
            free_handles=free,
            handle_limit=limit,
            kept_handles=kept,
            queued_bytes=services.metrics.queued_bytes(),
            queued_max_bytes=services.memory.bound_bytes,
            certificate_seconds={
                name: expires - services.clock_ms() / 1000
                for name, expires in services.metrics.certificates().items()
            },
            prepared_seconds=dict(transactions.prepared_seconds),
            uncleanable_partitions=services.metrics.cleaner.uncleanable_partitions,
            ordered_faults=ordered_faults,
            store=StoreView() if services.metrics.store is None else services.metrics.store(),
            has_open_store=services.config.has_open_store,
        )


def _disk(services: Services) -> Disk | None:
    try:
        found = shutil.disk_usage(services.config.data_dir)
    except OSError:
        return None
    return Disk(found.total, found.free)


def _partitions(services: Services) -> Steps[Partitions]:
    pace = Pace(CHECKS_PER_STEP)
    offline = set(services.partitions.unopened)
    with_holes, held_back, size_bytes = [], [], 0
    for key, replica in list(services.replicas.items()):  # It may change between two steps.
        log = replica.log
        size_bytes += log.size_bytes
        if not replica.is_running:
            offline.add(key)
        if log.recovery.holes and log.holes:
            with_holes.append(key)
        is_led = not replica.is_follower
        if is_led and log.transactions and (oldest := log.transactions.oldest()) is not None:
            held_back.append((key, oldest[0]))
        if pace.spent():
            yield
    without_replicas, below_least, reassigned, leaderless = [], [], [], 0
    lagging: Counter[int] = Counter()
    gone = {node_id for node_id in services.catalog.brokers if not services.is_live(node_id)} | {NO_LEADER}
    for topic in list(services.catalog.topics()):
        least = least_in_sync(topic, services.config.min_insync_replicas)
        for index, partition in enumerate(topic.partitions):
            lacking = {*partition.replicas} - {*partition.isr, *partition.adding}
            if lacking:
                without_replicas.append((topic.name, index))
                lagging.update(lacking - gone)
            if len(partition.isr) < needed(partition, least):
                below_least.append((topic.name, index))
            if partition.adding or partition.removing:
                reassigned.append((topic.name, index))
            leaderless += partition.leader_id in gone
            if pace.spent():
                yield
    held = len(services.replicas) + len(services.partitions.unopened)
    return Partitions(
        *(held, size_bytes, _named(sorted(offline)), _named(with_holes), _named(without_replicas)),
        *(_named(below_least), tuple(sorted(lagging.items())), _named(reassigned), leaderless),
        tuple(held_back[:MOST_NAMED]),
    )


def _named(keys: list[TopicPartition]) -> Named:
    return Named(len(keys), tuple(keys[:MOST_NAMED]))


async def _hanging(
    services: Services, held_back: tuple[tuple[TopicPartition, int], ...], ask_open: AskOpen
) -> tuple[TopicPartition, ...]:
    """Those of these partitions in whose oldest transaction no coordinator says that they take part."""
    if not held_back:
        return ()
    # After the partitions were looked at: what ended in between is not taken for a transaction that hangs.
    known, is_complete = await ask_open(sorted({producer_id for _, producer_id in held_back}))
    if not is_complete:
        return ()
    return tuple(
        key
        for key, producer_id in held_back
        if (producer_id not in known or key not in known[producer_id].partitions)
        # It is open still: its marker may have been written meanwhile.
        and (replica := services.replicas.get(key)) is not None
        and producer_id in replica.log.transactions
    )
