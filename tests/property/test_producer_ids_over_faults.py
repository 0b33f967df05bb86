"""Producer ids over a store that fails at each step of a reservation, and over restarts: none comes twice."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.cluster.catalog import Catalog, Delta, ProducerIdsReserved
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import Commit, StoreConflict, StoreError
from tidelog.broker.coordinator.producer_id_manager import ProducerIds
from tidelog.broker.coordinator.producer_ids import RETRY_BACKOFF_MS
from tidelog.protocol.errors import ApiError, ErrorCode

FATES = [
    "ok",
    "ok",
    "ok",
    "fails before",
    "fails after",
    "io error",
    "conflict",
    "killed before",
    "killed after",
]


class FatefulStore:
    """The real store; each commit meets the next fate."""

    def __init__(self, store: SqliteStore, fates: list[str]) -> None:
        self.store = store
        self.fates = fates
        self.is_newest = True
        self.killed = asyncio.Event()
        """The process ends here: nothing that follows in it happens."""

    async def load(self) -> Catalog:
        return await self.store.load()

    async def settle(self, nonce: UUID, expected_revision: int) -> bool:
        return await self.store.settle(nonce, expected_revision)

    def watch(self, revision: int) -> AsyncIterator[Commit]:
        return self.store.watch(revision)

    async def commit(
        self,
        deltas: Sequence[Delta],
        expected_revision: int,
        *,
        nonce: UUID | None = None,
        without_session: int | None = None,
    ) -> None:
        match self.fates.pop(0) if self.fates else "ok":
            case "fails before":
                raise StoreError("the disk is full")
            case "io error":
                raise OSError(5, "Input/output error")
            case "conflict":
                taken = (await self.store.load()).next_producer_id + 1000
                await self.store.commit([ProducerIdsReserved(taken)], expected_revision)
                raise StoreConflict("another writer was first")
            case "killed before":
                await self._kill()
            case "fails after":
                await self.store.commit(deltas, expected_revision, nonce=nonce)
                raise StoreError("it is stored, but nobody hears of it")
            case "killed after":
                await self.store.commit(deltas, expected_revision, nonce=nonce)
                await self._kill()
            case _:
                await self.store.commit(deltas, expected_revision, nonce=nonce)

    async def _kill(self) -> None:
        self.killed.set()
        await asyncio.Event().wait()

    async def close(self) -> None:
        await self.store.close()


async def a_life(folder: Path, fates: list[str], asked: int, clock: list[int]) -> list[int]:
    """Ask for ids until enough were asked for or the process is killed."""
    store = FatefulStore(SqliteStore(folder / "cluster.db", node_id=1), fates)
    ids = ProducerIds(Cluster(await store.load(), store), lambda: clock[0])
    given_out: list[int] = []
    asking = asyncio.create_task(ask(ids, store, asked, clock, given_out))
    killed = asyncio.create_task(store.killed.wait())
    await asyncio.wait([asking, killed], return_when=asyncio.FIRST_COMPLETED)
    if not killed.done():
        killed.cancel()
        await asking
        await ids.close()
    asking.cancel()
    await store.close()
    return given_out


async def ask(
    ids: ProducerIds, store: FatefulStore, asked: int, clock: list[int], given_out: list[int]
) -> None:
    for _ in range(asked):
        clock[0] += RETRY_BACKOFF_MS
        try:
            producer_id = await ids.next()
        except ApiError as error:
            if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            continue
        given_out.append(producer_id)
        # What a crash would find now: every id that anybody has is behind the durable bound.
        assert producer_id < (await store.load()).next_producer_id
        assert ids.bound() > producer_id
        if asked > 20:
            given_out += hand_out(ids, 880)


def hand_out(ids: ProducerIds, count: int) -> list[int]:
    """Use up most of a block without a pause."""
    return [found for _ in range(count) if (found := ids.try_next()) is not None]


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(FATES), max_size=6), st.integers(1, 24)), min_size=2, max_size=5
    )
)
def test_no_fate_of_the_store_makes_an_id_come_twice(lives: list[tuple[list[str], int]]) -> None:
    clock = [0]
    with TemporaryDirectory() as name:
        seen: list[int] = []
        for fates, asked in lives:
            seen += asyncio.run(a_life(Path(name), list(fates), asked, clock))
    assert seen == sorted(set(seen))
