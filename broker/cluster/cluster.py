"""The one place that changes the catalog: makes deltas durable in the store, and follows what it committed.

Owns the image, which changes only by the store's watch, the order of changes, and a change that may or may
not be stored.

Invariants:
- the image shows what the store committed, in that order, from all writers; its followers get each delta in
  the same step of the loop;
- a plan is made and committed under one lock, so two requests never plan against the same revision; a change
  returns once the image shows it;
- a commit that failed may be stored all the same. The store is read again: the watch gives a change that it
  holds, else the change is dropped. While the store cannot be read, nothing else is changed;
- when the store cannot be followed any more, nothing else is changed;
- a cancelled caller does not make store and image differ, because a change runs in a task of its own.

On the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import structlog

from tidelog.broker.cluster.catalog import Catalog, Change, Delta
from tidelog.broker.cluster.store import ClusterStore, Commit, StoreConflict, StoreError
from tidelog.protocol.errors import ApiError, ErrorCode

logger = structlog.get_logger(__name__)
_D = TypeVar("_D", bound=Delta)


class _InDoubt(NamedTuple):
    """A change whose commit failed: after it the store would be at `revision`."""

    delta: Delta
    revision: int
    drop: Callable[[], None]
    """To be called where it turns out not to be stored."""


def _nothing() -> None:
    """For a change whose caller needs no call when it is dropped."""


class Cluster:
    """A catalog and the store behind it."""

    def __init__(self, catalog: Catalog, store: ClusterStore) -> None:
        """`catalog` is what `store` holds now."""
        self.catalog = catalog
        self._store = store
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[object]] = set()
        self._doubt: _InDoubt | None = None
        self._followers: list[Callable[[Change], None]] = []
        self._moved = asyncio.Event()
        self._failure: StoreError | None = None
        self._watch = asyncio.get_running_loop().create_task(self._follow_store())

    def follow(self, follower: Callable[[Change], None]) -> None:
        """Call with each delta that the image takes over from now on."""
        self._followers.append(follower)

    async def _follow_store(self) -> None:
        try:
            async for commit in self._store.watch(self.catalog.revision):
                self._take_over(commit)
        except Exception as error:
            logger.error(
                "cluster_store_not_followed",
                revision=self.catalog.revision,
                error=repr(error),
                advice="restart the broker: until then nothing of the catalog can be changed",
                exc_info=error,
            )
            self._failure = StoreError(f"the cluster store cannot be followed any more: {error}")
            self._moved.set()

    def _take_over(self, commit: Commit) -> None:
        for delta in commit.deltas:
            change = self.catalog.apply(delta)
            for follower in self._followers:
                follower(change)
        self._moved.set()

    async def change(self, plan: Callable[[Catalog], _D], dropped: Callable[[], None] | None = None) -> _D:
        """Plan one delta on the newest image, commit it, and return it once the image shows it.

        Raises what `plan` raises (ApiError), or StoreError and StoreConflict. Then nothing was changed and
        `dropped` was called; or the result is not known yet, and it is called as soon as the
        store shows that it lacks the delta.
        """
        task = asyncio.get_running_loop().create_task(self._change(plan, dropped or _nothing))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def change_as_asked(self, plan: Callable[[Catalog], _D]) -> _D:
        """`change` for a request, which is answered with KAFKA_STORAGE_ERROR where the store fails.

        Raises ApiError.
        """
        try:
            return await self.change(plan)
        except (StoreError, StoreConflict, OSError) as error:
            advice = "check the disk that holds the data folder; then ask again"
            logger.error("cluster_store_failed", error=str(error), advice=advice)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the cluster store failed: {error}") from error

    async def _change(self, plan: Callable[[Catalog], _D], dropped: Callable[[], None]) -> _D:
        async with self._lock:
            try:
                await self._settle()
                delta = plan(self.catalog)
            except BaseException:
                dropped()
                raise
            expected = self.catalog.revision
            try:
                await self._store.commit([delta], expected)
            except StoreConflict:
                dropped()
                raise
            except (StoreError, OSError):
                self._doubt = _InDoubt(delta, expected + 1, dropped)
                if not await self._settle():
                    raise
            else:
                await self._reached(expected + 1)
            return delta

    async def settle(self) -> None:
        """Find out what became of a change in doubt, if there is one. Raises StoreError, OSError."""
        async with self._lock:
            await self._settle()

    async def _settle(self) -> bool:
        """Whether the change in doubt, if there was one, turned out to be stored."""
        if self._failure is not None:
            raise self._failure
        doubt = self._doubt
        if doubt is None:
            return False
        stored = (await self._store.load()).revision
        if stored == doubt.revision - 1:
            self._doubt = None
            doubt.drop()
            return False
        if stored != doubt.revision:
            raise StoreError(
                f"the store is at revision {stored}, this broker left it at"
                f" {doubt.revision - 1}: something else writes to it; stop that and restart the broker"
            )
        self._doubt = None
        logger.warning("cluster_change_was_stored", change=type(doubt.delta).__name__, revision=stored)
        await self._reached(stored)
        return True

    async def _reached(self, revision: int) -> None:
        """Return once the image is at `revision`. Raises StoreError where it never will be."""
        while self.catalog.revision < revision:
            if self._failure is not None:
                raise self._failure
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        """Let changes that are under way finish, then close the store."""
        if self._changes:
            await asyncio.wait(self._changes)
        try:
            await self._store.close()
        finally:
            self._watch.cancel()
            await asyncio.wait([self._watch])
