"""What idempotence costs: confluent-kafka with it and, as the reference, without it.

Both wait for all acks with five requests in flight. They take turns, and the order changes with each pair,
so that neither always finds what the other left. The broker's files are in memory where there is room: the
work is the same, and the disk's moods, larger than the difference that is looked for, are left out.
The same against the sink, which checks nothing, says how much of the difference is the client's own.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.loads.process import run_load
from bench.results import REFERENCE, SUBJECT, Requirement, Results
from bench.targets.process import Target
from bench.targets.sink import Sink
from bench.targets.tidelog import Tidelog

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 << 30
_PAIRS = 6
_SINK_PAIRS = 2
_SECONDS = 0.8
_VALUE_BYTES = 1000
_REQUIRED = (Requirement(0.97, REFERENCE),)


def turns(pairs: int) -> list[tuple[str, str]]:
    """Who goes first and second in each pair."""
    return [(SUBJECT, REFERENCE) if number % 2 else (REFERENCE, SUBJECT) for number in range(pairs)]


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
    _compare(results, folder, Tidelog, _PAIRS, _REQUIRED)
    _compare(results, folder, Sink, _SINK_PAIRS, ())


def _compare(
    results: Results, folder: Path, make: type[Target], pairs: int, required: Sequence[Requirement]
) -> None:
    title = f"idempotent beside not, to {make.name}"
    rate = results.row(title, "confluent-kafka, 1 KB records", "MB/s", required)
    cpu = results.row(title, "server CPU", "ms/MB")
    options = ["--value-bytes", _VALUE_BYTES, "--seconds", _SECONDS]
    for pair in turns(pairs):
        # A server for each pair: what the pairs write together would not fit.
        with _folder_in_memory(folder) as room, make(room / make.name) as server:
            for who in pair:
                how = [] if who == SUBJECT else ["--not-idempotent"]
                outcome = run_load(server, "confluent_load", *options, *how)
                megabytes = outcome.numbers["records"] * _VALUE_BYTES / 1e6
                rate.add(who, megabytes / outcome.numbers["seconds"])
                cpu.add(who, outcome.server_cpu_s * 1000 / megabytes)
        shutil.rmtree(folder / make.name, ignore_errors=True)
