"""Everything below the handlers: catalog, logs, replicas, producer ids, timers.

Owns what handlers ask of several of them, and the order of closing: stop the timers, finish the work that has
begun, flush, write snapshots and the marker of a clean shutdown, unlock the folder. `opening` opens them.

Invariants: `close` may be called again and then does nothing; no globals, so several brokers may share a
process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import structlog

from tidelog.broker.cluster.catalog import NO_LEADER, SHARE_STATE_TOPIC, Catalog
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.store import SessionLives, StoreError
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.coordinator.group_coordinator import GroupCoordinator
from tidelog.broker.coordinator.participation import TransactionParticipation
from tidelog.broker.coordinator.producer_id_manager import ProducerIds
from tidelog.broker.coordinator.remote_transactions import RemoteTransactions
from tidelog.broker.coordinator.shards import CoordinatorParts
from tidelog.broker.coordinator.transaction_coordinator import TransactionCoordinator
from tidelog.broker.limits.handle_budget import HandleBudget
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.limits.queued_memory import QueuedMemory
from tidelog.broker.limits.quotas import QuotaStore
from tidelog.broker.limits.turns import Turns
from tidelog.broker.observability.history import History
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.observability.producer_outcomes import ProducerOutcomes
from tidelog.broker.peers.peers import Peers
from tidelog.broker.replicas.log_cleaner import LogCleaner
from tidelog.broker.replicas.maintenance import Maintenance
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.reconciler import Reconciler
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import Topics
from tidelog.broker.security.acls import Acls
from tidelog.broker.security.authentication import Authentication
from tidelog.broker.security.users import Users
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from tidelog.broker.cluster.membership import Membership
    from tidelog.broker.replicas.fetchers import Fetchers
    from tidelog.broker.replicas.in_sync_sets import InSyncSets
    from tidelog.broker.replicas.replication_quota import ReplicationQuota
    from tidelog.broker.share.share import Share
    from tidelog.broker.telemetry.telemetry import Telemetry
    from tidelog.broker.tiering.tiering import Tiering
    from tidelog.protocol import message_types as types
    from tidelog.protocol.messages.declaration import DictOf

logger = structlog.get_logger(__name__)


class Console(Protocol):
    """What answers for this broker's console where another broker asks."""

    async def answer_peer(
        self, request: types.AskConsoleRequest, asked_by: str
    ) -> DictOf[types.AskConsoleResponse]: ...

    def stop(self) -> None: ...


