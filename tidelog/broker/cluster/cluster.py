"""The one place that changes the catalog: makes deltas durable in the store, and follows what it committed.

Owns the image, which changes only by the store's watch, the order of changes, and a change that may or may
not be stored.

Invariants:
- the image shows what the store committed, in that order, from all writers; its followers get each delta in
  the same step of the loop;
- plans are made and committed under one lock, so two requests never plan against the same revision; a change
  returns once the image shows it;
- changes that wait for another one are committed together: a plan sees what those before it in the group
  planned. A group that cannot be stored is stored one by one: on a full disk a deletion fits where a creation
  does not;
- a commit that failed may be stored all the same. The store is read again: the watch gives a change that it
  holds, else the change is dropped. While the store cannot be read, nothing else is changed;
- a cancelled caller does not make store and image differ, because a change runs in a task of its own.

On the event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import structlog

from tidelog.broker.cluster.catalog import Catalog, Change, Delta
from tidelog.broker.cluster.store import ClusterStore, Commit, StoreConflict, StoreError
from tidelog.broker.cluster.together import Together
from tidelog.protocol.errors import ApiError, ErrorCode, again

logger = structlog.get_logger(__name__)
_D = TypeVar("_D", bound=Delta)


class _Wanted(NamedTuple):
    """One call of `change`."""

    plan: Callable[[Catalog], Delta]
    drop: Callable[[], None]
    """To be called where the change turns out not to be stored."""


class _InDoubt(NamedTuple):
    """Changes whose commit failed: after it the store would be at `revision`."""

    deltas: Sequence[Delta]
    revision: int
    drops: Sequence[Callable[[], None]]


def _nothing() -> None:
    """For a change whose caller needs no call when it is dropped."""


def _drop(group: Sequence[_Wanted]) -> None:
    for wanted in group:
        wanted.drop()


class Cluster:
    """A catalog and the store behind it."""

    def __init__(self, catalog: Catalog, store: ClusterStore) -> None:
        """`catalog` is what `store` holds now."""
        self.catalog = catalog
        self._store = store
        self._lock = asyncio.Lock()
        self._together = Together(self._change_all, self._lock)
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
        work = self._together.run(_Wanted(plan, dropped or _nothing))
        return cast(_D, await asyncio.shield(self._begin_task(work)))

    def _begin_task(self, change: Coroutine[Any, Any, _D]) -> asyncio.Task[_D]:
        # Not in `change`: an error would refer to its frame, the frame to the task, the task to the error.
        task = asyncio.get_running_loop().create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

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

    async def _change_all(self, group: Sequence[_Wanted]) -> list[Delta | Exception]:
        """The deltas that were planned and stored, or the error of each."""
        try:
            await self._settle()
        except (StoreError, OSError) as error:
            _drop(group)
            return [again(error)] * len(group)
        results = self._planned(group)
        made = [index for index, result in enumerate(results) if not isinstance(result, Exception)]
        failure = await self._store_all(cast("list[Delta]", [results[index] for index in made]))
        if failure is None:
            return results
        if self._doubt is not None:
            self._doubt = self._doubt._replace(drops=[group[index].drop for index in made])
        elif len(made) > 1:
            for index in made:
                (results[index],) = await self._change_all([group[index]])
            return results
        else:
            _drop([group[index] for index in made])
        for index in made:
            results[index] = failure
        return results

    def _planned(self, group: Sequence[_Wanted]) -> list[Delta | Exception]:
        planned: list[Delta | Exception] = []
        draft = self.catalog if len(group) == 1 else self.catalog.copy()
        for wanted in group:
            try:
                delta = wanted.plan(draft)
                if len(group) > 1:
                    draft.apply(delta)
            except Exception as error:
                wanted.drop()
                # A refusal is kept without its frames: one of them refers to the list.
                planned.append(again(error) if isinstance(error, ApiError) else error)
            else:
                planned.append(delta)
        return planned

    async def _store_all(self, deltas: Sequence[Delta]) -> Exception | None:
        """None once they are stored and the image shows them. After an error with a change in doubt nobody
        knows whether they are; after any other they are not.
        """
        if not deltas:
            return None
        revision = self.catalog.revision + len(deltas)
        try:
            await self._store.commit(deltas, self.catalog.revision)
        except StoreConflict as error:
            return again(error)
        except (StoreError, OSError) as error:
            self._doubt = _InDoubt(deltas, revision, ())
            try:
                return None if await self._settle() else again(error)
            except (StoreError, OSError) as still_unknown:
                return again(still_unknown)
        await self._reached(revision)
        return None

    async def settle(self) -> None:
        """Find out what became of a change in doubt, if there is one. Raises StoreError, OSError."""
        if self._doubt is not None or self._failure is not None:
            async with self._lock:
                await self._settle()

    async def _settle(self) -> bool:
        """Whether changes in doubt, if there were some, turned out to be stored."""
        if self._failure is not None:
            raise again(self._failure)
        doubt = self._doubt
        if doubt is None:
            return False
        stored = (await self._store.load()).revision
        before = doubt.revision - len(doubt.deltas)
        if stored == before:
            self._doubt = None
            for drop in doubt.drops:
                drop()
            return False
        if stored != doubt.revision:
            raise StoreError(
                f"the store is at revision {stored}, this broker left it at"
                f" {before}: something else writes to it; stop that and restart the broker"
            )
        self._doubt = None
        for delta in doubt.deltas:
            logger.warning("cluster_change_was_stored", change=type(delta).__name__, revision=stored)
        await self._reached(stored)
        return True

    async def _reached(self, revision: int) -> None:
        """Return once the image is at `revision`. Raises StoreError where it never will be."""
        while self.catalog.revision < revision:
            if self._failure is not None:
                raise again(self._failure)
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
