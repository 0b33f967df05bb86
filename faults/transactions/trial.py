"""Kills brokers and processors, pauses them and breaks their network, and judges the transactions they made.

Owns the order of a trial: start, break, heal, wait until every input is processed, kill the processors, wait
until the transactions that they left open are aborted, read back, check.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from faults.checker import Finding, Kind, compare
from faults.checker import check as check_records
from faults.cluster.replicas import differences_of
from faults.cluster.saboteur import saboteur_of
from faults.cluster.site import cluster_site
from faults.foreign_readers import READERS, compare_with_others
from faults.histories.report import findings_of, write_report
from faults.process import BrokerProcessError
from faults.readback import COMMITTED, read_all
from faults.runner import TIDELOG, alarms, break_for
from faults.saboteur import Saboteur
from faults.schedule import MACHINES_WAIT_MS, MEAN_WAIT_MS, FaultKind, schedule, weights
from faults.site import Site, site_of
from faults.transactions import isolation, observation
from faults.transactions.checker import check
from faults.transactions.client import CLIENTS, Job
from faults.transactions.history import PARTITIONS, PLACES, Attempt, AttemptId, History, Outcome, output_of
from faults.transactions.slots import Slot
from faults.trial import Outcome as TrialOutcome
from faults.trial import Say
from faults.workload import Job as WriterJob
from faults.workload import TidelogWriter
from tidelog.client import Admin, ClientError, NewTopic
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import ApiKey

INPUT: Final = "in"
_PARTITIONS_PER_SLOT: Final = 2
TIMEOUT_MS: Final = 3_000
"""Of transactions: pauses of brokers and processors may be longer."""
_LONGEST_PAUSE_S: Final = 0.15
_BEGIN_SECONDS: Final = 600.0
_SETTLE_SECONDS: Final = 180.0
_STUCK_SECONDS: Final = 25.0
_ABORT_SECONDS: Final = 60.0
_READ_SECONDS: Final = 120.0
_LOOK_S: Final = 0.2
_BROKER_SETTINGS: Final[dict[str, object]] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}
_COORDINATOR_PARTITIONS: Final = 2
"""Of each internal topic, on each broker: few, so that a start is short."""
_API_KEYS: Final = (
    ApiKey.PRODUCE,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FETCH,
)
_KILLS: Final = (
    FaultKind.KILL,
    FaultKind.KILL_IN_FLIGHT,
    FaultKind.KILL_STARTING,
    FaultKind.KILL_PAUSED,
    FaultKind.POWER_CUT,
)


class Crew(NamedTuple):
    """The clients of the slots, and how they are members of one group. Without a protocol each slot reads
    partitions of its own."""

    clients: Sequence[str]
    group_protocol: str | None = None


_CREWS: Final = (
    Crew(CLIENTS),
    Crew(CLIENTS),
    # aiokafka commits offsets without its generation, so a member that lost its partitions could commit.
    Crew(("tidelog", "tidelog", "confluent"), "classic"),
    Crew(("tidelog", "tidelog", "tidelog"), "consumer"),
)


@dataclass
class _Run:
    """The parts of a trial, and what it found."""

    site: Site
    slots: Sequence[Slot]
    feeder: TidelogWriter
    watcher: observation.EndsWatcher
    positions: observation.PositionsWatcher
    followers: observation.CommittedFollowers
    foreign: observation.ForeignReads
    outcome: TrialOutcome
    history: History = field(default_factory=History)

    @property
    def jobs(self) -> list[Job]:
        return [slot.job for slot in self.slots]

    @property
    def input_count(self) -> int:
        return len({partition for job in self.jobs for partition in job.partitions})

    def find(self, kind: Kind, text: str) -> None:
        self.outcome.findings.append(Finding(kind, text))


async def run(
    seed: int,
    seconds: float,
    folder: Path,
    say: Say,
    least_steps: int = 0,
    crew: Crew | None = None,
    machines: bool = False,
) -> TrialOutcome:
    """Break things for `seconds`, or longer until `least_steps` are done, then check. The seed draws the crew
    if none is given."""
    outcome = TrialOutcome()
    rng = random.Random(f"transactions {seed}")
    settings = {**_BROKER_SETTINGS, "log.segment.bytes": rng.choice((16_384, 65_536, 1_048_576))}
    settings["log.flush.offset.checkpoint.interval.ms"] = rng.choice((100, 500, 60_000))
    for topic in ("offsets.topic", "transaction.state.log"):
        settings[f"{topic}.num.partitions"] = _COORDINATOR_PARTITIONS * (3 if machines else 1)
    disk = rng.choice((0, 5, 20)), rng.choice((0.0, 0.1, 1.0))
    often = weights("processors", "machines" if machines else "shared")
    opened = cluster_site(folder / "data", settings, *disk) if machines else None
    async with opened or site_of(folder / "data", settings, *disk) as site:
        made = await _begin(site, seed, folder, outcome, crew or rng.choice(_CREWS))
        saboteur = saboteur_of(site)
        try:
            steps = schedule(seed, often, MACHINES_WAIT_MS if machines else MEAN_WAIT_MS)
            await break_for(saboteur, steps, seconds, say, least_steps=least_steps)
            say("all faults are over; the processors read to the end of the input")
            await _settle(made)
            say("reading everything back")
            await _observe(made)
        except BrokerProcessError as error:
            made.find(Kind.ALARM, str(error))
        finally:
            await _end(made)
        for broker in site.brokers:
            outcome.findings += alarms(broker, disks_fail=machines)
        outcome.tried = Counter({str(kind): count for kind, count in saboteur.done.items()})
        outcome.figures += _figures(made, saboteur)
    made.history.attempts = _attempts(made.slots)
    anomalies = await asyncio.to_thread(isolation.check, made.history)
    facts = isolation.facts_of(made.history)
    await asyncio.to_thread(write_report, folder, facts, anomalies)
    outcome.findings += [*check(made.history), *findings_of(anomalies)]
    outcome.figures += facts
    return outcome


async def _begin(site: Site, seed: int, folder: Path, outcome: TrialOutcome, crew: Crew) -> _Run:
    oddities: Counter[str] = Counter()
    slots = []
    count = len(crew.clients) * _PARTITIONS_PER_SLOT
    for index, client in enumerate(crew.clients):
        name, group, partitions = f"{client}-{index}", "group", tuple(range(count))
        if crew.group_protocol is None:
            group = f"group of {name}"
            partitions = partitions[index * _PARTITIONS_PER_SLOT : (index + 1) * _PARTITIONS_PER_SLOT]
        own = group, f"id of {name}"
        job = Job(site.address, INPUT, partitions, *own, TIMEOUT_MS, crew.group_protocol)
        slots.append(Slot(name, client, job, seed, folder, oddities))
    async with Admin(bootstrap_servers=site.address) as admin:
        topics = {INPUT: count, **PARTITIONS}
        await admin.create_topics([NewTopic(*each, site.replicas) for each in topics.items()])
    # Replicas and stopped machines make processors slower; they have to read all of the input in the end.
    longest_pause_s = _LONGEST_PAUSE_S if site.replicas == 1 else 30 * _LONGEST_PAUSE_S
    job_of_feeder = WriterJob(site.address, INPUT, count, seed, longest_pause_s=longest_pause_s)
    feeder = TidelogWriter("feeder", job_of_feeder, TIDELOG)
    site.users, site.api_keys = slots, _API_KEYS
    positions = observation.PositionsWatcher([slot.job for slot in slots])
    followers = observation.CommittedFollowers(site.direct_address, site.reading_rack)
    foreign = observation.ForeignReads(site.direct_address, followers, random.Random(f"reads {seed}"))
    made = _Run(site, slots, feeder, observation.EndsWatcher(site), positions, followers, foreign, outcome)
    await asyncio.gather(feeder.start(), *(slot.start() for slot in slots))
    async with asyncio.timeout(_BEGIN_SECONDS):
        while not all(slot.has_committed() for slot in slots):  # noqa: ASYNC110 (another process says so)
            await asyncio.sleep(_LOOK_S)
    return made


async def _settle(made: _Run) -> None:
    """Wait until all inputs are processed and nothing is open."""
    address = made.site.address
    await made.feeder.settle(_SETTLE_SECONDS)
    inputs = await read_all(address, INPUT, made.input_count, _READ_SECONDS)
    made.outcome.findings += check_records(made.feeder.job.ledgers, inputs)
    made.history.inputs = {partition: len(log) for partition, log in inputs.items()}
    await _until_processed(made)
    for slot in made.slots:
        await slot.close()
    try:
        async with asyncio.timeout(_ABORT_SECONDS):
            await made.watcher.look_again()
            while not made.watcher.is_stable:
                await made.watcher.look_again()
    except TimeoutError:
        made.find(Kind.HANGING, "a transaction is open long after its timeout, and its processor is dead")


async def _until_processed(made: _Run) -> None:
    """Wait until all offsets are committed, as long as any moves. A client that makes no progress for long is
    started again."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _SETTLE_SECONDS
    moved_at = dict.fromkeys((slot.name for slot in made.slots), loop.time())
    before: dict[int, int] = {}
    while loop.time() < end:
        try:
            positions = await observation.committed_positions(made.jobs)
        except ClientError:
            await asyncio.sleep(_LOOK_S)
            continue
        made.history.positions = positions
        if positions == made.history.inputs:
            return
        if positions != before:
            end = loop.time() + _SETTLE_SECONDS
        for slot in made.slots:
            own = slot.job.partitions
            is_done = all(positions[each] == made.history.inputs[each] for each in own)
            if is_done or any(positions[each] != before.get(each) for each in own):
                moved_at[slot.name] = loop.time()
            elif loop.time() - moved_at[slot.name] > _STUCK_SECONDS:
                moved_at[slot.name] = loop.time()
                await slot.replace()
        before = positions
        await asyncio.sleep(_LOOK_S)


