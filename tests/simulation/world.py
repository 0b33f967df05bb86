"""One seed: processors in transactions and a whole broker on virtual time, which are broken and then healed.

Owns what happens to them: brokers that die between any two writes, with or without their disk's cache,
processors that die, pause and continue as zombies, second processors with the same id, and pauses of the
broker; and what is observed meanwhile and at the end. The processors are those of `faults.transactions` with
our client, and so is the checker.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from faults.checker import Finding, Kind
from faults.transactions.checker import check
from faults.transactions.client import Job
from faults.transactions.client_tidelog import TidelogClient
from faults.transactions.history import (
    PARTITIONS,
    PLACES,
    Attempt,
    AttemptId,
    Ends,
    History,
    Place,
    attempts_of,
)
from faults.transactions.observation import CommittedFollowers, committed_positions, read_committed
from faults.transactions.processor import process
from tests.simulation.virtual_broker import ADDRESS, VirtualBroker
from tests.simulation.virtual_loop import Node, VirtualLoop
from tests.simulation.virtual_network import CALM, Network, NetworkFaults
from tidelog.client import Admin, ClientError, NewTopic, Producer

INPUT: Final = "in"
_SLOTS: Final = 2
_INPUTS: Final = 12
"""Of each slot's partition."""
_MOST_SOURCES: Final = 3
_TIMEOUT_MS: Final = 3_000
_BREAKING_S: Final = 3.0
_MEAN_WAIT_S: Final = 0.3
_SETTLE_S: Final = 240.0
_LOOK_S: Final = 0.05
_SETTINGS: Final[Mapping[str, Any]] = {
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 200,
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "log_cleaner_enable": False,
    "group_initial_rebalance_delay_ms": 0,
    "group_consumer_session_timeout_ms": 6_000,
    "group_consumer_min_session_timeout_ms": 6_000,
    "group_consumer_heartbeat_interval_ms": 500,
    "group_consumer_min_heartbeat_interval_ms": 500,
    # Clients take the time from the machine.
    "log_message_timestamp_after_max_ms": 1 << 50,
}
_ROUGH: Final = NetworkFaults(cut_before=0.01, cut_after=0.015, swallow=0.004, repeat=0.01, delay_s=0.03)
_WITHOUT_GHOSTS: Final = _ROUGH._replace(repeat=0, ghost_s=0)
"""Where transactions share an epoch, a late EndTxn may end the next transaction. So Kafka's protocol was,
until KIP-890 gave each transaction an epoch of its own."""


