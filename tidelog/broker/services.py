"""Everything below the handlers: catalog, logs, replicas, producer ids, timers.

Owns the order of opening and closing. Opening: lock the data folder, load the catalog, check that folder and
catalog belong together, recover the logs in a thread, then start the timers. Closing: stop the timers, finish
the work that has begun, flush, write snapshots and the marker of a clean shutdown, unlock the folder.

Invariants: after `open_services` returned, every partition of the catalog is served or reported as offline;
`close` may be called again and then does nothing; no globals, so several brokers may share a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import structlog

from tidelog.broker.cluster.catalog import (
    ALL_BROKERS,
    INTERNAL_TOPIC_CONFIGS,
    NO_LEADER,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    BrokerConfigsChanged,
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    Change,
    Listener,
    least_in_sync,
)
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.store import ClusterStore, SessionLives, SharedStore, StoreError
from tidelog.broker.cluster_stores import store_of
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.cluster_settings import ETCD, UNIX
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.broker.coordinator.group_coordinator import GroupCoordinator
from tidelog.broker.coordinator.participation import TransactionParticipation
from tidelog.broker.coordinator.producer_id_manager import ProducerIds
from tidelog.broker.coordinator.remote_transactions import RemoteTransactions
from tidelog.broker.coordinator.transaction_coordinator import TransactionCoordinator
from tidelog.broker.limits.handle_budget import HandleBudget
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.queued_memory import QueuedMemory
from tidelog.broker.limits.quotas import QuotaStore
from tidelog.broker.limits.turns import Turns
from tidelog.broker.observability import log_events
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.observability.producer_outcomes import ProducerOutcomes
from tidelog.broker.peers.peers import Peers
from tidelog.broker.replicas.group_commit import GroupCommit
from tidelog.broker.replicas.log_cleaner import LogCleaner
from tidelog.broker.replicas.maintenance import Maintenance
from tidelog.broker.replicas.ownership import (
    check_revision,
    claim,
    ended_start,
    is_in_use,
    note_start,
    starts_of,
)
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.reconciler import Reconciler
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import NewTopic, Topics
from tidelog.broker.replicas.transaction_verifier import TransactionVerifier
from tidelog.broker.security.acls import Acls
from tidelog.broker.security.authentication import Authentication
from tidelog.broker.security.authorizer import Authorizer
from tidelog.broker.security.broker_user import BROKER_PRINCIPAL
from tidelog.broker.security.users import Users
from tidelog.broker.storage.checkpoints import FolderIdentity
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.manager import DataFolderError, LogManager
from tidelog.broker.storage.producer_state import ProducerRules
from tidelog.broker.storage.seen_producer_ids import highest_producer_id_in, log_folders
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from tidelog.broker.cluster.membership import EndOfLog, Membership
    from tidelog.broker.coordinator.noted_bound import NotedBound
    from tidelog.broker.replicas.fetchers import Fetchers
    from tidelog.broker.replicas.in_sync_sets import InSyncSets
    from tidelog.broker.replicas.replication_quota import ReplicationQuota
    from tidelog.broker.tiering.tiering import Tiering
    from tidelog.protocol import message_types as types
    from tidelog.remote_log.object_store import ObjectStore

logger = structlog.get_logger(__name__)
_READ_FOR_IDS = (
    "nothing to do, but with much data this start takes longer: the catalog may be an older one, so all "
    "batches are read to give no producer id twice"
)


class Console(Protocol):
    """What answers for this broker's console where another broker asks."""

    async def answer_peer(self, request: types.AskConsoleRequest) -> types.AskConsoleResponseDict: ...

    def stop(self) -> None: ...


