"""The catalog's store in the simulation: the real one over the model of etcd, and what etcd knows of it.

Owns the rules of the store (`tidelog.broker.cluster.store`) and of the catalog's commits (`controller`), each
checked when it could be broken: a revision has one commit; a commit that was denied is never stored; a watch
gives each commit once; nobody fences a broker that runs and has a session; a leader is a live in-sync
replica, in a higher epoch than the one before; a reassignment ends when all that it adds are in sync.
"""

import base64
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final
from uuid import UUID

from tests.simulation.virtual_etcd import VirtualEtcd, VirtualEtcdClient
from tests.simulation.virtual_loop import Node
from tidelog.broker.cluster.catalog import (
    NO_LEADER,
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    Delta,
    PartitionsChanged,
)
from tidelog.broker.cluster.etcd_layout import Layout, commit_of
from tidelog.broker.cluster.etcd_store import EtcdStore
from tidelog.broker.cluster.facts import delta_fields, encoded
from tidelog.broker.cluster.store import Commit, StoreConflict

CLUSTER_ID: Final = "simulated-cluster-0000"
LAYOUT: Final = Layout("tidelog")
_WRITER: Final = LAYOUT.writer(0)[:-1]


class StoreFacts:
    """What is stored. `find` is told what contradicts a rule."""

    def __init__(self, etcd: VirtualEtcd, find: Callable[[str], None]) -> None:
        self.catalog = Catalog(CLUSTER_ID)
        self.commits: dict[int, Commit] = {}
        """By the revision before it."""
        self.made: set[str] = set()
        """Every delta that was stored."""
        self.images: dict[int, Catalog] = {}
        """By revision."""
        self.lost_disks: dict[int, UUID | None] = {}
        """Brokers that are started with another disk, and under which incarnation each had the right one."""
        self.fenced: set[UUID] = set()
        """The incarnations that other brokers fenced after their session had ended."""
        self.find = find
        self.runs: Callable[[int, UUID], bool] = lambda _node_id, _incarnation: True
        """Whether this start of a broker accepts connections."""
        self._etcd = etcd
        self._stored: set[bytes] = set()
        self._denied: dict[bytes, str] = {}
        self._commit: Commit | None = None
        etcd.on_change.append(self._changed)

    def session_of(self, node_id: int) -> bytes | None:
        """The incarnation, in hexadecimal digits, that has the broker's session."""
        return self._etcd.value_of(LAYOUT.session(node_id))

    def is_stored(self, nonce: UUID) -> bool:
        return nonce.hex.encode() in self._stored

    def deny(self, nonce: UUID, why: str) -> None:
        """A broker was told that this commit is not stored, and never will be."""
        if self.is_stored(nonce):
            self.find(f"a commit is stored, and its broker was told: {why}")
        self._denied[nonce.hex.encode()] = why

    def _changed(self, name: str, value: bytes) -> None:
        if name.startswith(LAYOUT.journal):
            self._commit = commit_of({"value": base64.b64encode(value)})
        elif name.startswith(_WRITER) and self._commit is not None:
            commit, self._commit = self._commit, None
            self._stored.add(value)
            if (why := self._denied.get(value)) is not None:
                self.find(f"a commit was stored after its broker was told: {why}")
            self._take_over(commit, int(name.removeprefix(_WRITER)))

    def _take_over(self, commit: Commit, writer: int) -> None:
        before = commit.revision - len(commit.deltas)
        if before != self.catalog.revision:
            self.find(f"a commit builds on revision {before}, the newest one is {self.catalog.revision}")
            return
        self.commits[before] = commit
        for delta in commit.deltas:
            self._check(delta, writer)
            self.catalog.apply(delta)
            self.made.add(encoded(delta_fields(delta)))
        self.images[commit.revision] = self.catalog.copy()

    def _check(self, delta: Delta, writer: int) -> None:
        if isinstance(delta, BrokerRegistered) and delta.broker.node_id in self.lost_disks:
            self._check_lost_disk(delta.broker)
        if isinstance(delta, BrokerRegistered):
            node_id, incarnation = delta.broker.node_id, delta.broker.incarnation
            if not delta.broker.is_fenced or writer == node_id:
                self.fenced.discard(incarnation)
                return
            if self.session_of(node_id) != incarnation.hex.encode():
                self.fenced.add(incarnation)
            elif self.runs(node_id, incarnation):
                self.find(f"broker {writer} fences broker {node_id}, which has a session")
        elif isinstance(delta, PartitionsChanged):
            topic = self.catalog.topic_by_id(delta.topic_id)
            for index, now in delta.partitions.items() if topic is not None else ():
                before = topic.partitions[index]  # type: ignore[union-attr]
                where = f"{topic.name}-{index}"  # type: ignore[union-attr]
                broker = self.catalog.brokers.get(now.leader_id)
                added = {*before.adding} & {*now.replicas} - {*now.adding}
                if not added <= {*now.isr}:
                    self.find(f"{where} is reassigned before all are in sync: {before} became {now}")
                if now.leader_id == before.leader_id:
                    continue
                if now.leader_epoch <= before.leader_epoch or now.partition_epoch <= before.partition_epoch:
                    self.find(f"{where} gets another leader in the same epoch: {before} became {now}")
                if now.leader_id != NO_LEADER and (
                    now.leader_id not in (*before.isr, *before.elr) or broker is None or broker.is_fenced
                ):
                    self.find(f"{where} gets a leader that is no live in-sync replica: {before} became {now}")

    def _check_lost_disk(self, broker: BrokerRegistration) -> None:
        """A broker that registers with another disk is in no in-sync and in no eligible set."""
        node_id = broker.node_id
        if broker.incarnation == self.lost_disks[node_id]:
            return
        for topic in self.catalog.topics():
            for assigned in topic.partitions:
                if node_id in (*assigned.isr, *assigned.elr):
                    self.find(f"broker {node_id} starts with another disk, or an older one: {assigned}")
        del self.lost_disks[node_id]


