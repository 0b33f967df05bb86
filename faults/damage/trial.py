"""Damages copies of sample folders, starts a broker on each, and judges what it shows.

Owns the order of rounds. A round damages one or two files that all partitions share, or one file in most
partitions. Each partition is judged by what was done to it; undamaged ones must be as they were. Kinds of
files and of damage take turns, so that a few rounds try each once. Invariant: round `n` of a seed draws the
same damage on a sample of the same bytes; a folder with findings is kept as it was before the start.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from faults.checker import Finding, Kind
from faults.damage import verdict
from faults.damage.files import (
    Damage,
    Done,
    FileKind,
    UnknownFileError,
    apply,
    damages_of,
    files_by_kind,
    is_of_a_partition,
)
from faults.damage.probe import look
from faults.damage.sample import SETTINGS, TOPICS, Sample, Stop, TopicPartition, make_sample
from faults.process import BrokerProcess, BrokerProcessError
from faults.trial import Outcome, Say, turns
from faults.wire import Wire

_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_SHARED_SHARE: Final = 0.4
_PARTITION_SHARE: Final = 0.8
_IDS_ASKED: Final = 3
_START_MS: Final = 60_000


class Todo(NamedTuple):
    """What to do to some file of a kind."""

    kind: FileKind
    damage: Damage


async def run(seed: int, seconds: float, folder: Path, say: Say, rounds: int = 0) -> Outcome:
    """Rounds until `seconds` are over, or `rounds` of them. BrokerProcessError without a sample."""
    outcome = Outcome()
    samples: dict[Stop, Sample] = {}
    todo = {of_a_partition: _in_turn(of_a_partition, seed) for of_a_partition in (True, False)}
    damages: Counter[Damage] = Counter()
    starts = 0
    for number in turns(seconds, rounds):
        rng = random.Random(f"damage {seed} {number}")
        stop = list(Stop)[number % len(Stop)]
        if stop not in samples:
            # Its own random numbers: how many it draws depends on the speed of the machine.
            own = random.Random(f"sample {seed} {stop.name}")
            samples[stop] = await make_sample(folder / stop.name.lower(), stop, own)
            try:
                files_by_kind(samples[stop].folder)
            except UnknownFileError as error:
                outcome.findings.append(Finding(Kind.ALARM, str(error)))
                break
        is_shared = number % 2 == 0 if rounds else rng.random() < _SHARED_SHARE
        damaged = samples[stop].copy_to(folder / "damaged")
        plan = _plan(todo, is_shared, rng)
        before = rng.getstate()
        done = _damage(damaged, plan, rng)
        for each in done:
            outcome.tried[each.kind] += 1
            damages[each.damage] += 1
        found = await _judge(samples[stop], damaged, done, rng)
        if found:
            rng.setstate(before)
            _damage(samples[stop].copy_to(folder / f"round-{number}"), plan, rng)
            where = f"round {number}, {stop}; {'; '.join(each.text(damaged) for each in done)}"
            say(f"{where}: {len(found)} findings, kept in {folder / f'round-{number}'}")
            outcome.findings += [Finding(kind, f"round {number}, {text}") for kind, text in found]
        starts += 1
    ways = ", ".join(f"{count:,} {damage}" for damage, count in damages.most_common())
    outcome.figures.append(f"{sum(damages.values()):,} files in {starts:,} starts: {ways}")
    return outcome


def _in_turn(of_a_partition: bool, seed: int) -> Iterator[Todo]:
    """Every kind of file with every damage it can take, in an order by the seed, again and again."""
    rng = random.Random(f"turn {seed} {of_a_partition}")
    kinds = [kind for kind in FileKind if kind is not FileKind.SCRATCH]
    pairs = [
        Todo(kind, damage)
        for kind in kinds
        if is_of_a_partition(kind) is of_a_partition
        for damage in damages_of(kind)
    ]
    while True:
        rng.shuffle(pairs)
        yield from pairs


def _plan(todo: dict[bool, Iterator[Todo]], is_shared: bool, rng: random.Random) -> dict[str, list[Todo]]:
    """Folder name ("" for the data folder itself) -> what to do to files in it."""
    if is_shared:
        return {"": [next(todo[False]) for _ in range(rng.choice((1, 1, 2)))]}
    names = [f"{topic}-{index}" for topic, count in TOPICS.items() for index in range(count)]
    return {name: [next(todo[True])] for name in names if rng.random() < _PARTITION_SHARE}


def _damage(data_dir: Path, plan: dict[str, list[Todo]], rng: random.Random) -> list[Done]:
    """Do it. No file is damaged twice: a swap with a file that was emptied before is no swap."""
    done: list[Done] = []
    for name, todos in plan.items():
        for kind, damage in todos:
            damaged = {path for each in done for path in each.files}
            files = [path for path in files_by_kind(data_dir).get(kind, []) if path not in damaged]
            own = [path for path in files if path.parent == data_dir / name]
            if own and (each := apply(kind, damage, rng.choice(own), files, rng)):
                done.append(each)
    return done


async def _judge(sample: Sample, data_dir: Path, done: list[Done], rng: random.Random) -> list[Finding]:
    files = [str(path.relative_to(data_dir)) for each in done for path in each.files]
    points = _recovery_points(sample.folder)
    broker = BrokerProcess(data_dir, settings=SETTINGS)
    try:
        try:
            await broker.start(_START_MS)
        except BrokerProcessError:
            lines = list(broker.log_lines)
            return verdict.judge_words(lines) + verdict.judge_refusal(files, lines)
        findings: list[Finding] = []
        try:
            findings += await _look(broker, sample, data_dir, done, points, rng)
        except (OSError, EOFError, TimeoutError) as error:
            findings.append(Finding(Kind.ALARM, f"the broker stopped answering: {error!r}"))
    finally:
        await broker.kill_9()
    return findings + verdict.judge_words(broker.log_lines)


async def _look(
    broker: BrokerProcess,
    sample: Sample,
    data_dir: Path,
    done: list[Done],
    points: dict[TopicPartition, int],
    rng: random.Random,
) -> list[Finding]:
    async with Wire.connected(broker.port) as wire:
        findings = verdict.judge_topics(TOPICS, await wire.topic_names())
        shown = {key: await look(wire, sample, key, rng) for key in sample.batches}
        fresh = [await wire.new_producer_id() for _ in range(_IDS_ASKED)]
    findings += verdict.judge_ids(
        sample.producer_ids, [producer_id for code, producer_id in fresh if not code]
    )
    events = verdict.events_of(broker.log_lines)
    for key, seen in shown.items():
        folder = data_dir / "-".join(map(str, key))
        own = [each for each in done if any(path.parent == folder for path in each.files)]
        shared = [each for each in done if each.files[0].parent == data_dir]
        case = verdict.Case(
            key,
            sample.stop,
            [*sample.batches[key], *sample.markers.get(key, ())],
            sample.starts[key],
            points.get(key, 0),
            [each.damage for each in own],
            [path.name for each in shared for path in each.files]
            + [f"{path.parent.name}/{path.name}" for each in own for path in each.files],
            sample.superseded.get(key, ()),
        )
        damage = "; ".join(each.text(data_dir) for each in [*own, *shared]) or "nothing done to it"
        for kind, text in verdict.judge_partition(case, seen, events):
            findings.append(Finding(kind, f"{sample.stop}, {damage}: {text}"))
    return findings


def _recovery_points(data_dir: Path) -> dict[TopicPartition, int]:
    path = data_dir / _RECOVERY_POINTS
    lines = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return {(topic, int(partition)): int(offset) for topic, partition, offset in lines}
