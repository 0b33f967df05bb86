"""One seed: clients and brokers over a model of etcd on virtual time, which are broken and then healed.

Owns what happens to them: brokers that die between any two writes, with or without their disk's cache, that
are stopped, paused, or started with another disk; power cuts of all machines at once; ways between machines
that are closed, one way too; members of etcd that hang, restart or forget; processors in transactions that
die, pause and continue as zombies, second processors with the same id; and what is observed meanwhile and at
the end. The processors are those of `faults.transactions` with our client, and so is the checker.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from faults.checker import Finding, Kind
from faults.histories.report import findings_of
from faults.transactions import isolation
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
from tests.simulation.checked_store import StoreFacts
from tests.simulation.cluster_checks import ClusterChecks
from tests.simulation.platter import Platter
from tests.simulation.replica_checks import ReplicaChecks
from tests.simulation.share_checks import ShareChecks
from tests.simulation.tiering_checks import TieringChecks
from tests.simulation.virtual_broker import Handlers, VirtualBroker
from tests.simulation.virtual_bucket import Bucket, BucketFaults
from tests.simulation.virtual_etcd import MEMBERS, StoreFaults, VirtualEtcd
from tests.simulation.virtual_loop import Node, VirtualLoop
from tests.simulation.virtual_network import CALM, Network, NetworkFaults
from tests.simulation.workloads import LOG, Administrator, Committer, Mover, Writers
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.services import Services
from tidelog.client import Admin, ClientError, NewTopic, Producer

INPUT: Final = "in"
_SLOTS: Final = 2
_MOST_SOURCES: Final = 3
_TIMEOUT_MS: Final = 3_000
_MEAN_WAIT_S: Final = 0.3
_LOOK_S: Final = 0.05
_CALM_LOOK_S: Final = 0.3
_SESSION_MS: Final = 2_000
_SETTINGS: Final[Mapping[str, Any]] = {
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 200,
    "log_cleaner_enable": False,
    "group_initial_rebalance_delay_ms": 0,
    "group_consumer_session_timeout_ms": 6_000,
    "group_consumer_min_session_timeout_ms": 6_000,
    "group_consumer_heartbeat_interval_ms": 500,
    "group_consumer_min_heartbeat_interval_ms": 500,
    "cluster_store": "etcd:http://etcd-1:2379",
    "broker_session_timeout_ms": _SESSION_MS,
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
_ROUGH: Final = NetworkFaults(
    cut_before=0.01, cut_after=0.015, swallow=0.004, repeat=0.01, late_marker=0.1, delay_s=0.03
)
_WITHOUT_GHOSTS: Final = _ROUGH._replace(repeat=0, ghost_s=0)
"""Where transactions share an epoch, a late EndTxn may end the next transaction. So Kafka's protocol was,
until KIP-890 gave each transaction an epoch of its own."""
_ROUGH_STORE: Final = StoreFaults(late=0.04, unanswered=0.03, slow=0.2, delay_s=0.05)
_ROUGH_BUCKET: Final = BucketFaults(lost=0.03, unanswered=0.03, late=0.05, repeated=0.03, slow=0.1)
_TIERED: Final[Mapping[str, Any]] = {
    "remote_log_storage_system_enable": True,
    "remote_storage_url": "s3://bucket/prefix",
    "remote_log_manager_task_interval_ms": 200,
    "log_retention_check_interval_ms": 300,
}
_OF_ANOTHER_DISK: Final = "records that were acknowledged"
"""What a refused start says."""


class Shape(NamedTuple):
    """How much there is in a world."""

    brokers: int = 3
    replicas: int = 1
    """Of each partition."""
    inputs: int = 6
    """Of each processor's partition."""
    breaking_s: float = 6.0
    has_other_clients: bool = True
    """Whether there are writers, committers and administrators."""
    is_tiered: bool = False
    """Whether topics of clients keep closed segments in remote storage."""
    moves: bool = False
    """Whether partitions get other replicas in each seed, not only in some."""
    settle_s: float = 240.0
    """How long clients may take once all is healed."""
    stops_at_finding: bool = False


ALONE: Final = Shape(brokers=1, inputs=12, breaking_s=3.0, has_other_clients=False)


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
    found: "asyncio.Future[None] | None" = None
    """Resolved with the first finding."""

    def find(self, kind: Kind, text: str) -> None:
        self.findings.append(Finding(kind, text))
        if self.found is not None and not self.found.done():
            self.found.set_result(None)


