"""Kills the driver, the Python workers and the broker under a Spark query that stores its rows exactly once.

Owns the order of a trial: start, kill at random, let the query store what is left, read what is committed,
compare. What was acknowledged to the feeder must be there once, as the query's join makes it, and nothing
else. At the end no transaction may be open.
"""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from faults.checker import Finding, Kind
from faults.process import BrokerProcess
from faults.process_tree import command_of, descendants, kill_tree
from faults.spark.query import BATCH_ROWS, row_of
from faults.trial import Outcome, Say
from tidelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition

_NUMBERS: Final = "numbers"
_ROWS: Final = "rows"
_PARTITIONS: Final = 2
_FED_AT_ONCE: Final = 20
_BATCHES_AHEAD: Final = 3
_MEAN_LIFE_S: Final = 4.0
_START_SECONDS: Final = 300.0
_END_SECONDS: Final = 900.0
_READ_SECONDS: Final = 120.0
_LOOK_S: Final = 0.1
_SHARES: Final = {"driver": 3, "Python worker": 5, "broker": 4}
_BROKER_SETTINGS: Final[dict[str, object]] = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.two.phase.commit.allowed.ids": "tidelog-sink.*",
}


async def run(seed: int, seconds: float, folder: Path, say: Say, kills: tuple[str, ...] = ()) -> Outcome:
    """Kill for `seconds`, or what `kills` names, one after the other."""
    outcome = Outcome()
    loop = asyncio.get_running_loop()
    site = _Site(folder, random.Random(f"spark {seed}"), outcome, say)
    try:
        await site.begin()
        began = loop.time()
        if kills:
            for what in kills:
                await site.kill(what)
        else:
            while loop.time() - began < seconds:
                await site.kill(site.draw())
        await site.finish()
        await site.judge()
        outcome.seconds = loop.time() - began
    finally:
        await site.end()
    return outcome


