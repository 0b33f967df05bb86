"""The commits of one store as a stream, for its watchers in this process.

Owns the newest commits and their watchers. Invariants: a watcher gets every commit after the revision
from which it watches, each once and in order; one that falls behind by more than is kept gets StoreError
instead of a stream with a gap.

Event loop only.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from tidelog.broker.cluster.store import Commit, StoreError

KEPT_COMMITS = 100


class CommitFeed:
    """What was committed since the store was opened, as far as it is kept."""

    def __init__(self) -> None:
        self._newest = -1
        self._kept: deque[Commit] = deque(maxlen=KEPT_COMMITS)
        self._news = asyncio.Event()
        self._is_closed = False

    def begin(self, revision: int) -> None:
        """The store is at `revision`. After a commit no other information is needed."""
        self._newest = max(self._newest, revision)

    def publish(self, commit: Commit) -> None:
        self._newest = commit.revision
        self._kept.append(commit)
        self._wake()

    def close(self) -> None:
        """Let every stream end after the newest commit."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def watch(self, revision: int) -> AsyncIterator[Commit]:
        while not self._is_closed or revision < self._newest:
            while revision < self._newest:
                commit = self._following(revision)
                revision = commit.revision
                yield commit
            if not self._is_closed:
                await self._news.wait()

    def _following(self, revision: int) -> Commit:
        for commit in reversed(self._kept):
            if commit.revision - len(commit.deltas) == revision:
                return commit
        raise StoreError(
            f"the commit after revision {revision} is no longer kept, the store is at"
            f" {self._newest}; load the catalog again"
        )
