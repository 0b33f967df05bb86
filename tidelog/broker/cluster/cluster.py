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
- where another writer came first, the image follows it and the plans are made again, as often as needed;
- a failed commit may be stored. The store settles it: the watch gives a change that it holds, else the change
  is dropped, and cannot be stored later. Until it is settled, nothing else is changed;
- after a watch that failed the store is loaded again, and followers get the difference of the two images;
- a cancelled caller does not make store and image differ, because a change runs in a task of its own.

On the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar, cast
from uuid import UUID, uuid4

import structlog

from tidelog.broker.cluster.batcher import Batcher
from tidelog.broker.cluster.catalog import Catalog, Change, Delta, NothingToChange
from tidelog.broker.cluster.store import (
    STORE_FAILED_ADVICE,
    ClusterStore,
    Commit,
    SessionLives,
    SharedStore,
    StoreConflict,
    StoreError,
)
from tidelog.broker.tasks import Tasks
from tidelog.protocol.errors import ApiError, ErrorCode, again

logger = structlog.get_logger(__name__)
_D = TypeVar("_D", bound=Delta)
_FIRST_DELAY_S: Final = 0.05
_LAST_DELAY_S: Final = 2.0
"""How long to wait before the store is loaded again, after a watch that failed at once and after many."""


class _Wanted(NamedTuple):
    """A change that waits to be committed: one call of `change`."""

    plan: Callable[[Catalog], Delta]
    drop: Callable[[], None]
    """To be called where the change turns out not to be stored."""
    without_session: int | None = None
    """The broker that must not have a session."""