def are_equal(one: Catalog, other: Catalog) -> bool:
    """Whether they have the same facts, whatever order these came in.

    A broker that loads the image again keeps its own order of what was removed and added meanwhile.
    """
    return vars(one) == vars(other)


class CheckedStore(EtcdStore):
    """The store of one life of a broker."""

    def __init__(
        self, etcd: VirtualEtcd, node: Node, facts: StoreFacts, session_timeout_ms: int, patience_s: float
    ) -> None:
        super().__init__(
            VirtualEtcdClient(etcd, node, patience_s),
            node_id=int(node.machine.rpartition("-")[2]),
            cluster_id=CLUSTER_ID,
            session_timeout_ms=session_timeout_ms,
            image_after_commits=8,
            kept_commits=4,
        )
        self._facts = facts

    async def commit(
        self,
        deltas: Sequence[Delta],
        expected_revision: int,
        *,
        nonce: UUID | None = None,
        without_session: int | None = None,
    ) -> None:
        assert nonce is not None
        try:
            await super().commit(deltas, expected_revision, nonce=nonce, without_session=without_session)
        except StoreConflict as error:
            self._facts.deny(nonce, type(error).__name__)
            raise
        if not self._facts.is_stored(nonce):
            self._facts.find("a broker was told that a commit is stored, which is not")

    async def settle(self, nonce: UUID, expected_revision: int) -> bool:
        is_stored = await super().settle(nonce, expected_revision)
        if not is_stored:
            self._facts.deny(nonce, "settled")
        elif not self._facts.is_stored(nonce):
            self._facts.find("a commit was settled as stored, and is not")
        return is_stored

    async def watch(self, revision: int) -> AsyncIterator[Commit]:
        async for commit in super().watch(revision):
            if self._facts.commits.get(revision) != commit:
                self._facts.find(f"a watch gives revision {commit.revision} after {revision}")
            revision = commit.revision
            yield commit
