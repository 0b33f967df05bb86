"""The one place that changes the catalog: makes deltas durable in the store, then applies them.

Owns the order of changes, and a change of which it is not known whether the store holds it.

Invariants:
- a plan is made and committed under one lock, so two requests never plan against the same revision;
- a commit that failed may be stored all the same. The store is read again: what it holds is applied, as if
  the commit had succeeded, else it is dropped. While the store cannot be read, nothing else is changed;
- a caller that is cancelled half way does not tear store and image apart, because commit and apply run in a
  task of their own.

On the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import structlog

from tidelog.broker.cluster.catalog import Catalog, Delta
from tidelog.broker.cluster.store import ClusterStore, StoreConflict, StoreError

logger = structlog.get_logger(__name__)
_D = TypeVar("_D", bound=Delta)


class _InDoubt(NamedTuple):
    """A change whose commit failed, and what to call when it is known what became of it."""

    delta: Delta
    apply: Callable[[], None]
    drop: Callable[[], None]


class Cluster:
    """A catalog and the store behind it."""

    def __init__(self, catalog: Catalog, store: ClusterStore) -> None:
        self.catalog = catalog
        self._store = store
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[object]] = set()
        self._doubt: _InDoubt | None = None

    async def change(
        self,
        plan: Callable[[Catalog], _D],
        applied: Callable[[_D], None] | None = None,
        dropped: Callable[[], None] | None = None,
    ) -> _D:
        """Plan one delta on the newest image, commit it, apply it, and call `applied` with it.

        Returns the delta. Raises what `plan` raises (ApiError), or StoreError and StoreConflict. Then nothing
        was changed and `dropped` was called; or the store cannot say, and one of the two is called as soon as
        it can. `applied` runs in the same step of the loop as the image's change.
        """

        async def run() -> _D:
            async with self._lock:
                await self._settle()
                delta = plan(self.catalog)

                def apply() -> None:
                    self.catalog.apply(delta)
                    if applied is not None:
                        applied(delta)

                try:
                    await self._store.commit([delta], self.catalog.revision)
                except StoreConflict:
                    if dropped is not None:
                        dropped()
                    raise
                except (StoreError, OSError):
                    self._doubt = _InDoubt(delta, apply, dropped or _nothing)
                    if not await self._settle():
                        raise
                else:
                    apply()
                return delta

        task = asyncio.get_running_loop().create_task(run())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Find out what became of a change in doubt, if there is one. Raises StoreError, OSError."""
        async with self._lock:
            await self._settle()

    async def _settle(self) -> bool:
        """Whether the change in doubt, if there was one, turned out to be stored."""
        doubt = self._doubt
        if doubt is None:
            return False
        stored = await self._store.load()
        if stored.revision == self.catalog.revision:
            self._doubt = None
            doubt.drop()
            return False
        if stored.revision != self.catalog.revision + 1:
            raise StoreError(
                f"the store is at revision {stored.revision}, this broker left it at"
                f" {self.catalog.revision}: something else writes to it; stop that and restart the broker"
            )
        self._doubt = None
        logger.warning(
            "cluster_change_was_stored", change=type(doubt.delta).__name__, revision=stored.revision
        )
        doubt.apply()
        return True

    async def close(self) -> None:
        """Let changes that are under way finish, then close the store."""
        if self._changes:
            await asyncio.wait(self._changes)
        await self._store.close()


def _nothing() -> None:
    """Nobody waits for a change to be dropped."""