async def _observe(made: _Run) -> None:
    """Read what is visible in every way."""
    address, history = made.site.address, made.history
    try:
        # An uncertain commit of a processor that was killed last may have moved them.
        history.positions = await observation.committed_positions(made.jobs)
        history.visible = await observation.read_committed(address, _READ_SECONDS)
        async with asyncio.timeout(_READ_SECONDS):
            await made.followers.stop(dict(history.visible))
    except (ClientError, TimeoutError) as error:
        made.find(Kind.UNREADABLE, f"{type(error).__name__} {error}")
    for topic, count in PARTITIONS.items():
        logs = {place.partition: list(log) for place, log in history.visible.items() if place.topic == topic}
        if len(logs) == count:
            made.outcome.findings += await compare_with_others(
                address, topic, logs, _READ_SECONDS, output_of, COMMITTED
            )
    await made.watcher.look_again()
    try:
        await made.site.settle()
    except TimeoutError:
        made.find(Kind.HANGING, "not all replicas are in sync long after the last fault")
    if exit_code := await made.site.terminate():
        made.find(Kind.ALARM, f"exit code {exit_code} after SIGTERM")
    for place, log in history.visible.items():
        try:
            data_dir = made.site.node_of(*place).data_dir
            found = await asyncio.to_thread(observation.committed_in_files, data_dir, place)
        except ProtocolError as error:
            made.find(Kind.UNREADABLE, f"the files of {place}: {error}")
        else:
            made.outcome.findings += compare(place.partition, "the files", found, log)
    if made.site.replicas > 1:
        folders = [node.data_dir for node in made.site.nodes]
        for topic, count in {INPUT: made.input_count, **PARTITIONS}.items():
            made.outcome.findings += await asyncio.to_thread(differences_of, folders, topic, count)