class _InDoubt(NamedTuple):
    """Changes on top of `expected_revision` that are being committed, or whose commit failed."""

    deltas: Sequence[Delta]
    expected_revision: int
    nonce: UUID
    drops: Sequence[Callable[[], None]]

    @property
    def revision(self) -> int:
        return self.expected_revision + len(self.deltas)


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
        self._batcher = Batcher(self._change_all, self._lock)
        self._changes = Tasks()
        self._doubt: _InDoubt | None = None
        self._followers: list[Callable[[Change], None]] = []
        self._moved = asyncio.Event()
        self._is_behind = False
        """Whether the image lacks commits that no watch gives any more."""
        self._failure: StoreError | None = None
        """Why the store cannot be followed now."""
        self._watch = asyncio.get_running_loop().create_task(self._follow_store())

    def follow(self, follower: Callable[[Change], None]) -> None:
        """Call with each delta that the image takes over from now on."""
        self._followers.append(follower)

    async def _follow_store(self) -> None:
        delay_s = _FIRST_DELAY_S
        while True:
            revision = self.catalog.revision
            try:
                if self._is_behind:
                    await self._reload()
                async for commit in self._store.watch(self.catalog.revision):
                    self._take_over(commit)
                return
            except Exception as error:
                if not self._is_behind:
                    logger.warning(
                        "cluster_store_not_followed",
                        revision=self.catalog.revision,
                        error=repr(error),
                        advice="nothing to do while the store can be reached: the catalog is loaded again",
                        exc_info=None if isinstance(error, StoreError | OSError) else error,
                    )
                else:
                    self._failure = StoreError(f"the cluster store cannot be followed: {error}")
                    self._moved.set()
                self._is_behind = True
            delay_s = _FIRST_DELAY_S if self.catalog.revision > revision else min(2 * delay_s, _LAST_DELAY_S)
            await asyncio.sleep(delay_s)

    async def _reload(self) -> None:
        """Bring the image to what the store holds, without the commits that led there."""
        from tidelog.broker.cluster.image_difference import difference

        loaded = await self._store.load()
        if loaded.cluster_id != self.catalog.cluster_id or loaded.revision < self.catalog.revision:
            raise StoreError(
                f"expected cluster {self.catalog.cluster_id} at revision {self.catalog.revision} or later in"
                f" the store, got cluster {loaded.cluster_id} at {loaded.revision}: an older store was put in"
                " its place; put the newest one back"
            )
        for delta in list(difference(self.catalog, loaded)):
            self._apply(delta)
        self.catalog.revision = loaded.revision
        self.catalog.deleted = loaded.deleted
        self._is_behind, self._failure = False, None
        logger.info("cluster_store_followed_again", revision=loaded.revision)
        self._moved.set()

    def _take_over(self, commit: Commit) -> None:
        for delta in commit.deltas:
            self._apply(delta)
        self._moved.set()

    def _apply(self, delta: Delta) -> None:
        change = self.catalog.apply(delta)
        for follower in self._followers:
            try:
                follower(change)
            except Exception as error:
                advice = "restart the broker, which loads the whole catalog, and report this"
                logger.error("cluster_follower_failed", error=repr(error), advice=advice, exc_info=error)

    async def change(
        self,
        plan: Callable[[Catalog], _D],
        dropped: Callable[[], None] | None = None,
        *,
        without_session: int | None = None,
    ) -> _D:
        """Plan one delta on the newest image, commit it, and return it once the image shows it.

        `plan` is called again, on a newer image, each time that another broker came first. `without_session`:
        a broker that must not have a session, else SessionLives is raised.

        Raises what `plan` raises (ApiError), SessionLives, StoreError or OSError. Then nothing was changed
        and `dropped` was called; or the result is not known yet, and it is called as soon as the store shows
        that it lacks the delta.
        """
        work = self._batcher.run(_Wanted(plan, dropped or _nothing, without_session))
        # No variable is the task: an error would refer to this frame, the frame to the task, it to the error.
        return cast(_D, await asyncio.shield(self._changes.task(work, is_awaited=True)))

    async def change_as_asked(
        self, plan: Callable[[Catalog], _D], *, without_session: int | None = None
    ) -> _D:
        """`change` for a request, which is answered with KAFKA_STORAGE_ERROR where the store fails.

        Raises ApiError, SessionLives.
        """
        try:
            return await self.change(plan, without_session=without_session)
        except (StoreError, OSError) as error:
            logger.error("cluster_store_failed", error=str(error), advice=STORE_FAILED_ADVICE)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the cluster store failed: {error}") from error

    async def catch_up(self, nothing: Delta) -> None:
        """Return once the image shows what any broker committed before this call. `nothing` is a delta that
        changes nothing. Raises ApiError."""
        if isinstance(self._store, SharedStore):
            await self.change_as_asked(lambda _: nothing)

    async def _change_all(self, group: Sequence[_Wanted]) -> list[Delta | Exception]:
        """The deltas that were planned and stored, or the error of each."""
        outcomes: dict[int, Delta | Exception] = {}
        while left := {index: wanted for index, wanted in enumerate(group) if index not in outcomes}:
            results = await self._attempt(list(left.values()))
            outcomes |= {
                index: result for index, result in zip(left, results, strict=True) if result is not None
            }
        return [outcomes[index] for index in range(len(group))]

    async def _attempt(self, group: Sequence[_Wanted]) -> list[Delta | Exception | None]:
        """As `_change_all`, with None for what is to be planned again, because another writer came first."""
        try:
            await self._settle()
        except (StoreError, OSError) as error:
            _drop(group)
            return [again(error)] * len(group)
        if len(group) > 1 and any(wanted.without_session is not None for wanted in group):
            return await self._one_by_one(group)
        results = self._planned(group)
        made = [index for index, result in enumerate(results) if not isinstance(result, Exception)]
        wanted = [group[index] for index in made]
        deltas = cast("list[Delta]", [results[index] for index in made])
        failure = await self._store_all(deltas, group[0].without_session)
        if failure is None:
            return results
        outcomes: list[Delta | Exception | None]
        if isinstance(failure, StoreConflict) and not isinstance(failure, SessionLives):
            outcomes = [None] * len(made)
        elif self._doubt is None and len(made) > 1:
            outcomes = await self._one_by_one(wanted)
        else:
            if self._doubt is None:
                _drop(wanted)
            else:
                self._doubt = self._doubt._replace(drops=[each.drop for each in wanted])
            outcomes = [failure] * len(made)
        for index, outcome in zip(made, outcomes, strict=True):
            results[index] = outcome
        return results

    async def _one_by_one(self, group: Sequence[_Wanted]) -> list[Delta | Exception | None]:
        return [outcome for wanted in group for outcome in await self._change_all([wanted])]

    def _planned(self, group: Sequence[_Wanted]) -> list[Delta | Exception | None]:
        planned: list[Delta | Exception | None] = []
        draft = self.catalog if len(group) == 1 else self.catalog.copy()
        for wanted in group:
            try:
                delta = wanted.plan(draft)
                if len(group) > 1:
                    draft.apply(delta)
            except Exception as error:
                wanted.drop()
                # A refusal is kept without its frames: one of them refers to the list.
                planned.append(again(error) if isinstance(error, ApiError | NothingToChange) else error)
            else:
                planned.append(delta)
        return planned

    async def _store_all(self, deltas: Sequence[Delta], without_session: int | None) -> Exception | None:
        """None once they are stored and the image shows them. After an error with a change in doubt it is not
        known whether they are; after any other they are not. After a conflict the image is a newer one."""
        if not deltas:
            return None
        doubt = self._doubt = _InDoubt(deltas, self.catalog.revision, uuid4(), ())
        try:
            await self._store.commit(
                deltas, doubt.expected_revision, nonce=doubt.nonce, without_session=without_session
            )
            await self._reached(doubt.revision)
        except StoreConflict as error:
            self._doubt = None
            return again(error) if isinstance(error, SessionLives) else await self._overtaken(doubt, error)
        except (StoreError, OSError) as error:
            try:
                return None if await self._settle() else again(error)
            except (StoreError, OSError) as unknown:
                return again(unknown)
        self._doubt = None
        return None

    async def _overtaken(self, doubt: _InDoubt, conflict: StoreConflict) -> Exception:
        """The conflict, once the image shows what the other writer committed; else why it does not."""
        try:
            await self._reached(doubt.expected_revision + 1)
        except StoreError as error:
            return again(error)
        return again(conflict)

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
        if not await self._store.settle(doubt.nonce, doubt.expected_revision):
            self._doubt = None
            for drop in doubt.drops:
                drop()
            return False
        await self._reached(doubt.revision)
        self._doubt = None
        for delta in doubt.deltas:
            logger.warning("cluster_change_was_stored", change=type(delta).__name__, revision=doubt.revision)
        return True

    async def _reached(self, revision: int) -> None:
        """Return once the image is at `revision`. Raises StoreError if it never will be."""
        while self.catalog.revision < revision:
            if self._failure is not None:
                raise again(self._failure)
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        """Let changes that are in progress finish, then close the store."""
        await self._changes.ended()
        try:
            await self._store.close()
        finally:
            self._watch.cancel()
            await asyncio.wait([self._watch])
