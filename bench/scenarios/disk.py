"""What the disk allows: the time of one fdatasync after a small append, and the ceiling that it sets."""

import os
import time
from pathlib import Path

from bench.results import SUBJECT, Results
from bench.scenarios.requests import title
from bench.statistics import percentile

SCENARIO = "fdatasync of this disk"
APPEND_BYTES = 200
_APPENDS = 300


def fdatasync_seconds(path: Path, appends: int = _APPENDS) -> list[float]:
    """Append and fdatasync, one after the other; the time of each fdatasync, ascending. Removes the file."""
    data = bytes(APPEND_BYTES)
    taken: list[float] = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(appends):
            os.write(file, data)
            begin = time.perf_counter()
            os.fdatasync(file)
            taken.append(time.perf_counter() - begin)
    finally:
        os.close(file)
        path.unlink()
    return sorted(taken)


def measure(results: Results, folder: Path) -> None:
    """One round, while nothing else of the bench is at work."""
    taken = fdatasync_seconds(folder / "fdatasync")
    results.row(SCENARIO, "p50", "ms").add("disk", percentile(taken, 0.50) * 1000)
    results.row(SCENARIO, "p99", "ms").add("disk", percentile(taken, 0.99) * 1000)


def note_ceiling(results: Results) -> None:
    """Say what no durable broker can pass on this disk, beside what was required and reached."""
    p50, p99 = (results.rows[SCENARIO, part].middle("disk") or 0.0 for part in ("p50", "p99"))
    results.notes.append(
        f"fdatasync after a {APPEND_BYTES}-byte append here: p50 {p50:.3f} ms, p99 {p99:.3f} ms."
    )
    for connections, in_flight in ((1, 1), (1, 5)):
        row = results.rows[title(connections, in_flight), "rate"]
        mine, tansu = row.middle(SUBJECT) or 0.0, row.middle("tansu") or 0.0
        ceiling = in_flight / p50 * 1000
        side = "above" if 2 * tansu > ceiling else "below"
        results.notes.append(
            f"Ceiling at {connections}×{in_flight} (in flight / fdatasync): {ceiling:,.0f} requests/s for any"
            f" broker that answers after the disk; tidelog {mine:,.0f}, {mine / ceiling:.0%} of it;"
            f" 2 × tansu would be {2 * tansu:,.0f}, {side} the ceiling."
        )