class World:
    """One seed."""

    def __init__(self, seed: int, loop: VirtualLoop, shape: Shape, *, has_epochs: bool) -> None:
        self.run = Run(seed)
        self.shape = shape
        self.has_epochs = has_epochs
        self.rng = random.Random(f"world {seed}")
        self.loop = loop
        self.network = Network(loop, random.Random(f"network {seed}"))
        loop.connect = self.network.connect
        self.etcd = VirtualEtcd(self.network, random.Random(f"etcd {seed}"))
        self.facts = StoreFacts(self.etcd, self._find)
        self.checks = ClusterChecks(self.facts, self._find)
        self.replica_checks = ReplicaChecks(self.facts, self._find)
        self.share_checks = ShareChecks(loop, self._find)
        self.bucket = Bucket(loop, random.Random(f"bucket {seed}"))
        self.tiering_checks = TieringChecks(self.bucket, self.facts, self.replica_checks, self._find)
        settings = dict(_SETTINGS)
        settings["log_segment_bytes"] = self.rng.choice((1_000, 4_000, 1 << 20))
        settings["log_flush_offset_checkpoint_interval_ms"] = self.rng.choice((400, 2_000, 60_000))
        # Else a follower that is behind gets all in one answer.
        settings["replica_fetch_max_bytes"] = random.Random(f"fetches {seed}").choice((1, 4 << 20))
        settings["offsets_topic_num_partitions"] = shape.brokers
        settings["transaction_state_log_num_partitions"] = shape.brokers
        settings["min_insync_replicas"] = min(2, shape.replicas)
        settings["offsets_topic_replication_factor"] = shape.replicas
        settings["transaction_state_log_replication_factor"] = shape.replicas
        settings["replica_lag_time_max_ms"] = (
            self.rng.choice((1_000, 3_000)) if shape.replicas > 1 else 30_000
        )
        self.topic_configs: dict[str, str] = {}
        if shape.is_tiered:
            settings |= _TIERED
            settings["log_segment_bytes"] = self.rng.choice((1_000, 4_000))
            self.topic_configs = {
                "remote.storage.enable": "true",
                "local.retention.bytes": self.rng.choice(("0", "2000")),
            }
        self.brokers = [self._broker(node_id, settings) for node_id in range(1, shape.brokers + 1)]
        self.address = ",".join(broker.address for broker in self.brokers)
        self.facts.runs = lambda node_id, incarnation: self.brokers[node_id - 1].runs(incarnation)
        self._copies: dict[int, tuple[int, Platter]] = {}
        """By broker: an older disk, and the last life that it has seen."""
        self._opened_life = dict.fromkeys(range(1, shape.brokers + 1), 0)
        self._foreign: dict[int, Platter] = {}
        """Brokers that are started with another disk, and the right one."""
        self.journals: dict[str, Journal] = {}
        self.processors: list[list[Node]] = [[] for _ in range(_SLOTS)]
        protocol = self.rng.choice((None, None, "classic", "consumer"))
        self.jobs = [self._job(slot, protocol) for slot in range(_SLOTS)]
        self.ends: dict[Place, list[Ends]] = {place: [] for place in PLACES}
        self.is_healed = False
        self.is_settling = False
        self.is_without_member = False
        """Whether a member of etcd hangs for good."""
        self.writers = Writers(self.address, shape.brokers, seed)
        self.committer = Committer(self.address, shape.brokers)
        self.administrator = Administrator(
            self.address, random.Random(f"administrator {seed}"), shape.replicas, self.topic_configs
        )
        self.mover = Mover(self.address, random.Random(f"mover {seed}"), shape.brokers)
        self.observer = Node(loop, "observer")
        self.programs: dict[str, Callable[[Node], Coroutine[Any, Any, None]]] = {
            "writer": self.writers.run,
            "committer": self.committer.run,
            "administrator": self.administrator.run,
            "mover": self.mover.run,
        }
        """By the name of their machine."""
        self.others: dict[str, Node] = {}
        """Where these run now."""

    def _find(self, text: str) -> None:
        self.run.find(Kind.BROKEN_RULE, text)

    def _broker(self, node_id: int, settings: dict[str, Any]) -> VirtualBroker:
        return VirtualBroker(
            self.network,
            self.etcd,
            self.facts,
            node_id,
            Path(f"/broker-{node_id}"),
            random.Random(f"broker {node_id} {self.run.seed}"),
            settings,
            opened=self._opened,
            failed=self._failed,
        )

    def _opened(self, broker: VirtualBroker, services: Services, handlers: Handlers) -> Handlers:
        if self._foreign.pop(broker.node_id, None) is not None:
            if self.shape.replicas == 1 or broker.node_id in self.facts.lost_disks:
                self._find(f"broker {broker.node_id} starts with another disk, or an older one")
            self.run.done["disks that were replaced"] += 1
        self._opened_life[broker.node_id] = broker.lives
        return self.checks.opened(services, handlers)

    def _failed(self, broker: VirtualBroker, error: BaseException) -> None:
        """A life could not begin. Its supervisor begins another, with the right disk after a wrong one."""
        is_refused = _OF_ANOTHER_DISK in str(error)
        self.run.done[f"failed starts: {type(error).__name__}"] += 1
        if is_refused and broker.node_id in self._foreign:
            self.run.done["refused disks"] += 1
            self.facts.lost_disks.pop(broker.node_id, None)
            broker.kill(cuts_power=False, platter=self._foreign.pop(broker.node_id))
        elif is_refused or not isinstance(error, StoreError):
            self._find(f"broker {broker.node_id} did not start: {error!r}")

    def _job(self, slot: int, protocol: str | None) -> Job:
        """A slot reads a partition of its own, or its processors are members of a group of all slots."""
        if protocol is None:
            return Job(self.address, INPUT, (slot,), f"group-{slot}", f"id-{slot}", _TIMEOUT_MS)
        return Job(self.address, INPUT, tuple(range(_SLOTS)), "group", f"id-{slot}", _TIMEOUT_MS, protocol)

    async def play(self) -> Run:
        """Make topics and inputs, break things, heal them, read back."""
        with self.share_checks.installed(), self.tiering_checks.installed():
            return await self._played()

    async def _played(self) -> Run:
        if self.shape.stops_at_finding:
            self.run.found = self.loop.create_future()
        looking = self.loop.create_task(self._look())
        playing = self.loop.create_task(self._play())
        await asyncio.wait(
            [playing] if self.run.found is None else [playing, self.run.found],
            return_when=asyncio.FIRST_COMPLETED,
        )
        self.run.found = None  # It would keep the loop, and all that dead nodes left undone.
        playing.cancel()
        along = (await asyncio.gather(playing, return_exceptions=True))[0]
        if isinstance(along, Exception):
            raise along
        looking.cancel()
        processors = [node for nodes in self.processors for node in nodes]
        brokers = [broker.node for broker in self.brokers]
        for node in (self.observer, *brokers, *self.others.values(), *processors):
            node.on_death = None
            node.kill()
        for broker in self.brokers:
            broker.disk.close_all()
        seen = (await asyncio.gather(looking, return_exceptions=True))[0]
        if isinstance(seen, Exception):
            raise seen
        self.loop.bury()
        self.run.done["lives of brokers"] = sum(broker.lives for broker in self.brokers)
        self.run.done["power cuts"] = sum(broker.power_cuts for broker in self.brokers)
        if self.shape.is_tiered:
            self.run.done["requests to remote storage"] = self.bucket.requests
            self.run.done["requests to remote storage that failed"] = self.bucket.failures
            self.run.done["segments in remote storage"] = self.tiering_checks.copied
        self.run.done["commits of the catalog"] = len(self.facts.commits)
        self.run.done |= Counter(self.network.counts) | Counter(self.etcd.counts)
        if isinstance(along, CommittedFollowers):
            self._judge(along)
        return self.run

    async def _play(self) -> CommittedFollowers | None:
        for broker in self.brokers:
            broker.start()
        await self.until_served()
        await self.observer.start(self._prepare())
        followers = self.observer.start(self._followers())
        for slot in range(_SLOTS):
            self._start_processor(slot)
        if self.shape.has_other_clients:
            for machine in ("writer", "committer", "administrator"):
                self._start_other(machine)
        if self.shape.moves or (self.shape.brokers > self.shape.replicas > 2 and self.run.seed % 3 == 0):
            self._start_other("mover")
        await self._break()
        self._heal()
        await self.observer.start(self._settle())
        along: CommittedFollowers = await followers
        await self.observer.start(self._observe(along))
        return along

    async def until_served(self) -> None:
        """All brokers live, and lead what they have."""
        end = self.loop.time() + self.shape.settle_s
        while not self._are_served():
            if self.loop.time() > end:
                self.run.find(Kind.HANGING, "brokers do not serve")
                return
            await asyncio.sleep(0.05)

    def _are_served(self) -> bool:
        catalog = self.facts.catalog
        return all(
            broker.services is not None and broker.services.catalog.revision == catalog.revision
            for broker in self.brokers
        ) and all(
            assigned.leader_id in catalog.brokers and not catalog.brokers[assigned.leader_id].is_fenced
            for topic in catalog.topics()
            for assigned in topic.partitions
        )

    async def _prepare(self) -> None:
        counts = {INPUT: _SLOTS, **PARTITIONS}
        if self.shape.has_other_clients:
            counts[LOG] = self.shape.brokers
        async with Admin(bootstrap_servers=self.address) as admin:
            await admin.create_topics(
                [
                    NewTopic(name, count, self.shape.replicas, self.topic_configs)
                    for name, count in counts.items()
                ]
            )
        async with Producer(bootstrap_servers=self.address) as producer:
            for number in range(self.shape.inputs * _SLOTS):
                await producer.send(INPUT, b"%d" % number, partition=number % _SLOTS)

    async def _followers(self) -> CommittedFollowers:
        return CommittedFollowers(self.address)

    async def _look(self) -> None:
        while True:
            serving = self._serving()
            for broker in self.brokers:
                self.checks.look(broker, is_cut_off=broker.services not in serving)
            if self.shape.replicas > 1:
                self.replica_checks.look(self.brokers)
            if self.shape.is_tiered:
                self.tiering_checks.look(self.brokers)
            for place in PLACES:
                replica = _leading(serving, place)
                if replica is not None and self._answers(replica) and not replica.is_behind_its_epoch:
                    ends = replica.ends
                    self.ends[place].append(Ends(ends.last_stable, ends.high_watermark))
            await asyncio.sleep((_CALM_LOOK_S if self.is_healed else _LOOK_S) * self.rng.random())

    def _answers(self, replica: Replica) -> bool:
        """Whether clients get its ends."""
        return any(broker.answers_of(replica) for broker in self.brokers)

    def _serving(self) -> list[Services]:
        """Of the brokers that are not cut off."""
        return [
            broker.services
            for broker in self.brokers
            if broker.services is not None and not broker.is_cut_off
        ]

    def _start_other(self, machine: str) -> None:
        self.run.done[f"programs: {machine}"] += 1
        self.network.in_order.update(("committer", "administrator"))
        node = self.others[machine] = Node(self.loop, f"{machine} {len(self.run.done)}", machine)
        node.on_death = lambda: self.network.cut_of(node)
        node.start(self.programs[machine](node))

    def _restart_other(self, machine: str) -> None:
        self.others[machine].kill()
        if machine == "writer":
            self.writers.killed()
        self._start_other(machine)

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
        end = self.loop.time() + self.shape.breaking_s
        if self.run.seed % 2:
            self.loop.create_task(self._fill_disks(end))
        self.network.faults = (_ROUGH if self.has_epochs else _WITHOUT_GHOSTS) if rng.random() < 0.8 else CALM
        self.etcd.faults = _ROUGH_STORE if rng.random() < 0.5 else StoreFaults()
        if self.shape.is_tiered:
            self.loop.create_task(self._break_bucket(end))
        # A seed has some kinds of faults, so that each kind is also met with few others.
        kinds = [self._break_processor] * 4 + [self._break_broker] * 3
        if self.shape.brokers > 1:
            more = [self._break_disk, self._break_way, self._break_store, self._break_other, self._cut_power]
            kinds += [kind for kind in more if rng.random() < 0.7] * 3
            self.is_without_member = self._break_store in kinds and rng.random() < 0.5
        while self.loop.time() < end:
            await asyncio.sleep(rng.expovariate(1 / _MEAN_WAIT_S))
            rng.choice(kinds)()

    async def _fill_disks(self, end: float) -> None:
        """Fill one after the other, for a short time each."""
        rng = random.Random(f"full disks {self.run.seed}")
        while self.loop.time() < end:
            await asyncio.sleep(rng.expovariate(1 / _MEAN_WAIT_S))
            broker = rng.choice(self.brokers)
            if broker.services is None:
                continue  # It would not open its logs before the next start.
            disk = broker.disk
            disk.is_full = True
            self.run.done["full disks"] += 1
            await asyncio.sleep(rng.choice((0.01, 0.1, 1)) * rng.random())
            disk.is_full = False

    async def _break_bucket(self, end: float) -> None:
        """Requests fail, and now and then all of them for a time."""
        rng = random.Random(f"outages {self.run.seed}")
        if rng.random() < 0.3:
            return
        self.bucket.faults = _ROUGH_BUCKET
        while self.loop.time() < end:
            await asyncio.sleep(rng.expovariate(0.5))
            self.bucket.is_down = self.loop.time() < end
            await asyncio.sleep(rng.random() * 2)
            self.bucket.is_down = False

    def _heal(self) -> None:
        self.is_healed = True
        self.network.faults, self.etcd.faults, self.bucket.faults = CALM, StoreFaults(), BucketFaults()
        self.network.open_all_ways()
        processors = [node for nodes in self.processors for node in nodes]
        for node in (*(broker.node for broker in self.brokers), *self.others.values(), *processors):
            node.resume()
        for member in MEMBERS:
            self.etcd.go_on(member)
        if self.is_without_member:
            self.etcd.stop(self.rng.choice(MEMBERS))
        for broker in self.brokers:
            broker.keeps_dying = False
            broker.die_soon(None)

    def _later(self, longest_s: float, work: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_later(self.rng.random() * longest_s, work, *arguments, context=Context())

    def _break_broker(self) -> None:
        rng = self.rng
        broker, drawn = rng.choice(self.brokers), rng.random()
        if broker.node_id in self._foreign:
            return
        if drawn < 0.6:
            self.run.done["deaths of a broker at a write"] += 1
            broker.die_soon(rng.randint(1, 30))
        elif drawn < 0.85:
            self.run.done["pauses of a broker"] += 1
            self._pause(broker.node, rng.random() * rng.choice((2, 5)))
        elif broker.is_alive and broker.services is not None:
            self.run.done["stops of a broker"] += 1
            broker.node.start(broker.stop())

    def _break_disk(self) -> None:
        """Make a copy of a disk, or start a broker with an older or an empty one."""
        rng = self.rng
        broker = rng.choice(self.brokers)
        node_id, folder = broker.node_id, Path(f"/disk-{self.rng.random()}")
        if node_id in self._foreign or not broker.is_alive or broker.services is None:
            return
        if self.shape.replicas > 1 and self._foreign:
            return
        life, copy = self._copies.get(node_id, (0, None))
        if copy is None and rng.random() < 0.6:
            self._copies[node_id] = (self._opened_life[node_id], broker.platter.copied_to(folder))
            return
        if copy is not None and life < self._opened_life[node_id]:
            self.run.done["older disks"] += 1
            del self._copies[node_id]
        else:
            self.run.done["empty disks"] += 1
            copy = Platter(folder)
        self._foreign[node_id] = broker.platter
        if self.shape.replicas > 1:
            self.facts.lost_disks[node_id] = self.facts.catalog.brokers[node_id].incarnation
        broker.kill(cuts_power=rng.random() < 0.5, platter=copy)

    def _cut_power(self) -> None:
        """Of all machines at once, those of etcd too."""
        if self._foreign:
            return
        self.run.done["power cuts of all brokers"] += 1
        for broker in self.brokers:
            broker.kill(cuts_power=True)
        self.etcd.restart()

    def _break_way(self) -> None:
        """Close the ways between two machines, or one of them."""
        rng = self.rng
        machines = [broker.machine for broker in self.brokers]
        one = rng.choice(machines)
        clients = [*self.others, *(node.machine for nodes in self.processors for node in nodes)]
        drawn = rng.random()
        if drawn < 0.4:
            others = list(MEMBERS)
        elif drawn < 0.7 or not clients:
            others = [rng.choice([each for each in machines if each != one])]
        else:
            others = [rng.choice(clients)]
        ways = [(one, each) for each in others], [(each, one) for each in others]
        chosen = rng.choice((ways[0], ways[1], ways[0] + ways[1]))
        self.run.done["closed ways"] += 1
        for way in chosen:
            self.network.close_way(*way)
        longest_s = rng.choice((0.5, 2, 5))
        self._later(longest_s, lambda: [self.network.open_way(*way) for way in chosen])

    def _break_store(self) -> None:
        rng = self.rng
        drawn = rng.random()
        if drawn < 0.5:
            some = rng.sample(MEMBERS, rng.choice((1, 1, 2, 3)))
            self.run.done[f"stops of {len(some)} members of etcd"] += 1
            for member in some:
                self.etcd.stop(member)
                self._later(rng.choice((3, 9)), self.etcd.go_on, member)
        elif drawn < 0.7:
            self.run.done["restarts of etcd"] += 1
            self.etcd.restart()
        else:
            self.run.done["compactions"] += 1
            self.etcd.compact()

    def _break_other(self) -> None:
        if not self.others:
            return
        machine = self.rng.choice(list(self.others))
        if self.rng.random() < 0.7:
            self._restart_other(machine)
        else:
            self.run.done["pauses of other clients"] += 1
            self._pause(self.others[machine], self.rng.random() * 3)

    def _break_processor(self) -> None:
        rng = self.rng
        slot, drawn = rng.randrange(_SLOTS), rng.random()
        nodes = self.processors[slot]
        if not nodes:
            return
        if drawn < 0.35:
            self.run.done["kills of a processor"] += 1
            self._kill(slot, nodes[-1])
        elif drawn < 0.6:
            self.run.done["second processors"] += 1
            self._start_processor(slot)
        else:
            self.run.done["zombies"] += 1
            self._pause(nodes[-1], rng.random() * 6)
            if drawn < 0.9:
                self._start_processor(slot)

    def _pause(self, node: Node, seconds: float) -> None:
        node.pause()
        self.loop.call_later(seconds, node.resume, context=Context())

    async def _settle(self) -> None:
        """Wait until every input is processed, then kill the processors and wait until nothing is open."""
        history = self.run.history
        history.inputs = dict.fromkeys(range(_SLOTS), self.shape.inputs)
        await self.until_served()
        if self.others:
            await self._settle_others()
        end = self.loop.time() + self.shape.settle_s
        while history.positions != history.inputs:
            if self.loop.time() > end:
                self.run.find(Kind.HANGING, f"only {history.positions} were processed in time")
                break
            await asyncio.sleep(0.25)
            if not self._may_be_done():
                continue
            with suppress(ClientError):
                history.positions = await committed_positions(self.jobs)
        self.is_settling = True
        for slot, nodes in enumerate(self.processors):
            for node in list(nodes):
                self._kill(slot, node)
        end = self.loop.time() + self.shape.settle_s
        while not self._is_stable():
            if self.loop.time() > end:
                self.run.find(Kind.HANGING, "a transaction is open long after its timeout")
                break
            await asyncio.sleep(0.1)
        problems: dict[str, Callable[[], object]] = {}
        if self.shape.replicas > 1:
            problems["replicas do not become equal"] = lambda: self.replica_checks.difference(self.brokers)
        if self.shape.is_tiered:
            problems["remote storage keeps what nobody needs"] = self.tiering_checks.superfluous
        for what, problem in problems.items():
            while found := problem():
                if self.loop.time() > end:
                    self.run.find(Kind.BROKEN_RULE, f"{what}: {found}")
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
        return len(sources) >= self.shape.inputs * _SLOTS

    def _attempts(self) -> dict[AttemptId, Attempt]:
        attempts: dict[AttemptId, Attempt] = {}
        for name, journal in self.journals.items():
            attempts |= attempts_of(name, journal.lines)
        return attempts

    def _is_stable(self) -> bool:
        if not self._are_served():
            return False
        serving = self._serving()
        ends = [None if (replica := _leading(serving, place)) is None else replica.ends for place in PLACES]
        return all(each is not None and each.last_stable == each.end for each in ends)

    async def _settle_others(self) -> None:
        self.others["administrator"].kill()
        self.others["committer"].kill()
        if "mover" in self.others:
            self.others["mover"].kill()
        try:
            await self.others["writer"].start(self.writers.settle())
            self.run.findings += await self.writers.judge()
        except (TimeoutError, ClientError) as error:
            self.run.find(Kind.HANGING, f"a writer waits long after all is healed: {error!r}")

    async def _observe(self, along: CommittedFollowers) -> None:
        history = self.run.history
        try:
            history.positions = await committed_positions(self.jobs)
            history.visible = await read_committed(self.address, 60)
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
        self.run.findings += self.committer.findings
        self.run.findings += self.administrator.judge(self.facts.catalog)
        self.run.findings += [*check(history), *findings_of(isolation.check(history))]


def _leading(serving: Iterable[Services], place: Place) -> Replica | None:
    """The replica that leads a partition for consumers, in the highest epoch; None without one."""
    replicas = (services.replicas.get(place) for services in serving)
    leading = [each for each in replicas if each is not None and not each.is_follower]
    return max(leading, key=lambda replica: replica.leader_epoch, default=None)
