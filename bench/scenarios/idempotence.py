"""What idempotence costs: the same work with it and, as the reference, without it.

Both sides wait for all acks, with five requests in flight unless said otherwise, and take short turns on one
broker (`pair_load`). Prepared frames show the broker's own price; our client and confluent-kafka what a user
sees. A ratio is of two turns against the two around or between them (A B B A), so that a drift meets both
alike; the row's is the median of many, and a note says how far that can be trusted. The broker's files are in
memory where there is room: the work is the same, and the disk's moods, larger than the difference that is
looked for, are left out.

Our client without idempotence has one request of a partition in flight, for nothing else would keep its
order; so here it has one with idempotence too. An idempotent librdkafka sends a partition's next request
only after the answer to the one before, unless each has one record (its pull request 4989, open), and
meanwhile its thread spins, on a processor that the broker could use. So its two sides do not pipeline alike
whatever the broker is: these rows have no requirement. They say how many requests were in flight and what
both sides spent, and one partition stands beside the same against the sink.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.loads.process import run_load
from bench.results import REFERENCE, SUBJECT, Requirement, Results
from bench.statistics import median, median_interval, ratios
from bench.targets.process import Target
from bench.targets.sink import Sink
from bench.targets.tidelog import Tidelog
from bench.wire import TOPIC, Wire

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 << 30
_SPREAD = "spread"
_PARTITIONS = 8
_REQUIRED = (Requirement(0.97, REFERENCE),)


class Case(NamedTuple):
    """One row: how the records are sent, how many in a turn and (raw) in a batch, and how many turns."""

    measure: str
    way: str
    records: int
    turns: int
    value_bytes: int = 1000
    records_a_batch: int = 1
    partitions: int = 1
    required: tuple[Requirement, ...] = _REQUIRED


_ALONE = Case("confluent-kafka, 1 partition", "confluent", 24_000, 12, required=())
_SPREAD_OUT = Case(
    f"confluent-kafka, {_PARTITIONS} partitions", "confluent", 24_000, 24, partitions=_PARTITIONS, required=()
)
CASES = (
    Case("raw, 16 KB batches", "raw", 800, 400, records_a_batch=16),
    Case("raw, 1 MB batches", "raw", 8_000, 100, records_a_batch=1_000),
    Case("raw, one 100-byte record", "raw", 100, 240, value_bytes=100, required=()),
    Case("our client, one in flight", "client", 4_000, 12),
    _SPREAD_OUT,
    _ALONE,
)


@contextmanager
def _folder_in_memory(folder: Path) -> Iterator[Path]:
    """A folder that lives in memory, or `folder` where that has not the room for it."""
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_MEMORY) as name:
        yield Path(name)


def measure(results: Results, folder: Path) -> None:
    """Once, on servers of its own. Raises LoadError, TargetError."""
    for case in CASES:
        _compare(results, folder, Tidelog, case)
    _compare(results, folder, Sink, _ALONE)


def _compare(results: Results, folder: Path, make: type[Target], case: Case) -> None:
    topic = TOPIC if case.partitions == 1 else _SPREAD
    # A server for each case: what all write together would not fit.
    with _folder_in_memory(folder) as room, make(room / make.name) as server:
        if case.partitions > 1:
            with Wire(server.port) as wire:
                wire.create_topic(topic, case.partitions)
        options = {
            "--topic": topic,
            "--partitions": case.partitions,
            "--records": case.records,
            "--value-bytes": case.value_bytes,
            "--records-a-batch": case.records_a_batch,
            "--turns": case.turns,
        }
        arguments = [part for option in options.items() for part in option]
        numbers = run_load(server, "pair_load", case.way, server.pid, *arguments).numbers
    shutil.rmtree(folder / make.name, ignore_errors=True)
    note(results, make.name, case, numbers)


def note(results: Results, server: str, case: Case, numbers: dict[str, Any]) -> None:
    """Put what `pair_load` printed into rows: a value a turn and side."""
    title = f"idempotent beside not, to {server}"
    megabytes = case.records * case.value_bytes / 1e6
    batches = case.records / case.records_a_batch
    rate = results.row(title, case.measure, "MB/s", case.required)
    is_raw = case.way == "raw"
    unit, units = ("µs/batch", batches / 1e6) if is_raw else ("ms/MB", megabytes / 1e3)
    cpu = results.row(title, f"{case.measure}: server CPU", unit)
    for who, side in ((SUBJECT, "idempotent"), (REFERENCE, "plain")):
        for seconds, cpu_seconds in zip(
            _folded(numbers[f"{side}_s"]), _folded(numbers[f"{side}_cpu_s"]), strict=True
        ):
            rate.add(who, megabytes / seconds)
            cpu.add(who, cpu_seconds / units)
        if case.way == "confluent":
            own = results.row(title, f"{case.measure}: client CPU", unit)
            for own_seconds in numbers[f"{side}_own_cpu_s"]:
                own.add(who, own_seconds / units)
            in_flight = results.row(title, f"{case.measure}: most in flight", "requests")
            in_flight.add(who, numbers[f"{side}_in_flight"])
    if case.required:
        rounds = ratios(rate.values[SUBJECT], rate.values[REFERENCE])
        low, high = median_interval(rounds)
        results.notes.append(
            f"{title}, {case.measure}: {median(rounds):.3f}, with 95% certainty {low:.3f} to {high:.3f}"
            f" ({len(rounds)} rounds of two turns a side)."
        )


def _folded(turns: Sequence[float]) -> list[float]:
    """The mean of each two turns of a side: the first and the last, or both in the middle, of A B B A."""
    return [(one + other) / 2 for one, other in zip(turns[::2], turns[1::2], strict=True)]
