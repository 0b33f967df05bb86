"""What a million live producers cost the broker's own state, in a process that has nothing else in memory.

Uses `ProducerStates` and its snapshots as a partition does: every producer appends its five cached batches.
Checks of producers that are all equally likely are the worst for caches. Checks in which the k-th busiest
producer has weight 1/k are what a broker sees. CPU time is that of the thread, so that other programs count
little.
"""

import gc
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.targets.process import resident_bytes
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import Append, ProducerRules
from tidelog.broker.storage.producer_table import CACHED_BATCHES
from tidelog.broker.storage.snapshot import load_newest, write_snapshot
from tidelog.protocol.records import BatchHeader

POPULATIONS = (1_000, 100_000, 1_000_000)
_RECORDS_A_BATCH = 10
_BATCH_BYTES = 1000
_NOW_MS = 1_700_000_000_000
_CHECKS = 20_000
_CHECKS_AT_ONCE = 500
"""So few that their headers stay in the cache, where a broker has the one it just read."""
_ROUNDS = 7
_SCATTER = 7_919


class StateError(RuntimeError):
    """The state is not what was put in."""


def header(producer_id: int, number: int) -> BatchHeader:
    """The header of the `number`th batch (from 0) of a producer."""
    delta = _RECORDS_A_BATCH - 1
    sequence = number * _RECORDS_A_BATCH
    times = (_NOW_MS, _NOW_MS + number)
    return BatchHeader(0, _BATCH_BYTES, 0, 2, 0, 0, delta, *times, producer_id, 0, sequence, _RECORDS_A_BATCH)


def filled(producers: int) -> tuple[ProducerStates, int]:
    """States in which each producer has its full window, packed, and the end offset of such a log."""
    states = ProducerStates(ProducerRules(), lambda: producers)
    offset = 0
    for number in range(CACHED_BATCHES):
        for producer_id in range(producers):
            states.apply(header(producer_id, number), offset, _NOW_MS + number)
            offset += _RECORDS_A_BATCH
    # Looking at the states packs who wrote lately; else the checks of a small population would be of these.
    states.view()
    return states, offset


def check_seconds(states: ProducerStates, headers: Sequence[BatchHeader]) -> float:
    """The CPU time that all checks take. Raises StateError when one would not let the next batch in."""
    check = states.check
    begin = time.thread_time()
    verdicts = [check(batch) for batch in headers]
    taken = time.thread_time() - begin
    wrong = next((verdict for verdict in verdicts if not isinstance(verdict, Append)), None)
    if wrong is not None:
        raise StateError(f"the next batch of a producer was not to be appended: {wrong}")
    return taken


def uniform(chooser: random.Random, count: int) -> list[int]:
    """Producers, all as likely."""
    return chooser.choices(range(count), k=_CHECKS_AT_ONCE)


def skewed(chooser: random.Random, count: int) -> list[int]:
    """Producers, the k-th busiest as likely as 1/k, the busy ones scattered among the others."""
    ranks = [int((count + 1) ** chooser.random()) - 1 for _ in range(_CHECKS_AT_ONCE)]
    return [rank * _SCATTER % count for rank in ranks]


def check_times(populations: Sequence[ProducerStates]) -> dict[str, list[float]]:
    """Microseconds per check, by load and population, a value per round; all take turns."""
    chooser = random.Random(1)
    times: dict[str, list[float]] = {}
    gc.disable()
    for _ in range(_ROUNDS):
        for states in populations:
            for name, choose in (("uniform", uniform), ("skewed", skewed)):
                seconds = 0.0
                for _ in range(_CHECKS // _CHECKS_AT_ONCE):
                    headers = [header(chosen, CACHED_BATCHES) for chosen in choose(chooser, len(states))]
                    seconds += check_seconds(states, headers)
                times.setdefault(f"{name}_us_{len(states)}", []).append(seconds / _CHECKS * 1e6)
    return times


def write_and_load(states: ProducerStates, offset: int, folder: Path) -> dict[str, Any]:
    """Write a snapshot durably and load it again. Raises StateError when it comes back changed."""
    disk = Disk()
    begin = time.perf_counter()
    size = write_snapshot(disk, folder, offset, states.freeze())
    written = time.perf_counter()
    states.thaw()
    before_load = time.perf_counter()
    loaded = load_newest(disk, folder, offset)
    restored = ProducerStates(states.rules, lambda: len(states), loaded.frozen, _NOW_MS)
    load_s = time.perf_counter() - before_load
    first = next(states.entries()).producer_id
    if len(restored) != len(states) or restored.entry(first) != states.entry(first):
        raise StateError(f"{len(states)} producers were written, {len(restored)} came back, or other ones")
    return {"snapshot_bytes": size, "write_s": written - begin, "load_s": load_s}


def run(folder: str, populations: Sequence[int] = POPULATIONS) -> dict[str, Any]:
    """The last population is the one that is weighed and written; <load>_us_<population> has a value a round.

    Raises StateError when a check or a loaded snapshot is wrong.
    """
    filled(populations[0])
    gc.collect()
    before = resident_bytes("self")
    states, offset = filled(populations[-1])
    numbers: dict[str, Any] = {"bytes_a_producer": (resident_bytes("self") - before) / len(states)}
    numbers |= write_and_load(states, offset, Path(folder))
    smaller = [filled(producers)[0] for producers in populations[:-1]]
    return numbers | check_times([*smaller, states])
