"""The disk and the catalog's store of a simulated broker: they outlive it, and lose what was not synced.

Owns which bytes and names are durable, and when the broker dies on the way: a broker can be made to die at
any of its writes, just before or just after it, so between any two records. Real files in a folder of the
memory's file system; `faults.power` removes what a power cut would.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from uuid import UUID

from faults.power import cut_power
from tests.simulation.virtual_loop import Node, NodeDied
from tidelog.broker.cluster.catalog import Catalog, Delta
from tidelog.broker.cluster.commit_feed import CommitFeed
from tidelog.broker.cluster.store import Commit, StoreConflict
from tidelog.broker.storage.disk import Disk
from tidelog.protocol.types import Buffer


class Platter:
    """What is durable of the files of all lives of a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.synced: dict[int, int] = {}
        self.named: set[int] = set()

    def cut_power(self, rng: random.Random) -> int:
        """Remove a part of what is not durable. Returns the number of bytes."""
        return cut_power(self.folder, self.synced, self.named, rng)


class VirtualDisk(Disk):
    """The system calls of one life. Those of a dead node have no effect."""

    def __init__(self, platter: Platter, node: Node) -> None:
        self._platter = platter
        self._node = node
        self._open: set[int] = set()
        self.dies_at_write: int | None = None
        """How many writes are left, the last of which the broker does not survive."""
        self.does_last_write = True

    def close_all(self) -> None:
        """The process is gone."""
        for fd in self._open:
            os.close(fd)
        self._open.clear()

    def _check(self) -> None:
        if self._node.is_dead:
            raise NodeDied

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        self._check()
        fd = super().open(path, flags)
        self._open.add(fd)
        return fd

    def close(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            super().close(fd)

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._check()
        if self.dies_at_write is not None:
            self.dies_at_write -= 1
            if self.dies_at_write <= 0:
                if self.does_last_write:
                    super().writev(fd, buffers, position)
                self._node.kill()
                raise NodeDied
        return super().writev(fd, buffers, position)

    def fdatasync(self, fd: int) -> None:
        self._check()
        found = os.fstat(fd)
        self._platter.synced[found.st_ino] = found.st_size

    def sync_queue(self) -> None:
        return None

    def fsync_directory(self, path: Path) -> None:
        self._check()
        self._platter.named.update(entry.inode() for entry in os.scandir(path))

    def truncate(self, fd: int, size: int) -> None:
        self._check()
        super().truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        self._check()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._check()
        super().unlink(path)

    def free_handles(self) -> int:
        return 1 << 16


class VirtualCommits:
    """What was committed to a store, and who watches it: shared by all brokers and all their lives."""

    def __init__(self) -> None:
        self.made: list[tuple[Delta, ...]] = []
        self.nonces: set[UUID | None] = set()
        self.feed = CommitFeed()


class VirtualStore:
    """A ClusterStore whose commits outlive the broker. A watch ends with the task that reads it."""

    def __init__(self, commits: VirtualCommits, node: Node) -> None:
        self._commits = commits
        self._node = node
        self.is_newest = True

    async def load(self) -> Catalog:
        catalog = Catalog("simulated-cluster-0000")
        for deltas in self._commits.made:
            for delta in deltas:
                catalog.apply(delta)
        self._commits.feed.begin(catalog.revision)
        return catalog

    async def commit(
        self,
        deltas: Sequence[Delta],
        expected_revision: int,
        *,
        nonce: UUID | None = None,
        without_session: int | None = None,
    ) -> None:
        await asyncio.sleep(0)
        if self._node.is_dead:
            raise NodeDied
        revision = sum(map(len, self._commits.made))
        if revision != expected_revision:
            raise StoreConflict
        self._commits.made.append(tuple(deltas))
        self._commits.nonces.add(nonce)
        self._commits.feed.publish(Commit(revision + len(deltas), tuple(deltas)))

    async def settle(self, nonce: UUID, expected_revision: int) -> bool:
        return nonce in self._commits.nonces

    def watch(self, revision: int) -> AsyncIterator[Commit]:
        return self._commits.feed.watch(revision)

    async def close(self) -> None:
        """The commits stay."""