async def _end(made: _Run) -> None:
    for slot in made.slots:
        await slot.close()
    ending: list[Any] = [made.feeder.give_up(), made.watcher.stop(), made.positions.stop()]
    ending += [made.followers.stop(), made.foreign.stop()]
    await asyncio.gather(*ending, return_exceptions=True)
    made.history.followed = {"the reader along": made.followers.logs, **made.foreign.logs}
    made.history.ends, made.history.committed = made.watcher.ends, made.positions.positions


def _attempts(slots: Sequence[Slot]) -> dict[AttemptId, Attempt]:
    attempts: dict[AttemptId, Attempt] = {}
    for slot in slots:
        attempts |= slot.attempts()
    return attempts


def _figures(made: _Run, saboteur: Saboteur) -> list[str]:
    figures = []
    for slot in made.slots:
        outcomes = Counter(attempt.outcome for attempt in slot.attempts().values())
        ends = ", ".join(f"{outcomes[outcome]:,} × {outcome}" for outcome in Outcome)
        figures.append(f"{slot.name}: {slot.started:,} processes, {outcomes.total():,} transactions ({ends})")
    visible: observation.Logs = {place: list(made.history.visible.get(place, ())) for place in PLACES}
    kills = sum(saboteur.done[kind] for kind in _KILLS)
    figures.append(
        f"{sum(made.history.inputs.values()):,} inputs, {sum(map(len, visible.values())):,} visible outputs,"
        f" read with {', '.join(('our client', *READERS))} and from the files;"
        f" {kills:,} kills of the broker, {saboteur.bytes_lost:,} bytes lost in power cuts;"
        f" {sum(map(len, made.watcher.ends.values())):,} looks at the ends of the logs,"
        f" {sum(map(len, made.positions.positions.values())):,} at committed offsets"
    )
    oddities = made.slots[0].oddities
    figures += [f"{count:>6,} × {oddity}" for oddity, count in sorted(oddities.items())]
    return figures