class Journal:
    """What a processor notes, as in a file that outlives it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


@dataclass
class Run:
    """A finished seed: what was observed, and what was done."""

    seed: int
    history: History = field(default_factory=History)
    findings: list[Finding] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def find(self, kind: Kind, text: str) -> None:
        self.findings.append(Finding(kind, text))


class World:
    """One seed."""

    def __init__(self, seed: int, folder: Path, loop: VirtualLoop, *, has_epochs: bool) -> None:
        self.run = Run(seed)
        self.has_epochs = has_epochs
        self.rng = random.Random(f"world {seed}")
        self.loop = loop
        self.network = Network(loop, random.Random(f"network {seed}"))
        settings = dict(_SETTINGS)
        settings["log_segment_bytes"] = self.rng.choice((1_000, 4_000, 1 << 20))
        settings["log_flush_offset_checkpoint_interval_ms"] = self.rng.choice((100, 1_000, 60_000))
        self.broker = VirtualBroker(self.network, folder, random.Random(f"broker {seed}"), settings)
        self.journals: dict[str, Journal] = {}
        self.processors: list[list[Node]] = [[] for _ in range(_SLOTS)]
        protocol = self.rng.choice((None, None, "classic", "consumer"))
        self.jobs = [self._job(slot, protocol) for slot in range(_SLOTS)]
        self.ends: dict[Place, list[Ends]] = {place: [] for place in PLACES}
        self.is_settling = False

    def _job(self, slot: int, protocol: str | None) -> Job:
        """A slot reads a partition of its own, or its processors are members of a group of all slots."""
        if protocol is None:
            return Job(ADDRESS, INPUT, (slot,), f"group-{slot}", f"id-{slot}", _TIMEOUT_MS)
        return Job(ADDRESS, INPUT, tuple(range(_SLOTS)), "group", f"id-{slot}", _TIMEOUT_MS, protocol)

    async def play(self) -> Run:
        """Make topics and inputs, break things, heal them, read back."""
        observer = Node(self.loop, "observer")
        self.broker.start()
        await self._until_served()
        await self._prepare(observer)
        followers = observer.start(self._followers())
        looking = self.loop.create_task(self._look_at_ends())
        for slot in range(_SLOTS):
            self._start_processor(slot)
        await self._break()
        await observer.start(self._settle())
        along: CommittedFollowers = await followers
        await observer.start(self._observe(along))
        looking.cancel()
        for node in (observer, self.broker.node):
            node.on_death = None
            node.kill()
        self.broker.disk.close_all()
        await asyncio.gather(looking, return_exceptions=True)
        self.loop.bury()
        self.run.done["lives of the broker"] = self.broker.lives
        self.run.done["power cuts"] = self.broker.power_cuts
        self.run.done |= Counter(self.network.counts)
        self._judge(along)
        return self.run

    async def _until_served(self) -> None:
        while self.broker.services is None:  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(0.01)

    async def _prepare(self, node: Node) -> None:
        async def feed() -> None:
            async with Admin(bootstrap_servers=ADDRESS) as admin:
                outputs = [NewTopic(name, count, 1) for name, count in PARTITIONS.items()]
                await admin.create_topics([NewTopic(INPUT, _SLOTS, 1), *outputs])
            async with Producer(bootstrap_servers=ADDRESS) as producer:
                for number in range(_INPUTS * _SLOTS):
                    await producer.send(INPUT, b"%d" % number, partition=number % _SLOTS)

        await node.start(feed())

    async def _followers(self) -> CommittedFollowers:
        return CommittedFollowers(ADDRESS)

    async def _look_at_ends(self) -> None:
        while True:
            services = self.broker.services
            for place in PLACES if services is not None else ():
                replica = services.replicas.get(place)  # type: ignore[union-attr, call-overload]
                if replica is not None and replica.stopped is None:
                    ends = replica.ends
                    self.ends[place].append(Ends(ends.last_stable, ends.high_watermark))
            await asyncio.sleep(_LOOK_S * self.rng.random())

    def _start_processor(self, slot: int) -> Node:
        name = f"p{slot}-{len(self.journals)}"
        node = Node(self.loop, name)
        journal = self.journals[name] = Journal()
        self.processors[slot].append(node)
        rng = random.Random(f"{self.run.seed} {name}")
        self.run.done["processors"] += 1
        client = TidelogClient(self.jobs[slot])
        task = node.start(process(name, client, journal, rng, _MOST_SOURCES))  # type: ignore[arg-type]
        task.add_done_callback(lambda ended: self._ended(slot, node, ended), context=Context())
        node.on_death = lambda: self.network.cut_of(node)
        return node

    def _ended(self, slot: int, node: Node, task: "asyncio.Task[Any]") -> None:
        """A processor gave up: it is replaced as one that was killed."""
        error = task.exception()
        self.run.done[f"ended with {type(error).__name__}"] += 1
        if error is not None and not isinstance(error, ClientError):
            self.run.find(Kind.ALARM, f"{node.name}: {error!r}")
        self._kill(slot, node)

    def _kill(self, slot: int, node: Node) -> None:
        node.kill()
        self.processors[slot].remove(node)
        if not self.processors[slot] and not self.is_settling:
            self.loop.call_later(self.rng.random() * 0.5, self._replace, slot, context=Context())

    def _replace(self, slot: int) -> None:
        if not self.processors[slot] and not self.is_settling:
            self._start_processor(slot)

    async def _break(self) -> None:
        rng = self.rng
        end = self.loop.time() + _BREAKING_S
        self.network.faults = (_ROUGH if self.has_epochs else _WITHOUT_GHOSTS) if rng.random() < 0.8 else CALM
        while self.loop.time() < end:
            await asyncio.sleep(rng.expovariate(1 / _MEAN_WAIT_S))
            slot = rng.randrange(_SLOTS)
            nodes = self.processors[slot]
            drawn = rng.random()
            if drawn < 0.35:
                self.run.done["deaths of the broker at a write"] += 1
                self.broker.die_soon(rng.randint(1, 30))
            elif drawn < 0.42:
                self.run.done["pauses of the broker"] += 1
                self._pause(self.broker.node, rng.random() * 2)
            elif not nodes:
                continue
            elif drawn < 0.62:
                self.run.done["kills of a processor"] += 1
                self._kill(slot, nodes[-1])
            elif drawn < 0.75:
                self.run.done["second processors"] += 1
                self._start_processor(slot)
            else:
                self.run.done["zombies"] += 1
                self._pause(nodes[-1], rng.random() * 6)
                if drawn < 0.9:
                    self._start_processor(slot)
        self.network.faults = CALM
        self.broker.die_soon(None)

    def _pause(self, node: Node, seconds: float) -> None:
        node.pause()
        self.loop.call_later(seconds, node.resume, context=Context())

    async def _settle(self) -> None:
        """Wait until every input is processed, then kill the processors and wait until nothing is open."""
        history = self.run.history
        history.inputs = dict.fromkeys(range(_SLOTS), _INPUTS)
        end = self.loop.time() + _SETTLE_S
        while history.positions != history.inputs:
            if self.loop.time() > end:
                self.run.find(Kind.HANGING, f"only {history.positions} were processed in time")
                break
            await asyncio.sleep(0.1)
            if not self._may_be_done():
                continue
            with suppress(ClientError):
                history.positions = await committed_positions(self.jobs)
        self.is_settling = True
        for slot, nodes in enumerate(self.processors):
            for node in list(nodes):
                self._kill(slot, node)
        end = self.loop.time() + _SETTLE_S
        while not self._is_stable():
            if self.loop.time() > end:
                self.run.find(Kind.HANGING, "a transaction is open long after its timeout")
                break
            await asyncio.sleep(0.1)

    def _may_be_done(self) -> bool:
        """Whether each input is in a transaction whose commit was asked for: before, no look is needed."""
        sources = {
            source
            for attempt in self._attempts().values()
            if attempt.outcome.may_be_visible
            for source in attempt.sources
        }
        return len(sources) >= _INPUTS * _SLOTS

    def _attempts(self) -> dict[AttemptId, Attempt]:
        attempts: dict[AttemptId, Attempt] = {}
        for name, journal in self.journals.items():
            attempts |= attempts_of(name, journal.lines)
        return attempts

    def _is_stable(self) -> bool:
        services = self.broker.services
        if services is None:
            return False
        ends = [services.replicas[place].ends for place in PLACES]  # type: ignore[index]
        return all(each.last_stable == each.end for each in ends)

    async def _observe(self, along: CommittedFollowers) -> None:
        history = self.run.history
        try:
            history.positions = await committed_positions(self.jobs)
            history.visible = await read_committed(ADDRESS, 60)
            async with asyncio.timeout(60):
                await along.stop(dict(history.visible))
        except (ClientError, TimeoutError) as error:
            self.run.find(Kind.UNREADABLE, f"{type(error).__name__} {error}")

    def _judge(self, along: CommittedFollowers) -> None:
        history = self.run.history
        attempts = history.attempts = self._attempts()
        history.followed = {"the reader along": along.logs}
        history.ends = self.ends
        for outcome, count in Counter(attempt.outcome for attempt in attempts.values()).items():
            self.run.done[f"transactions: {outcome}"] = count
        self.run.findings += [Finding(Kind.ALARM, text) for text in self.broker.failures]
        self.run.findings += check(history)
