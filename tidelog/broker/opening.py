"""Opens what is below the handlers: `services`.

Owns the order: lock the data folder, load the catalog, check that folder and catalog belong together, recover
the logs in a thread, then start the timers. Invariant: after `open_services` returned, every partition of the
catalog is served or reported as offline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from tidelog.broker.cluster.catalog import (
    ALL_BROKERS,
    INTERNAL_TOPIC_CONFIGS,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
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
from tidelog.broker.cluster.store import ClusterStore, SharedStore, WatchedStore
from tidelog.broker.cluster_stores import store_of
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.cluster_settings import ETCD, UNIX
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.broker.coordinator.group_coordinator import GroupCoordinator
from tidelog.broker.coordinator.producer_id_manager import ProducerIds
from tidelog.broker.coordinator.remote_transactions import RemoteTransactions
from tidelog.broker.coordinator.shards import CoordinatorParts
from tidelog.broker.coordinator.transaction_coordinator import TransactionCoordinator
from tidelog.broker.limits.handle_budget import HandleBudget
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.turns import Turns
from tidelog.broker.observability import log_events
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.peers.peers import Peers
from tidelog.broker.replicas import ownership
from tidelog.broker.replicas.group_commit import GroupCommit
from tidelog.broker.replicas.log_cleaner import LogCleaner
from tidelog.broker.replicas.maintenance import Maintenance
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.reconciler import Reconciler
from tidelog.broker.replicas.topics import NewTopic, Topics
from tidelog.broker.security.acls import Acls
from tidelog.broker.security.authorizer import Authorizer
from tidelog.broker.security.broker_user import BROKER_PRINCIPAL
from tidelog.broker.services import Services
from tidelog.broker.storage.checkpoints import FolderIdentity
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.manager import DataFolderError, LogManager
from tidelog.broker.storage.producer_state import ProducerRules
from tidelog.broker.storage.seen_producer_ids import highest_producer_id_in, log_folders

if TYPE_CHECKING:
    from tidelog.broker.cluster.membership import Membership
    from tidelog.broker.replicas.catalog_checkpoint import CatalogCheckpoint
    from tidelog.broker.replicas.fetchers import Fetchers
    from tidelog.broker.replicas.in_sync_sets import InSyncSets
    from tidelog.broker.replicas.replication_quota import ReplicationQuota
    from tidelog.broker.tiering.tiering import Tiering
    from tidelog.remote_log.object_store import ObjectStore

logger = structlog.get_logger(__name__)
_READ_FOR_IDS = (
    "nothing to do, but with much data this start takes longer: the catalog may be an older one, so all "
    "batches are read, so that no producer id is assigned twice"
)


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
    opening = _Opening(config, metrics, clock_ms, steady_ms or clock_ms, listeners, disk or Disk())
    return await opening.services(store)


class _Opening:
    """What is open so far, as the next step needs it."""

    def __init__(
        self,
        config: BrokerConfig,
        metrics: Metrics,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        listeners: Sequence[Listener],
        disk: Disk,
    ) -> None:
        self._config, self._metrics, self._disk = config, metrics, disk
        self._clock_ms, self._steady_ms = clock_ms, steady_ms
        self._listeners = tuple(listeners)
        self._settings = settings = BrokerSettings(config)
        settings.when_changed(lambda: log_events.set_level(settings.config.log_level))
        self._topic_settings = TopicConfigs(settings)
        self._events, self._turns = PeerEvents(), Turns()
        self._cluster: Cluster
        self._partitions: Partitions
        self._peers: Peers
        self._producer_ids: ProducerIds
        self._reconciler: Reconciler
        self._membership: Membership | None = None

    async def services(self, store: ClusterStore | None) -> Services:
        config, metrics, settings, disk = self._config, self._metrics, self._settings, self._disk
        logs = LogManager(
            config.data_dir,
            next_producer_id=lambda: self._producer_ids.bound(),
            disk=disk,
            steady_ms=self._steady_ms,
        )
        await asyncio.to_thread(logs.lock)
        is_in_use_already = ownership.is_in_use(disk, config.data_dir)
        store = store or store_of(config, may_begin=not is_in_use_already, was_clean=logs.was_clean)
        group_commit = GroupCommit(asyncio.get_running_loop(), disk.sync_queue())
        try:
            self._cluster = cluster = await _cluster(store, settings)
            remote_store = _remote_store(config, cluster.catalog)
            self._peers = peers = Peers(settings, cluster.catalog, self._events)
            identity = FolderIdentity(cluster.catalog.cluster_id, config.node_id)
            noted = None
            if isinstance(store, SharedStore):
                from tidelog.broker.replicas.catalog_checkpoint import CatalogCheckpoint

                peers.check_settings()
                watched = store if isinstance(store, WatchedStore) else None
                noted = CatalogCheckpoint(cluster, disk, config.data_dir, watched)
                self._membership = await self._registered(store, identity, noted)
            else:
                await asyncio.to_thread(ownership.claim, disk, config.data_dir, identity)
            self._producer_ids = ProducerIds(cluster, self._steady_ms, noted)
            self._partitions = partitions = Partitions(
                logs,
                self._topic_settings,
                lambda: _base_log_config(settings.config),
                node_id=config.node_id,
                group_commit=group_commit,
                metrics=metrics,
                clock_ms=self._clock_ms,
            )
            if noted is not None:
                partitions.when_noted = noted.when_noted
            fetchers = leader_quota = None
            # The processes of one machine keep one replica of each partition, and hand nothing over.
            if self._membership is not None and not config.cluster_store.startswith(UNIX):
                partitions.are_moved = True
                leader_quota, follower_quota = _replication_quotas(settings)
                metrics.throttled_replicas = {"leader": leader_quota, "follower": follower_quota}
                fetchers = self._fetchers(self._membership, follower_quota)
            self._reconciler = await self._reconciled()
            if self._membership is None:
                broker = BrokerRegistration(config.node_id, self._listeners)
                if cluster.catalog.brokers.get(broker.node_id) != broker:
                    await cluster.change(lambda _: BrokerRegistered(broker))
            await self._begin_producer_ids(is_newest=store.is_newest)
        except BaseException:
            await _give_up(group_commit, store, logs)
            raise
        topics = self._topics()
        # Before the catalog may hear that nothing is left here of a deleted topic.
        tiering = self._tiering(remote_store)
        in_sync_sets = None
        if self._membership is not None:
            in_sync_sets = self._in_sync_sets()
            cluster.follow(topics.follow)
            metrics.cluster = self._membership.counts
            if isinstance(store, WatchedStore):
                metrics.store = lambda: store.view
            await topics.report_gone()
        metrics.producer_ids = lambda: logs.producer_id_count
        parts = CoordinatorParts(
            settings, cluster.catalog, topics, partitions.replicas, self._clock_ms, self._steady_ms
        )
        groups, remote = GroupCoordinator(parts), RemoteTransactions(peers)
        transactions = TransactionCoordinator(parts, groups, self._producer_ids, remote, self._events)
        for coordinator in (groups, transactions):
            coordinator.start()
            cluster.follow(coordinator.follow)
        cluster.follow(peers.follow)
        return Services(
            settings=settings,
            metrics=metrics,
            clock_ms=self._clock_ms,
            steady_ms=self._steady_ms,
            cluster=cluster,
            acls=_acls(config, cluster, groups),
            producer_ids=self._producer_ids,
            partitions=partitions,
            reconciler=self._reconciler,
            topics=topics,
            coordinator_parts=parts,
            groups=groups,
            transactions=transactions,
            remote=remote,
            peers=peers,
            membership=self._membership,
            in_sync_sets=in_sync_sets,
            leader_quota=leader_quota,
            fetchers=fetchers,
            maintenance=self._maintenance(),
            cleaner=self._cleaner(),
            tiering=tiering,
            events=self._events,
            handles=HandleBudget(disk, lambda: len(partitions.replicas)),
            turns=self._turns,
        )

    def _in_sync_sets(self) -> InSyncSets:
        from tidelog.broker.replicas.in_sync_sets import InSyncSets

        settings = self._settings
        made = InSyncSets(self._cluster, self._partitions, lambda: settings.config.replica_lag_time_max_ms)
        made.start()
        self._cluster.follow(made.follow)
        self._metrics.in_sync = made.counts
        return made

    def _fetchers(self, membership: Membership, quota: ReplicationQuota) -> Fetchers:
        from tidelog.broker.cluster.registration import replica_epoch_of
        from tidelog.broker.replicas.fetchers import Fetchers
        from tidelog.broker.replicas.fetching import FetchLimits

        config, peers = self._config, self._peers
        return Fetchers(
            self._partitions,
            self._cluster.catalog,
            peers.fetch,
            peers.fetch_snapshot,
            peers.end_of_epoch,
            self._clock_ms,
            self._events,
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

    def _tiering(self, store: ObjectStore | None) -> Tiering | None:
        if store is None:
            return None
        from tidelog.broker.observability.remote_counts import RemoteCounts
        from tidelog.broker.tiering.tiering import Tiering

        counts = self._metrics.remote = RemoteCounts()
        settings, now = self._settings, self._clock_ms
        made = Tiering(self._partitions, self._reconciler, store, lambda: settings.config, now, counts)
        made.start()
        return made

    def _maintenance(self) -> Maintenance:
        made = Maintenance(
            self._partitions,
            self._clock_ms,
            self._steady_ms,
            self._config,
            self._events,
            partial(self._reconciler.open_again, self._cluster.catalog),
        )
        made.start()
        return made

    def _cleaner(self) -> LogCleaner:
        def earlier_ms() -> int:
            return min(self._clock_ms(), self._steady_ms())

        made = LogCleaner(
            self._partitions, earlier_ms, lambda: self._settings.config, self._metrics.cleaner, self._disk
        )
        made.start()
        return made

    async def _registered(
        self, store: SharedStore, identity: FolderIdentity, noted: CatalogCheckpoint
    ) -> Membership:
        """The broker with a session, registered as one that does not serve yet.

        Raises StoreError if another broker is the one of this id, or this data folder is not its last one;
        DataFolderError where the catalog is an older one, or another cluster's; OSError.
        """
        from tidelog.broker.cluster.controller import LeaderRebalance
        from tidelog.broker.cluster.membership import Membership

        config, settings, cluster, disk = self._config, self._settings, self._cluster, self._disk
        rebalance = LeaderRebalance(
            config.leader_imbalance_check_interval_seconds, config.leader_imbalance_per_broker_percentage
        )
        broker = BrokerRegistration(config.node_id, self._listeners, rack=config.broker_rack or None)
        membership = Membership(
            cluster,
            store,
            broker,
            session_timeout_ms=config.broker_session_timeout_ms,
            least_in_sync=lambda topic: least_in_sync(topic, settings.config.min_insync_replicas),
            # The processes of one machine end their sessions when they end.
            until_refused=self._peers.until_refused if config.cluster_store.startswith(ETCD) else None,
            end_of_log=self._peers.end_of_log,
            leader_rebalance=rebalance if config.auto_leader_rebalance_enable else None,
        )
        starts = await asyncio.to_thread(ownership.starts_of, disk, config.data_dir)
        await membership.begin(await asyncio.to_thread(ownership.ended_start, disk, config.data_dir, starts))
        lost = UUID(config.broker_lost_incarnation) if config.broker_lost_incarnation else None
        await asyncio.to_thread(ownership.claim, disk, config.data_dir, identity)
        await noted.begin()
        membership.check(starts.directory_id, starts.incarnations, lost)
        registered = cluster.catalog.brokers.get(config.node_id)
        await asyncio.to_thread(
            ownership.note_start,
            disk,
            config.data_dir,
            identity,
            starts,
            None if registered is None else registered.incarnation,
            membership.incarnation,
        )
        await membership.register(starts.incarnations, lost)
        return membership

    async def _reconciled(self) -> Reconciler:
        """The reconciler, which keeps the replicas as the catalog says. Raises DataFolderError, OSError."""
        cluster = self._cluster
        reconciler = Reconciler(self._partitions, self._turns)
        cluster.follow(reconciler.follow)
        self._settings.when_changed(lambda: reconciler.reconfigure(list(cluster.catalog.topics())))
        await reconciler.open_all(cluster.catalog)
        return reconciler

    async def _begin_producer_ids(self, *, is_newest: bool) -> None:
        """Start new producer ids above all ids that were handed out.

        The catalog may be older than the logs. Then all batches on the disk are read, because an open log
        forgets producers and a log that is not open was not asked. Among others it is not older
        (`catalog_checkpoint`): an id above its bound was made up by a client, which makes no start read all
        batches.
        """
        partitions, disk, data_dir = self._partitions, self._disk, self._config.data_dir
        highest = partitions.highest_producer_id
        if is_newest and (highest < self._cluster.catalog.next_producer_id or self._membership is not None):
            folders = [data_dir / f"{topic}-{index}" for topic, index in sorted(partitions.unopened)]
        else:
            folders = await asyncio.to_thread(log_folders, disk, data_dir)
            logger.info("logs_read_for_producer_ids", folders=len(folders), advice=_READ_FOR_IDS)
        for folder in folders:
            highest = max(highest, await asyncio.to_thread(highest_producer_id_in, disk, folder))
        self._producer_ids.begin_above(highest, is_newest=is_newest)

    def _topics(self) -> Topics:
        config, cluster = self._config, self._cluster
        return Topics(
            cluster,
            self._reconciler,
            self._settings,
            self._topic_settings,
            self._events,
            self._turns,
            internal={
                OFFSETS_TOPIC: _internal_topic(
                    OFFSETS_TOPIC,
                    config.offsets_topic_num_partitions,
                    config.offsets_topic_replication_factor,
                    config.offsets_topic_segment_bytes,
                ),
                TRANSACTIONS_TOPIC: _internal_topic(
                    TRANSACTIONS_TOPIC,
                    config.transaction_state_log_num_partitions,
                    config.transaction_state_log_replication_factor,
                    config.transaction_state_log_segment_bytes,
                ),
                SHARE_STATE_TOPIC: _internal_topic(
                    SHARE_STATE_TOPIC,
                    config.share_coordinator_state_topic_num_partitions,
                    config.share_coordinator_state_topic_replication_factor,
                    config.share_coordinator_state_topic_segment_bytes,
                ),
            },
        )


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


def _remote_store(config: BrokerConfig, catalog: Catalog) -> ObjectStore | None:
    """None if remote storage is not enabled. Raises DataFolderError if it cannot be used, or topics
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


def _internal_topic(name: str, num_partitions: int, replication_factor: int, segment_bytes: int) -> NewTopic:
    configs = {**INTERNAL_TOPIC_CONFIGS[name], "segment.bytes": str(segment_bytes)}
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
