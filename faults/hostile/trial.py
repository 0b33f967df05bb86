"""Sends a broker the most harmful requests, beside a normal client, and checks their cost.

Owns the bounds: how much processor time the broker may use while one small request waits, and how far its
memory may grow. Attacks come in an order by the seed: each kind once, then the largest requests while there
is time. Invariant: a finding has the figure that broke a bound; the worst figures are always reported.
"""

import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from faults.checker import Finding, Kind
from faults.damage.sample import batch_of
from faults.damage.verdict import judge_words
from faults.hostile.attacks import ATTACKS, Ports, send_large
from faults.hostile.gauge import Cost, Gauge, why_not
from faults.hostile.largest import Large, enlarged, largest_requests
from faults.process import BrokerProcess, BrokerProcessError
from faults.trial import Outcome, Say, turns
from faults.wire import Wire

WAITED_CPU_MS: Final = 600.0
"""Processor time of the broker while one small request waits. A step should take some milliseconds; with this
much the broker has stopped for all clients."""
GROWN_KB: Final = 256 * 1024
TOPIC: Final = "served"
TARGET: Final = "target"
"""The topic that attacks name; they may delete it."""
_RECORDS: Final = 400
_FEW_ELEMENTS: Final = 300
"""Enough to see which lists there are; each is enlarged when its turn comes."""
_LARGE: Final = "largest requests"
_SETTINGS: Final[dict[str, object]] = {"auto.create.topics.enable": "false"}

Attack = tuple[str, Callable[[Ports], Awaitable[str]]]


async def run(seed: int, seconds: float, folder: Path, say: Say, attacks: int = 0) -> Outcome:
    """Attack until `seconds` are over, or `attacks` times. BrokerProcessError where it does not start."""
    outcome = Outcome()
    if reason := why_not():
        outcome.left_out.append(reason)
        return outcome
    worst: list[tuple[Cost, str]] = []
    async with BrokerProcess(folder / "data", settings=_SETTINGS) as broker:
        larges = list(largest_requests(TARGET, await _prepare(broker), _FEW_ELEMENTS))
        chosen = _attacks(random.Random(f"hostile {seed}"), larges)
        for _, (kind, attack) in zip(turns(seconds, attacks), chosen, strict=False):
            await _make_target(broker)
            cost, text = await _measure(broker, attack, outcome)
            outcome.tried[kind] += 1
            worst.append((cost, text))
            say(f"{text}; {_text_of(cost)}")
            outcome.findings += _judge(cost, text)
            if not broker.is_running:
                outcome.findings.append(Finding(Kind.COSTLY, f"{text}: the broker is gone"))
                await broker.start()
        outcome.findings += judge_words(broker.log_lines)
    if worst:
        _add_worst(worst, outcome)
    return outcome


def _attacks(rng: random.Random, larges: list[Large]) -> Iterator[Attack]:
    """Each kind once, then all the largest requests in a random order, then all over again."""
    while True:
        for kind, attack in rng.sample(list(ATTACKS.items()), len(ATTACKS)):
            yield kind, lambda ports, attack=attack: attack(ports, TOPIC, rng)  # type: ignore[misc]
            large = enlarged(larges[rng.randrange(len(larges))], TARGET)
            yield _LARGE, lambda ports, large=large: send_large(ports, large)  # type: ignore[misc]
        rng.shuffle(larges)
        for large in (enlarged(each, TARGET) for each in larges):
            yield _LARGE, lambda ports, large=large: send_large(ports, large)  # type: ignore[misc]


async def _prepare(broker: BrokerProcess) -> dict[int, int]:
    """Make a topic with some records, and one without. Returns the newest version of each API."""
    async with Wire.connected(broker.port) as wire:
        for name in (TOPIC, f"{TOPIC}-empty"):
            if code := await wire.create_topic(name, 1):
                raise BrokerProcessError(f"CreateTopics was answered with error {code}")
        code, producer_id = await wire.new_producer_id()
        for number in range(_RECORDS):
            await wire.append(TOPIC, {0: batch_of(producer_id, 0, 0, number, 1, 1_000).data})
        return await wire.newest_versions()


async def _make_target(broker: BrokerProcess) -> None:
    async with Wire.connected(broker.port) as wire:
        if TARGET not in await wire.topic_names():
            await wire.create_topic(TARGET, 1)


async def _measure(
    broker: BrokerProcess, attack: Callable[[Ports], Awaitable[str]], outcome: Outcome
) -> tuple[Cost, str]:
    gauge = Gauge(broker.pid or 0, broker.port, TOPIC)
    text = "an attack"
    try:
        async with gauge:
            text = await attack(Ports(broker.port, broker.http_port))
    except (OSError, EOFError, TimeoutError) as error:
        outcome.findings.append(Finding(Kind.COSTLY, f"{text}: a client that behaves had {error!r}"))
    return gauge.cost, text


def _judge(cost: Cost, text: str) -> list[Finding]:
    findings = []
    if cost.waited_cpu_ms > WAITED_CPU_MS:
        findings.append(
            Finding(
                Kind.COSTLY,
                f"{text}: a small request waited for {cost.waited_cpu_ms:,.0f} ms of processor time",
            )
        )
    if cost.grown_kb > GROWN_KB:
        findings.append(Finding(Kind.COSTLY, f"{text}: the broker grew by {cost.grown_kb // 1024:,} MiB"))
    return findings


def _text_of(cost: Cost) -> str:
    return (
        f"{cost.cpu_ms:,.0f} ms of processor, others waited for {cost.waited_cpu_ms:,.0f} ms at most and had"
        f" {cost.answered:,} answers, {cost.grown_kb // 1024:,} MiB more"
    )


def _add_worst(worst: list[tuple[Cost, str]], outcome: Outcome) -> None:
    waited, waited_text = max(worst, key=lambda each: each[0].waited_cpu_ms)
    grown, grown_text = max(worst, key=lambda each: each[0].grown_kb)
    answers = sum(cost.answered for cost, _ in worst)
    outcome.figures += [
        f"a client that behaves had {answers:,} answers meanwhile",
        f"longest wait: {waited.waited_cpu_ms:,.0f} ms of processor time ({waited_text})",
        f"most memory: {grown.grown_kb // 1024:,} MiB more ({grown_text})",
    ]
