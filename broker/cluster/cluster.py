"""The one place that changes the catalog: makes deltas durable in the store, then applies them.

Owns the order of changes. Invariants: a plan is made and committed under one lock, so two requests never
plan against the same revision; a caller that is cancelled half way does not tear store and image apart,
because commit and apply run in a task of their own.

Called on the event loop by `broker.topics` and the producer id shell in `broker.producer_id_source`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from broker.cluster.catalog import Catalog, Delta
from broker.cluster.store import ClusterStore

_D = TypeVar("_D", bound=Delta)


class Cluster:
    """A catalog and the store behind it."""

    def __init__(self, catalog: Catalog, store: ClusterStore) -> None:
        self.catalog = catalog
        self._store = store
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[object]] = set()

    async def change(self, plan: Callable[[Catalog], _D], applied: Callable[[_D], None] | None = None) -> _D:
        """Plan one delta on the newest image, commit it, apply it, and call `applied` with it.

        Returns the delta. Raises what `plan` raises (ApiError), or StoreError and StoreConflict, with
        nothing changed. `applied` runs in the same step of the loop as the image's change.
        """

        async def run() -> _D:
            async with self._lock:
                delta = plan(self.catalog)
                await self._store.commit([delta], self.catalog.revision)
                self.catalog.apply(delta)
                if applied is not None:
                    applied(delta)
                return delta

        task = asyncio.get_running_loop().create_task(run())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Let changes that are under way finish, then close the store."""
        if self._changes:
            await asyncio.wait(self._changes)
        await self._store.close()
