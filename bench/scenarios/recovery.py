"""Start after kill -9 with a 2 GiB partition, beside the time to read what has to be read again.

The broker runs with default settings and is killed right after the last acknowledgement. What lies beyond its
recovery point it reports itself when it recovers (`log_recovered`); those bytes are then read raw, from the
page cache as they were for the broker, which is the reference. A start on an empty folder says what of the
time is the interpreter's.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.loads.fill_load import RECORDS_A_BATCH
from bench.loads.process import LoadError, run_load
from bench.results import REFERENCE, SUBJECT, Results
from bench.targets.tidelog import Tidelog
from bench.wire import TOPIC, Wire

PARTITION_BYTES = 2 << 30
_CHUNK_BYTES = 1 << 20
SCENARIO = "start after kill -9, 2 GiB partition"


def recovery_report(lines: Iterable[str]) -> dict[str, Any]:
    """What the broker said about the log that it recovered. Raises LoadError when it said nothing."""
    for line in lines:
        if line.startswith("{") and (event := json.loads(line)).get("event") == "log_recovered":
            return dict(event)
    raise LoadError("the broker did not report log_recovered after it was killed")


def tail_pieces(sizes: Iterable[tuple[Path, int]], count: int) -> list[tuple[Path, int, int]]:
    """(file, position, bytes) of the last `count` bytes of files in the order of the log, the last first."""
    pieces: list[tuple[Path, int, int]] = []
    for path, size in reversed(list(sizes)):
        take = min(size, count)
        if take:
            pieces.append((path, size - take, take))
        count -= take
    return pieces


def read_seconds(pieces: Iterable[tuple[Path, int, int]]) -> float:
    """The time to read the pieces into one buffer, a chunk at a time. Raises OSError."""
    buffer = bytearray(_CHUNK_BYTES)
    begin = time.perf_counter()
    for path, position, count in pieces:
        file = os.open(path, os.O_RDONLY)
        try:
            end = position + count
            while position < end and (read := os.preadv(file, [buffer], position)):
                position += read
        finally:
            os.close(file)
    return time.perf_counter() - begin


def measure(results: Results, folder: Path) -> None:
    """Once, on a broker of its own. Raises LoadError, TargetError, OSError."""
    empty = Tidelog(folder / "empty")
    with empty:
        results.row(SCENARIO, "ready, empty folder", "s").add(SUBJECT, empty.seconds_to_ready)
    broker = Tidelog(folder / "recovery")
    with broker:
        filled = run_load(broker, "fill_load", "--bytes", PARTITION_BYTES).numbers
        # Leaving the block kills it with SIGKILL.
    begin = time.perf_counter()
    with broker:
        # Ready is a broker that answers for the partition, not one that merely listens.
        with Wire(broker.port) as wire:
            stored = wire.end_offset()
        ready_s = time.perf_counter() - begin
    if stored != filled["records"]:
        raise LoadError(
            f"{filled['records']:.0f} records were acknowledged, {stored} came back after kill -9"
        )
    report = recovery_report(broker.output().splitlines())
    logs = sorted((broker.folder / f"{TOPIC}-0").glob("*.log"))
    tail_bytes = int(report["scanned_bytes"])
    row = results.row(SCENARIO, "ready, beside reading the tail", "s")
    row.add(SUBJECT, ready_s)
    row.add(REFERENCE, read_seconds(tail_pieces([(path, path.stat().st_size) for path in logs], tail_bytes)))
    results.row(SCENARIO, "tail beyond the recovery point", "MB").add(SUBJECT, tail_bytes / 1e6)
    results.row(SCENARIO, "written before, all acks", "MB/s").add(
        SUBJECT, filled["bytes"] / filled["seconds"] / 1e6
    )
    results.notes.append(
        f"{SCENARIO}: {filled['records']:,.0f} acknowledged records, all there; {tail_bytes / 1e6:,.0f} MB"
        f" in batches of {RECORDS_A_BATCH:,} were read, checked, written again and synced within the start."
    )