@dataclass(kw_only=True, eq=False)
class Services:
    """Holds the parts of a broker that handlers use, and closes them in order."""

    settings: BrokerSettings
    metrics: Metrics
    clock_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    """A clock that is never set."""
    cluster: Cluster
    acls: Acls
    producer_ids: ProducerIds
    partitions: Partitions
    reconciler: Reconciler
    topics: Topics
    coordinator_parts: CoordinatorParts
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    remote: InitVar[RemoteTransactions]
    peers: Peers
    membership: Membership | None
    """None if the catalog is in the own data folder; likewise the next three."""
    in_sync_sets: InSyncSets | None
    leader_quota: ReplicationQuota | None
    """Of what followers read; None if there are none."""
    fetchers: Fetchers | None
    maintenance: Maintenance
    cleaner: LogCleaner
    tiering: Tiering | None
    """None: this broker has no remote storage."""
    events: PeerEvents
    handles: HandleBudget
    turns: Turns
    telemetry: Telemetry | None = None
    """None: no client has asked for its subscription yet."""
    console: Console | None = None
    """None: this broker has no console."""
    history: History | None = None
    """None: this broker has no console or no HTTP port."""

    def __post_init__(self, remote: RemoteTransactions) -> None:
        config, partitions, membership = self.settings.config, self.partitions, self.membership
        self.memory = QueuedMemory(config.queued_max_bytes)
        self.producer_outcomes = ProducerOutcomes()
        self.start_ms = self.clock_ms()
        self.node_id = config.node_id
        self.catalog: Catalog = self.cluster.catalog
        self.replicas = partitions.replicas
        self.quotas = QuotaStore(
            self.cluster,
            (config.quota_window_num - 1) * config.quota_window_size_seconds,
            config.controller_quota_window_num * config.controller_quota_window_size_seconds,
        )
        self.metrics.transactions = self.transactions.counts
        self.users = Users(self.cluster)
        self.authentication = Authentication(
            self.settings, self.users, self.metrics, self.events, self.clock_ms
        )
        self.transaction_verifier = self.transactions
        self.participation = TransactionParticipation(
            self.transactions, remote, self.replicas, partitions.node_id
        )
        self._share: Share | None = None
        self._closed = False
        if self.catalog.topic(SHARE_STATE_TOPIC) is not None:
            _ = self.share  # Its partitions are replayed before clients ask.
        if membership is not None:
            self.groups.refuse_while(lambda: membership.is_cut_off)
            self.transactions.refuse_while(lambda: membership.is_cut_off)
            partitions.when_troubled = self._give_up
            partitions.when_unopened = self._report_offline
            partitions.when_opened = self._report_opened
            for topic, index in partitions.unopened:
                self._report_offline(topic, index)

    @property
    def config(self) -> BrokerConfig:
        """The settings in force. Some may change at run time: ask again, do not keep it."""
        return self.settings.config

    def made_telemetry(self) -> Telemetry:
        """What clients push, from the first client on that asks."""
        if self.telemetry is None:
            from tidelog.broker.telemetry.telemetry import Telemetry

            self.telemetry = Telemetry(self.cluster, self.settings, self.clock_ms)
        return self.telemetry

    @property
    def share(self) -> Share:
        """What serves share groups, which is imported with the first use of one."""
        if self._share is None:
            from tidelog.broker.share.share import Share

            self._share = Share(self)
        return self._share

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
            await self.cluster.change_as_asked(
                partial(unregistering, node_id=node_id), without_session=node_id if self.membership else None
            )
        except SessionLives:
            raise still_lives() from None

    def check_not_replaced(self, replica: Replica) -> None:
        """Raise ApiError if this broker is cut off, or has asked for another leader, and one may lead by now:
        see `handlers.cut_off`."""
        if replica.is_given_up:
            # A follower that waits for records asks again within this time.
            replica.check_not_replaced(2 * self.config.replica_fetch_wait_max_ms)
        elif self.is_cut_off:
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
        assigned = self.catalog.assigned(topic, partition)
        return NO_LEADER if assigned is None else self.served_leader(topic, partition, assigned.leader_id)

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
        created (then the error is retriable)."""
        if self.catalog.assigned(topic, partition) is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic, partition) in self.partitions.unopened:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _give_up(self, replica: Replica) -> None:
        """Let another broker lead what this one cannot write."""
        if self.membership is not None:
            if replica.stopped == ErrorCode.KAFKA_STORAGE_ERROR:
                self._report_offline(replica.topic, replica.partition)
            if replica.is_given_up:
                return
            # Until this is known, another broker may have been elected and have written.
            replica.is_given_up = True
            kept = partial(replica.kept, replica.leader_epoch)
            self.membership.give_up_soon(replica.topic_id, replica.partition, kept)

    def _report_offline(self, topic: str, index: int) -> None:
        known = self.catalog.topic(topic)
        if self.membership is not None and known is not None and len(known.partitions[index].replicas) > 1:
            self.membership.report_offline(known.topic_id, index)

    def _report_opened(self, topic: str, index: int) -> None:
        known = self.catalog.topic(topic)
        if self.membership is not None and known is not None:
            self.membership.report_opened(known.topic_id, index)

    async def hand_over(self, timeout_ms: int) -> bool:
        """Let others lead what they can lead, while this broker still answers. Returns whether they do.

        For `timeout_ms` it waits until enough replicas are in sync without this one."""
        if self.fetchers is None or self.membership is None:
            return False
        await self.membership.until_dispensable(timeout_ms)
        await self.fetchers.close()
        is_handed_over = await self.membership.hand_over()
        await self.reconciler.settled()
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
        if self.history is not None:
            self.history.stop()
        await self.authentication.close()
        await self.cleaner.stop()
        if self.tiering is not None:
            await self.tiering.stop()
        await self.maintenance.stop()
        if self.fetchers is not None:
            await self.fetchers.close()
        await self.peers.close()
        if self.telemetry is not None:
            await self.telemetry.close()
        if self.in_sync_sets is not None:
            await self.in_sync_sets.stop()
        for replica in list(self.replicas.values()):
            # What coordinators wrote last waits for followers, which cannot ask any more.
            if not clean or (replica.progress.needs_others and not replica.is_follower):
                replica.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._share is not None:
            await self._share.close()
        await self.transactions.close()
        await self.groups.close()
        await self.producer_ids.close()
        await self.topics.close()
        await self.reconciler.settled()
        await self.partitions.close(clean=clean)
        try:
            await self.cluster.close()
        except (StoreError, OSError) as error:
            advice = "nothing is lost: the next start finds what was committed in its write-ahead log"
            logger.error("cluster_store_not_closed", error=str(error), advice=advice)
        self.events.close()
