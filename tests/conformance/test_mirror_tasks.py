"""A mirror's tasks against our broker: whoever is killed, late or doubled, each row is stored once, in order.

The tasks run as Spark would run them, in threads, without Spark: rows in, records in the log.
"""

import asyncio
import random
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.conformance.client_site import TOPIC, Site
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import ClusterConfig
from tidelog.pipeline.mirror import task as mirror_task
from tidelog.pipeline.mirror.session_folder import BatchFacts, MirrorError, MirrorSession, next_facts
from tidelog.pipeline.mirror.tail import Tail, find_tail
from tidelog.pipeline.mirror.task import MirroredRows, TaskPlace, mirror_rows
from tidelog.pipeline.offsets import OptionError, Place
from tidelog.pipeline.options.sink import SinkOptions
from tidelog.pipeline.sink import rows as sink_rows

SOURCE = "orders"
PIECE = 10
THREADS = ThreadPoolExecutor(64)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every few rows go out on their own, so that a task can be stopped between them.
    monkeypatch.setattr(sink_rows, "_CHUNK_ROWS", PIECE)


class Hold:
    """Stops a task for a while: `reached` once it is there, on until `opened`."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def stop(self) -> None:
        self.reached.set()
        self.opened.wait(30)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> deque[Hold]:
    """The next tasks stop at these once they know what is stored, and have sent nothing yet."""
    holds: deque[Hold] = deque()

    async def find_and_stop(*arguments: Any) -> Tail:
        tail = await find_tail(*arguments)
        if holds:
            await asyncio.to_thread(holds.popleft().stop)
        return tail

    monkeypatch.setattr(mirror_task, "find_tail", find_and_stop)
    return holds


@pytest.fixture
def session(tmp_path: Path) -> MirrorSession:
    return MirrorSession.open(str(tmp_path / "session"), "plan")


def rows(partition: int, first: int, end: int, step: int = 1) -> Iterator[Any]:
    """The rows of a source partition; value n is offset n, and goes to its own partition."""
    for start in range(first, end, PIECE * step):
        offsets = np.arange(start, min(start + PIECE * step, end), step)
        yield pa.record_batch(
            {
                "value": pa.array([b"%d:%d" % (partition, n) for n in offsets], pa.binary()),
                "source_topic": pa.array([SOURCE] * len(offsets), pa.string()),
                "source_partition": pa.array([partition] * len(offsets), pa.int32()),
                "source_offset": pa.array(offsets, pa.int64()),
            }
        )


class Run:
    """One run of the query. `execute` is one task's attempt, `commit` the driver's part."""

    def __init__(self, site: Site, session: MirrorSession, name: str, **options: Any) -> None:
        self._options = SinkOptions(ClusterConfig(site.address), TOPIC, session_path=session.path, **options)
        self._session = session
        self.name = name

    async def execute(
        self, batch: int, batches: Iterator[Any], write_id: str | None = None, task: int = 0
    ) -> MirroredRows:
        place = TaskPlace(write_id or uuid.uuid4().hex, "query", self.name, batch, task)
        work = partial(mirror_rows, self._options, self._session, place, batches)
        return await asyncio.get_running_loop().run_in_executor(THREADS, work)

    def commit(self, batch: int, *written: MirroredRows) -> BatchFacts:
        sources = {place: facts for each in written for place, facts in each.sources.items()}
        facts = next_facts(self._session.facts(batch), self.name, sources)
        self._session.close_batch(batch, facts)
        return facts


class Gate(Hold):
    """Rows that stop before the given piece until the gate opens."""

    def __init__(self, batches: Iterator[Any], piece: int) -> None:
        super().__init__()
        self._batches, self._piece = batches, piece

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self._batches):
            if number == self._piece:
                self.stop()
            yield batch


async def reach(hold: Hold) -> None:
    assert await asyncio.get_running_loop().run_in_executor(THREADS, hold.reached.wait, 30)


async def stored(site: Site, partition: int = 0) -> list[int]:
    values = [value.decode().split(":") for value in await site.stored()]
    return [int(n) for p, n in values if int(p) == partition]


async def test_a_producer_that_the_broker_forgot_goes_on_under_the_next_epoch(
    site: Site, session: MirrorSession
) -> None:
    await site.create()
    run = Run(site, session, "run")
    run.commit(0, await run.execute(0, rows(0, 0, 30)))
    producer_id = session.producer(Place(SOURCE, 0))
    assert producer_id is not None
    assert site.broker.services.replica(TOPIC, 0).log.producers.forget(producer_id)
    done = await run.execute(1, rows(0, 30, 60))
    assert done.sources[Place(SOURCE, 0)].producer_epoch == 1
    run.commit(1, done)
    assert (await run.execute(2, rows(0, 30, 90)))[1:] == (60, 30, 30)
    assert await stored(site) == list(range(90))


async def test_a_session_that_was_lost_is_rebuilt_from_the_headers(
    site: Site, session: MirrorSession, tmp_path: Path
) -> None:
    await site.create()
    run = Run(site, session, "run")
    run.commit(0, await run.execute(0, rows(0, 0, 30)))
    async with site.producer() as producer:
        for _ in range(50):
            await producer.send_and_wait(TOPIC, b"9:0", partition=0)
    other = Run(site, MirrorSession.open(str(tmp_path / "other"), "plan"), "run")
    assert (await other.execute(0, rows(0, 0, 60)))[1:] == (60, 30, 30)
    assert await stored(site) == list(range(60))


async def test_a_session_finds_its_place_behind_other_producers_records(
    site: Site, session: MirrorSession
) -> None:
    await site.create()
    run = Run(site, session, "run")
    run.commit(0, await run.execute(0, rows(0, 0, 30)))
    assert (await run.execute(1, rows(0, 30, 40)))[2] == 10
    async with site.producer() as producer:
        for _ in range(50):
            await producer.send_and_wait(TOPIC, b"9:0", partition=0)
    assert (await run.execute(1, rows(0, 30, 60)))[1:] == (30, 20, 10)
    assert await stored(site) == list(range(60))


async def test_gaps_and_missing_partitions_are_refused_before_a_row_is_sent(
    site: Site, session: MirrorSession
) -> None:
    await site.create()
    run = Run(site, session, "run")
    with pytest.raises(MirrorError, match=r"mirror\.gaps=allow"):
        await run.execute(0, rows(0, 0, 20, step=2))
    with pytest.raises(OptionError, match="which has 1"):
        await run.execute(0, rows(1, 0, 20))
    assert await stored(site) == []
    run.commit(0, await run.execute(0, rows(0, 0, 20)))
    with pytest.raises(MirrorError, match="offset 25 of orders-0 follows 19"):
        await run.execute(1, rows(0, 25, 30))
    filtered = Run(site, session, "run", allows_gaps=True)
    await filtered.execute(1, rows(0, 25, 31, step=5))
    assert await stored(site) == [*range(20), 25, 30]


async def test_the_second_task_with_a_source_partition_is_refused(site: Site, session: MirrorSession) -> None:
    await site.create()
    run = Run(site, session, "run")
    late = asyncio.create_task(run.execute(0, rows(0, 40, 60), "write", task=1))
    with pytest.raises(MirrorError, match="two tasks"):
        await asyncio.gather(run.execute(0, rows(0, 0, 40), "write", task=0), late)
    await asyncio.wait([late])
    in_order = await stored(site)
    assert in_order == list(range(len(in_order))), "the second did not begin before the first came"
    await run.execute(0, rows(0, 0, 60))
    assert await stored(site) == list(range(60))


async def test_who_waits_for_a_task_that_is_refused_is_refused_at_once(
    site: Site, session: MirrorSession
) -> None:
    await site.create()
    run = Run(site, session, "run")
    late = asyncio.create_task(run.execute(0, rows(0, 40, 60), "write", task=1))
    announced = session.folder / "claims" / "write" / "tasks" / "1.json"
    await until(announced.exists)
    for task in (run.execute(0, rows(0, 0, 40), "write", task=0), late):
        with pytest.raises(MirrorError, match="two tasks"):
            await asyncio.wait_for(task, DEADLINE_SECONDS)
    assert await stored(site) == []


async def reached_or_ended(hold: Hold, task: asyncio.Task[Any]) -> None:
    waiting = asyncio.ensure_future(reach(hold))
    await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
    hold.reached.set()
    await waiting


@pytest.mark.parametrize("seed", range(2))
async def test_random_histories_end_with_each_row_once(
    site: Site, session: MirrorSession, lookups: deque[Hold], seed: int
) -> None:
    rng = random.Random(seed)
    await site.create(2)
    ends = {0: 0, 1: 0}
    zombies: list[tuple[Hold, asyncio.Task[MirroredRows]]] = []
    run = Run(site, session, "run 0")
    for batch in range(6):
        begins = dict(ends)
        for partition in ends:
            ends[partition] += rng.randrange(0, 60)

        def task(partition: int, begins: dict[int, int] = begins) -> Iterator[Any]:
            return rows(partition, begins[partition], ends[partition])

        for attempt in range(rng.randrange(3)):
            hold: Hold
            if rng.random() < 0.5:
                hold, source = Hold(), task(rng.randrange(2))
                lookups.append(hold)
            else:
                hold = gate = Gate(task(rng.randrange(2)), rng.randrange(5))
                source = iter(gate)
            zombie = asyncio.create_task(run.execute(batch, source))
            await reached_or_ended(hold, zombie)
            lookups.clear()
            zombies.append((hold, zombie))
            if rng.random() < 0.5:
                run = Run(site, session, f"run {batch}.{attempt}")
            if rng.random() < 0.5:
                rng.choice(zombies)[0].opened.set()
        if rng.random() < 0.3:
            site.proxy.cut_connections()
        written = [await run.execute(batch, task(partition)) for partition in rng.sample([0, 1], 2)]
        run.commit(batch, *written)
    for hold, _ in zombies:
        hold.opened.set()
    await asyncio.gather(*(zombie for _, zombie in zombies), return_exceptions=True)
    assert [await stored(site, partition) for partition in ends] == [
        list(range(end)) for end in ends.values()
    ]