class _Site:
    """A broker, a feeder of numbers, and a query."""

    def __init__(self, folder: Path, rng: random.Random, outcome: Outcome, say: Say) -> None:
        self._folder = folder
        self._rng = rng
        self._outcome = outcome
        self._say = say
        self._broker = BrokerProcess(folder / "data", settings=_BROKER_SETTINGS)
        self._query: asyncio.subprocess.Process | None = None
        self._feeder: asyncio.Task[None] | None = None
        self._fed: list[int] = []
        self._is_fed = False
        self._log = folder / "query.log"
        self._kill: dict[str, Callable[[], Awaitable[bool]]] = {
            "driver": self._kill_driver,
            "Python worker": self._kill_worker,
            "broker": self._kill_broker,
        }

    @property
    def _servers(self) -> str:
        return f"127.0.0.1:{self._broker.port}"

    async def begin(self) -> None:
        await self._broker.start()
        async with Admin(bootstrap_servers=self._servers) as admin:
            await admin.create_topics([NewTopic(_NUMBERS, _PARTITIONS), NewTopic(_ROWS, _PARTITIONS)])
        self._feeder = asyncio.create_task(self._feed())
        await self._start_query()

    def draw(self) -> str:
        return self._rng.choices(list(_SHARES), list(_SHARES.values()))[0]

    async def kill(self, what: str) -> None:
        """Let it work for a while, then kill one of these."""
        await asyncio.sleep(self._rng.expovariate(1 / _MEAN_LIFE_S))
        if await self._kill[what]():
            self._outcome.tried[f"{what} killed"] += 1
            self._say(f"killed: {what}; batches done: {self._batches()}; numbers fed: {len(self._fed)}")

    async def finish(self) -> None:
        """Stop feeding, and let the query store the rest, undisturbed."""
        self._is_fed = True
        if self._feeder is not None:
            await self._feeder
        await self._kill_query()
        self._say("the last run stores what is left")
        query = await self._start_query("--to-the-end")
        try:
            async with asyncio.timeout(_END_SECONDS):
                if code := await query.wait():
                    self._found(Kind.ALARM, f"the query ended with exit code {code}: see {self._log}")
        except TimeoutError:
            self._found(Kind.HANGING, f"the query did not end in {_END_SECONDS:g} s: see {self._log}")

    async def judge(self) -> None:
        expected = Counter(row_of(number) for number in self._fed)
        try:
            async with asyncio.timeout(_READ_SECONDS):
                stored = Counter(await self._committed())
        except TimeoutError:
            self._found(Kind.HANGING, f"the committed rows could not be read in {_READ_SECONDS:g} s")
            return
        for row in expected - stored:
            self._found(Kind.MISSING, row)
        for row in stored - expected:
            self._found(Kind.DUPLICATED if row in expected else Kind.INVENTED, row)
        async with Admin(bootstrap_servers=self._servers) as admin:
            for each in await admin.transactions.list(states=["Ongoing"]):
                self._found(Kind.HANGING, f"the transaction of {each.transactional_id} is open")
            ids = len(await admin.transactions.list())
        self._outcome.figures.append(
            f"{len(self._fed):,} numbers fed, {stored.total():,} rows committed in {self._batches():,}"
            f" batches, {ids:,} transactional ids; the query began again {self._restarts():,} times by itself"
        )

    async def end(self) -> None:
        if self._feeder is not None:
            self._feeder.cancel()
        await self._kill_query()
        await self._broker.kill_9()

    # What is killed

    async def _kill_driver(self) -> bool:
        await self._kill_query()
        await self._start_query()
        return True

    async def _kill_worker(self) -> bool:
        """One of the Python processes below Java: of a task, of a planner, or the parent of these."""
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while not (workers := self._workers()):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_LOOK_S)
        try:
            os.kill(self._rng.choice(workers), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _workers(self) -> list[int]:
        below = [] if self._query is None else descendants(self._query.pid)
        return [pid for pid in below if "pyspark" in (text := command_of(pid)) and "java" not in text]

    async def _kill_broker(self) -> bool:
        await self._broker.kill_9()
        await asyncio.sleep(self._rng.random())
        await self._broker.start()
        return True

    # The query and its input

    async def _start_query(self, *more: str) -> asyncio.subprocess.Process:
        """Return once the query runs."""
        arguments = (self._servers, _NUMBERS, _ROWS, str(self._folder / "checkpoint"), *more)
        before = self._running()
        with self._log.open("ab") as log:
            query = self._query = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "faults.spark.query", *arguments, stdout=log, stderr=log
            )
        async with asyncio.timeout(_START_SECONDS):
            while self._running() == before and query.returncode is None:  # noqa: ASYNC110 (another process)
                await asyncio.sleep(_LOOK_S)
        return query

    async def _kill_query(self) -> None:
        if self._query is not None and self._query.returncode is None:
            kill_tree(self._query.pid)
            await self._query.wait()

    def _running(self) -> int:
        return self._log.read_text(errors="replace").count("the query runs") if self._log.exists() else 0

    def _restarts(self) -> int:
        return self._log.read_text(errors="replace").count("Traceback")

    def _batches(self) -> int:
        """Those that Spark noted as done; it keeps the last of these notes."""
        commits = (self._folder / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(path.name) + 1 for path in commits if path.name.isdecimal()), default=0)

    async def _feed(self) -> None:
        """Send numbers, a few batches ahead of the query, and note them once they are acknowledged."""
        number = 0
        async with Producer(bootstrap_servers=self._servers, delivery_timeout_ms=600_000) as producer:
            while not self._is_fed:
                numbers = range(number, number + _FED_AT_ONCE)
                sent = [await producer.send(_NUMBERS, str(each).encode()) for each in numbers]
                for each, delivery in zip(numbers, sent, strict=True):
                    await delivery
                    self._fed.append(each)
                number += _FED_AT_ONCE
                while not self._is_fed and number > (self._batches() + _BATCHES_AHEAD) * BATCH_ROWS:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)

    async def _committed(self) -> list[str]:
        """The committed rows up to the ends of the logs; it waits for a transaction that is open."""
        places = [TopicPartition(_ROWS, index) for index in range(_PARTITIONS)]
        async with Consumer(bootstrap_servers=self._servers) as everything:
            ends = await everything.end_offsets(places)
        consumer = Consumer(
            bootstrap_servers=self._servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            value_deserializer=lambda value: (value or b"").decode(),
        )
        consumer.assign(places)
        rows: list[str] = []
        async with consumer:
            while any([await consumer.position(place) < ends[place] for place in places]):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    rows += [str(record.value) for record in records]
        return rows

    def _found(self, kind: Kind, text: str) -> None:
        self._outcome.findings.append(Finding(kind, text))