class Services:
    """What the handlers use."""

    def __init__(
        self,
        settings: BrokerSettings,
        metrics: Metrics,
        clock_ms: Callable[[], int],
        *,
        cluster: Cluster,
        acls: Acls,
        producer_ids: ProducerIds,
        partitions: Partitions,
        reconciler: Reconciler,
        topics: Topics,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        remote: RemoteTransactions,
        peers: Peers,
        membership: Membership | None,
        in_sync_sets: InSyncSets | None,
        leader_quota: ReplicationQuota | None,
        fetchers: Fetchers | None,
        maintenance: Maintenance,
        cleaner: LogCleaner,
        tiering: Tiering | None,
        events: PeerEvents,
        handles: HandleBudget,
        turns: Turns,
    ) -> None:
        self.settings = settings
        self.memory = QueuedMemory(settings.config.queued_max_bytes)
        self.events = events
        self.metrics = metrics
        self.producer_outcomes = ProducerOutcomes()
        self.clock_ms = clock_ms
        self.start_ms = clock_ms()
        self.node_id = settings.config.node_id
        self.catalog: Catalog = cluster.catalog
        self.acls = acls
        self.producer_ids = producer_ids
        self.partitions = partitions
        self.replicas = partitions.replicas
        self.topics = topics
        self.quotas = QuotaStore(
            cluster,
            (settings.config.quota_window_num - 1) * settings.config.quota_window_size_seconds,
            settings.config.controller_quota_window_num
            * settings.config.controller_quota_window_size_seconds,
        )
        self.groups = groups
        self.transactions = transactions
        metrics.transactions = transactions.counts
        self.maintenance = maintenance
        self.cleaner = cleaner
        self.tiering = tiering
        """None: this broker has no remote storage."""
        self.handles = handles
        self.turns = turns
        self.users = Users(cluster)
        self.authentication = Authentication(settings, self.users, metrics, events, clock_ms)
        self.transaction_verifier: TransactionVerifier = transactions
        self.participation = TransactionParticipation(
            transactions, remote, partitions.replicas, partitions.node_id
        )
        self.peers = peers
        self.console: Console | None = None
        """None: this broker has no console."""
        self.membership = membership
        """None where the catalog is in the own data folder."""
        self.in_sync_sets = in_sync_sets
        """None there too."""
        self.leader_quota = leader_quota
        """Of what followers read; None where there are none."""
        self._fetchers = fetchers
        if membership is not None:
            groups.refuse_while(lambda: membership.is_cut_off)
            transactions.refuse_while(lambda: membership.is_cut_off)
            partitions.when_troubled = self._give_up
            partitions.when_unopened = self._report_offline
            for topic, index in partitions.unopened:
                self._report_offline(topic, index)
        self._reconciler = reconciler
        self._cluster = cluster
        self._closed = False

    @property
    def config(self) -> BrokerConfig:
        """The settings in force. Some may change at run time: ask again, do not keep it."""
        return self.settings.config

    @property
    def controller_id(self) -> int:
        """The broker that is the controller; -1 where none is."""
        return self.node_id if self.membership is None else self.membership.controller_id

    @property
    def is_cut_off(self) -> bool:
        """Whether others may make changes that this broker does not learn of."""
        return self.membership is not None and self.membership.is_cut_off

    async def unregister(self, node_id: int) -> None:
        """Let the cluster forget a broker. Raises ApiError: BROKER_ID_NOT_REGISTERED, and INVALID_REQUEST
        where it lives or has replicas."""
        from tidelog.broker.cluster.registration import still_lives, unregistering

        try:
            await self._cluster.change_as_asked(
                partial(unregistering, node_id=node_id), without_session=node_id if self.membership else None
            )
        except SessionLives:
            raise still_lives() from None

    def check_not_replaced(self, replica: Replica) -> None:
        """Raise ApiError where this broker is cut off, and another one may lead by now: see
        `handlers.cut_off`."""
        if self.is_cut_off:
            replica.check_not_replaced(self.config.broker_session_timeout_ms / 2)

    def is_live(self, node_id: int) -> bool:
        """Whether a broker may serve, as the catalog says; this one does."""
        if node_id == self.node_id:
            return True
        broker = self.catalog.brokers.get(node_id)
        return broker is not None and not broker.is_fenced

    def is_offline(self, node_id: int, topic_id: UUID, index: int) -> bool:
        """Whether a replica is out of reach: its broker is gone, or its log failed."""
        if not self.is_live(node_id):
            return True
        broker = self.catalog.brokers.get(node_id)
        return broker is not None and bool(broker.offline) and (topic_id, index) in broker.offline

    def leader_of(self, topic: str, partition: int) -> int:
        """The live broker that leads a partition; -1 where none does, or there is no such partition."""
        known = self.catalog.topic(topic)
        if known is None or not known.has_partition(partition):
            return NO_LEADER
        return self.served_leader(topic, partition, known.partitions[partition].leader_id)

    def served_leader(self, topic: str, partition: int, leader_id: int) -> int:
        """The leader that the catalog names, if that broker is live and serves the partition; else -1."""
        if leader_id == self.node_id:
            replica = self.replicas.get((topic, partition))
            is_served = replica is not None and replica.stopped is None
        else:
            is_served = self.is_live(leader_id)
        return leader_id if is_served else NO_LEADER

    def replica(self, topic: str, partition: int, leader_epoch: int = NO_LEADER_EPOCH) -> Replica:
        """The replica that serves a partition, for a client that knows `leader_epoch`.

        Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR,
        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        replica = self.replicas.get((topic, partition))
        if replica is None:
            raise self.missing(topic, partition)
        if replica.is_running:
            # As in Kafka, before the role: a client of another epoch has to refresh its metadata, or to wait.
            replica.check_leader_epoch(leader_epoch)
        if replica.stopped is not None:
            raise ApiError(replica.stopped)
        if replica.leadership is not None:
            self.check_not_replaced(replica)
        return replica

    def missing(self, topic: str, partition: int) -> ApiError:
        """Why a partition has no replica here: it does not exist, its log could not be opened, or it is being
        created (then the error is retriable).
        """
        known = self.catalog.topic(topic)
        if known is None or not known.has_partition(partition):
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic, partition) in self.partitions.unopened:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _give_up(self, replica: Replica) -> None:
        """Let another broker lead what this one cannot write."""
        if self.membership is not None:
            if replica.stopped == ErrorCode.KAFKA_STORAGE_ERROR:
                self._report_offline(replica.topic, replica.partition)
            self.membership.give_up_soon(replica.topic_id, replica.partition)

    def _report_offline(self, topic: str, index: int) -> None:
        known = self.catalog.topic(topic)
        if self.membership is not None and known is not None and len(known.partitions[index].replicas) > 1:
            self.membership.report_offline(known.topic_id, index)

    async def hand_over(self, timeout_ms: int) -> bool:
        """Let others lead what they can lead, while this broker still answers. Returns whether they do.

        For `timeout_ms` it waits until enough replicas are in sync without this one."""
        if self._fetchers is None or self.membership is None:
            return False
        await self.membership.until_dispensable(timeout_ms)
        await self._fetchers.close()
        is_handed_over = await self.membership.hand_over()
        await self._reconciler.settled()
        return is_handed_over

    async def close(self, *, clean: bool = True) -> None:
        """Finish the work that has begun, flush, write snapshots, unlock the data folder.

        With `clean` false nothing is flushed or written, so the folder is as after a crash. `users` still
        check passwords: the HTTP port answers during a flush, so close them after it.
        """
        if self._closed:
            return
        self._closed = True
        if self.membership is not None:
            await (self.membership.leave() if clean else self.membership.stop())
        if self.console is not None:
            self.console.stop()
        await self.authentication.close()
        await self.cleaner.stop()
        if self.tiering is not None:
            await self.tiering.stop()
        await self.maintenance.stop()
        if self._fetchers is not None:
            await self._fetchers.close()
        await self.peers.close()
        if self.in_sync_sets is not None:
            await self.in_sync_sets.stop()
        await self.transactions.close()
        await self.groups.close()
        await self.producer_ids.close()
        await self.topics.close()
        await self._reconciler.settled()
        await self.partitions.close(clean=clean)
        try:
            await self._cluster.close()
        except (StoreError, OSError) as error:
            advice = "nothing is lost: the next start finds what was committed in its write-ahead log"
            logger.error("cluster_store_not_closed", error=str(error), advice=advice)
        self.events.close()


async def open_services(
    config: BrokerConfig,
    metrics: Metrics,
    clock_ms: Callable[[], int],
    *,
    listeners: Sequence[Listener] = (),
    steady_ms: Callable[[], int] | None = None,
    store: ClusterStore | None = None,
    disk: Disk | None = None,
) -> Services:
    """Open the data folder and everything in it.

    `clock_ms` gives milliseconds since the epoch; for `steady_ms` (default: `clock_ms`) see `broker.clock`.
    `listeners` are the addresses that the catalog names for this broker. `store` and `disk` replace the
    embedded store and the system calls. Raises DataFolderError, StoreError or OSError.
    """
    disk, steady_ms, events, turns = disk or Disk(), steady_ms or clock_ms, PeerEvents(), Turns()
    held: list[ProducerIds] = []
    logs = LogManager(
        config.data_dir, next_producer_id=lambda: held[0].bound(), disk=disk, steady_ms=steady_ms
    )
    await asyncio.to_thread(logs.lock)
    is_in_use_already = is_in_use(disk, config.data_dir)
    store = store or store_of(config, may_begin=not is_in_use_already, was_clean=logs.was_clean)
    group_commit = GroupCommit(asyncio.get_running_loop(), disk.sync_queue())
    settings = BrokerSettings(config)
    settings.when_changed(lambda: log_events.set_level(settings.config.log_level))
    topic_settings = TopicConfigs(settings)
    membership = None
    try:
        cluster = await _cluster(store, settings)
        remote_store = _remote_store(config, cluster.catalog)
        peers = Peers(settings, cluster.catalog, events)
        identity = FolderIdentity(cluster.catalog.cluster_id, config.node_id)
        noted = None
        if isinstance(store, SharedStore):
            from tidelog.broker.coordinator.noted_bound import NotedBound

            peers.check_settings()
            noted = NotedBound(cluster, disk, config.data_dir)
            # The processes of one machine end their sessions when they end.
            until_refused = peers.until_refused if config.cluster_store.startswith(ETCD) else None
            from tidelog.broker.peers.epochs import end_of_log

            membership = await _registered(
                cluster,
                store,
                settings,
                disk,
                identity,
                listeners,
                until_refused,
                partial(end_of_log, peers, config.node_id),
                noted,
            )
        else:
            await asyncio.to_thread(claim, disk, config.data_dir, identity)
        held.append(ProducerIds(cluster, steady_ms, noted))
        partitions = Partitions(
            logs,
            topic_settings,
            lambda: _base_log_config(settings.config),
            node_id=config.node_id,
            group_commit=group_commit,
            metrics=metrics,
            clock_ms=clock_ms,
        )
        fetchers = leader_quota = follower_quota = None
        # The processes of one machine keep one replica of each partition, and hand nothing over.
        if membership is not None and not config.cluster_store.startswith(UNIX):
            partitions.are_moved = True
            leader_quota, follower_quota = _replication_quotas(settings)
            fetchers = _fetchers(
                settings, cluster.catalog, partitions, peers, membership, clock_ms, events, follower_quota
            )
        reconciler = await _reconciled(cluster, settings, partitions, turns)
        if membership is None:
            await _register(cluster, BrokerRegistration(config.node_id, tuple(listeners)))
        await _begin_producer_ids(
            held[0], cluster.catalog, partitions, disk, is_newest=store.is_newest, is_alone=membership is None
        )
    except BaseException:
        await _give_up(group_commit, store, logs)
        raise
    topics = _topics(settings, cluster, reconciler, topic_settings, events, turns)
    in_sync_sets = None
    if membership is not None:
        in_sync_sets = _in_sync_sets(cluster, partitions, settings, metrics)
        if leader_quota is not None and follower_quota is not None:
            metrics.throttled_replicas = {"leader": leader_quota, "follower": follower_quota}
        cluster.follow(topics.follow)
        metrics.cluster = membership.counts
        await topics.report_gone()
    metrics.producer_ids = lambda: logs.producer_id_count
    groups = _groups(settings, cluster, topics, partitions, clock_ms, steady_ms)
    cluster.follow(peers.follow)
    remote = RemoteTransactions(peers)
    return Services(
        settings,
        metrics,
        clock_ms,
        cluster=cluster,
        acls=_acls(config, cluster, groups),
        producer_ids=held[0],
        partitions=partitions,
        reconciler=reconciler,
        topics=topics,
        groups=groups,
        transactions=_transactions(
            settings, cluster, topics, groups, held[0], clock_ms, steady_ms, partitions, remote, events
        ),
        remote=remote,
        peers=peers,
        membership=membership,
        in_sync_sets=in_sync_sets,
        leader_quota=leader_quota,
        fetchers=fetchers,
        maintenance=_maintenance(partitions, clock_ms, steady_ms, config, events),
        cleaner=_begun_cleaner(partitions, clock_ms, steady_ms, settings, metrics, disk),
        tiering=_tiering(remote_store, settings, partitions, reconciler, clock_ms, metrics),
        events=events,
        handles=HandleBudget(disk, lambda: len(partitions.replicas)),
        turns=turns,
    )


def _in_sync_sets(
    cluster: Cluster, partitions: Partitions, settings: BrokerSettings, metrics: Metrics
) -> InSyncSets:
    from tidelog.broker.replicas.in_sync_sets import InSyncSets

    in_sync_sets = InSyncSets(cluster, partitions, lambda: settings.config.replica_lag_time_max_ms)
    in_sync_sets.start()
    cluster.follow(in_sync_sets.follow)
    metrics.in_sync = in_sync_sets.counts
    return in_sync_sets


def _replication_quotas(settings: BrokerSettings) -> tuple[ReplicationQuota, ReplicationQuota]:
    """Those of this broker as a leader and as a follower, which follow the settings."""
    from tidelog.broker.replicas.replication_quota import ReplicationQuota

    clock = asyncio.get_running_loop().time
    as_leader, as_follower = (ReplicationQuota(settings.config.node_id, clock) for _ in range(2))

    def take_over() -> None:
        as_leader.set_rate(settings.config.leader_replication_throttled_rate)
        as_follower.set_rate(settings.config.follower_replication_throttled_rate)

    take_over()
    settings.when_changed(take_over)
    return as_leader, as_follower


def _fetchers(
    settings: BrokerSettings,
    catalog: Catalog,
    partitions: Partitions,
    peers: Peers,
    membership: Membership,
    clock_ms: Callable[[], int],
    events: PeerEvents,
    quota: ReplicationQuota,
) -> Fetchers:
    from tidelog.broker.cluster.registration import replica_epoch_of
    from tidelog.broker.peers.epochs import end_of_epoch
    from tidelog.broker.peers.snapshots import fetch_snapshot
    from tidelog.broker.replicas.fetchers import Fetchers
    from tidelog.broker.replicas.fetching import FetchLimits

    config = settings.config
    return Fetchers(
        partitions,
        catalog,
        peers.fetch,
        partial(fetch_snapshot, peers, config.node_id),
        partial(end_of_epoch, peers, config.node_id),
        clock_ms,
        events,
        quota,
        replica_epoch=replica_epoch_of(membership.incarnation),
        limits=FetchLimits(
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_backoff_ms,
        ),
        partition_max_bytes=config.replica_fetch_max_bytes,
    )


def _remote_store(config: BrokerConfig, catalog: Catalog) -> ObjectStore | None:
    """None where remote storage is not enabled. Raises DataFolderError where it cannot be used, or topics
    need it and it is not enabled."""
    if config.remote_log_storage_system_enable:
        from tidelog.broker.tiering.tiering import remote_store

        try:
            return remote_store(config)
        except ValueError as error:
            raise DataFolderError(f"remote.storage.url: {error}") from None
    for topic in catalog.topics():
        if topic.configs.get("remote.storage.enable") == "true":
            raise DataFolderError(
                f"the topic {topic.name} has remote.storage.enable, so its old records may be in remote"
                " storage: set remote.log.storage.system.enable and remote.storage.url as before"
            )
    return None


def _tiering(
    store: ObjectStore | None,
    settings: BrokerSettings,
    partitions: Partitions,
    reconciler: Reconciler,
    clock_ms: Callable[[], int],
    metrics: Metrics,
) -> Tiering | None:
    if store is None:
        return None
    from tidelog.broker.observability.remote_counts import RemoteCounts
    from tidelog.broker.tiering.tiering import Tiering

    metrics.remote = RemoteCounts()
    tiering = Tiering(partitions, reconciler, store, lambda: settings.config, clock_ms, metrics.remote)
    tiering.start()
    return tiering


def _maintenance(
    partitions: Partitions,
    clock_ms: Callable[[], int],
    steady_ms: Callable[[], int],
    config: BrokerConfig,
    events: PeerEvents,
) -> Maintenance:
    maintenance = Maintenance(partitions, clock_ms, steady_ms, config, events)
    maintenance.start()
    return maintenance


def _transactions(
    settings: BrokerSettings,
    cluster: Cluster,
    topics: Topics,
    groups: GroupCoordinator,
    producer_ids: ProducerIds,
    clock_ms: Callable[[], int],
    steady_ms: Callable[[], int],
    partitions: Partitions,
    remote: RemoteTransactions,
    events: PeerEvents,
) -> TransactionCoordinator:
    transactions = TransactionCoordinator(
        settings,
        cluster.catalog,
        topics,
        partitions.replicas,
        groups,
        producer_ids,
        clock_ms,
        steady_ms,
        partitions.node_id,
        remote,
        events,
    )
    transactions.start()
    cluster.follow(transactions.follow)
    return transactions


def _begun_cleaner(
    partitions: Partitions,
    clock_ms: Callable[[], int],
    steady_ms: Callable[[], int],
    settings: BrokerSettings,
    metrics: Metrics,
    disk: Disk,
) -> LogCleaner:
    def earlier_ms() -> int:
        return min(clock_ms(), steady_ms())

    cleaner = LogCleaner(partitions, earlier_ms, lambda: settings.config, metrics.cleaner, disk)
    cleaner.start()
    return cleaner


def _groups(
    settings: BrokerSettings,
    cluster: Cluster,
    topics: Topics,
    partitions: Partitions,
    clock_ms: Callable[[], int],
    steady_ms: Callable[[], int],
) -> GroupCoordinator:
    groups = GroupCoordinator(
        settings, cluster.catalog, topics, partitions.replicas, clock_ms, steady_ms, partitions.node_id
    )
    groups.start()
    cluster.follow(groups.follow)
    return groups


def _acls(config: BrokerConfig, cluster: Cluster, groups: GroupCoordinator) -> Acls:
    authorizer = None
    if config.authorizer_class_name:
        authorizer = Authorizer(
            cluster.catalog.acls,
            (*config.super_user_names, BROKER_PRINCIPAL),
            allow_if_no_acl=config.allow_everyone_if_no_acl_found,
        )
        groups.hide_topics()
        if not config.super_user_names and not cluster.catalog.acls:
            advice = "no user may create ACLs: set super.users"
            logger.warning("authorizer_without_super_users", advice=advice)
    acls = Acls(cluster, authorizer)
    acls.follow(groups.refresh_soon)
    return acls


async def _give_up(group_commit: GroupCommit, store: ClusterStore, logs: LogManager) -> None:
    await group_commit.close()
    await store.close()
    # A log that was not opened is as the last process left it: it is clean only if that process left it
    # clean.
    await asyncio.to_thread(logs.close, clean=logs.was_clean)


async def _cluster(store: ClusterStore, settings: BrokerSettings) -> Cluster:
    """The cluster, whose changed settings hold and are followed. Raises StoreError, OSError."""
    cluster = Cluster(await store.load(), store)
    _apply_changed(settings, cluster.catalog)
    cluster.follow(partial(_follow_settings, settings, cluster.catalog))
    return cluster


async def _registered(
    cluster: Cluster,
    store: SharedStore,
    settings: BrokerSettings,
    disk: Disk,
    identity: FolderIdentity,
    listeners: Sequence[Listener],
    until_refused: Callable[[int, bool], Awaitable[None]] | None,
    end_of_log: EndOfLog,
    noted: NotedBound,
) -> Membership:
    """The broker with a session, registered as one that does not serve yet.

    Raises StoreError where another broker is the one of this id, or this data folder is not its last one;
    DataFolderError where the catalog is an older one, or another cluster's; OSError.
    """
    from tidelog.broker.cluster.membership import Membership
    from tidelog.broker.cluster.preferred_leaders import LeaderRebalance

    config = settings.config
    rebalance = LeaderRebalance(
        config.leader_imbalance_check_interval_seconds, config.leader_imbalance_per_broker_percentage
    )
    broker = BrokerRegistration(config.node_id, tuple(listeners), rack=config.broker_rack or None)
    membership = Membership(
        cluster,
        store,
        broker,
        session_timeout_ms=config.broker_session_timeout_ms,
        least_in_sync=lambda topic: least_in_sync(topic, settings.config.min_insync_replicas),
        until_refused=until_refused,
        end_of_log=end_of_log,
        leader_rebalance=rebalance if config.auto_leader_rebalance_enable else None,
    )
    starts = await asyncio.to_thread(starts_of, disk, config.data_dir)
    await membership.begin(await asyncio.to_thread(ended_start, disk, config.data_dir, starts))
    lost = UUID(config.broker_lost_incarnation) if config.broker_lost_incarnation else None
    await asyncio.to_thread(claim, disk, config.data_dir, identity)
    is_in_etcd = config.cluster_store.startswith(ETCD)
    revision = cluster.catalog.revision if is_in_etcd else 0
    if is_in_etcd:
        check_revision(config.data_dir, starts, revision)
    await noted.begin()
    membership.check(starts.directory_id, starts.incarnations, lost)
    registered = cluster.catalog.brokers.get(config.node_id)
    await asyncio.to_thread(
        note_start,
        disk,
        config.data_dir,
        identity,
        starts,
        None if registered is None else registered.incarnation,
        membership.incarnation,
        revision,
    )
    await membership.register(starts.incarnations, lost)
    return membership


async def _reconciled(
    cluster: Cluster, settings: BrokerSettings, partitions: Partitions, turns: Turns
) -> Reconciler:
    """The reconciler, which keeps the replicas as the catalog says. Raises DataFolderError, OSError."""
    reconciler = Reconciler(partitions, turns)
    cluster.follow(reconciler.follow)
    settings.when_changed(lambda: reconciler.reconfigure(list(cluster.catalog.topics())))
    await reconciler.open_all(cluster.catalog)
    return reconciler


async def _register(cluster: Cluster, broker: BrokerRegistration) -> None:
    if cluster.catalog.brokers.get(broker.node_id) != broker:
        await cluster.change(lambda _: BrokerRegistered(broker))


async def _begin_producer_ids(
    ids: ProducerIds, catalog: Catalog, partitions: Partitions, disk: Disk, *, is_newest: bool, is_alone: bool
) -> None:
    """Start new producer ids above all ids that were handed out.

    The catalog may be older than the logs. Then all batches on the disk are read, because an open log forgets
    producers and a log that is not open was not asked. Among others it is not older (`noted_bound`): an id
    above its bound was made up by a client, which makes no start read all batches.
    """
    data_dir = partitions.logs.data_dir
    highest = partitions.highest_producer_id
    if is_newest and (highest < catalog.next_producer_id or not is_alone):
        folders = [data_dir / f"{topic}-{index}" for topic, index in sorted(partitions.unopened)]
    else:
        folders = await asyncio.to_thread(log_folders, disk, data_dir)
        logger.info("logs_read_for_producer_ids", folders=len(folders), advice=_READ_FOR_IDS)
    for folder in folders:
        highest = max(highest, await asyncio.to_thread(highest_producer_id_in, disk, folder))
    ids.begin_above(highest, is_newest=is_newest)


def _apply_changed(settings: BrokerSettings, catalog: Catalog) -> None:
    """Let the settings hold that were changed at run time; those that cannot hold are named in an event."""
    own = catalog.broker_configs.get(str(settings.config.node_id), {})
    for error in settings.apply(own, catalog.broker_configs.get(ALL_BROKERS, {})):
        advice = "the value from the start applies; set it again or delete it with `tidelog broker config`"
        logger.warning("broker_setting_ignored", error=str(error), advice=advice)
    for name in settings.without_effect():
        logger.warning("broker_setting_without_effect", setting=name, advice="see its description")


def _follow_settings(settings: BrokerSettings, catalog: Catalog, change: Change) -> None:
    if isinstance(change.delta, BrokerConfigsChanged):
        _apply_changed(settings, catalog)


def _topics(
    settings: BrokerSettings,
    cluster: Cluster,
    reconciler: Reconciler,
    topic_settings: TopicConfigs,
    events: PeerEvents,
    turns: Turns,
) -> Topics:
    config = settings.config
    return Topics(
        cluster,
        reconciler,
        settings,
        topic_settings,
        events,
        turns,
        brokers=lambda: [each.node_id for each in cluster.catalog.brokers.values() if not each.is_fenced],
        internal={
            OFFSETS_TOPIC: _internal_topic(
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                config.offsets_topic_segment_bytes,
            ),
            TRANSACTIONS_TOPIC: _internal_topic(
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_replication_factor,
                config.transaction_state_log_segment_bytes,
            ),
        },
    )


def _internal_topic(num_partitions: int, replication_factor: int, segment_bytes: int) -> NewTopic:
    configs = {**INTERNAL_TOPIC_CONFIGS, "segment.bytes": str(segment_bytes)}
    return NewTopic(num_partitions, replication_factor, configs=configs)


def _base_log_config(config: BrokerConfig) -> LogConfig:
    """The settings of a log that no topic can set."""
    rules = ProducerRules(
        reject_unknown_sequence=config.producer_id_unknown_sequence == "reject",
        duplicate_below_window=config.producer_duplicate_below_window,
        expiration_ms=config.producer_id_expiration_ms,
        max_producers=config.max_producer_ids_per_partition,
    )
    return LogConfig(producers=rules)
