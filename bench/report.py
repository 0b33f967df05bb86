"""Results for people (a table) and for programs (a JSON file).

Owns only how results look.
"""

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.results import SUBJECT, Results, Row


def show(results: Results, console: Console) -> None:
    """The table, the notes, and one line that says what was not held."""
    table = Table(title=results.title)
    table.add_column("scenario", no_wrap=True)
    table.add_column("measure", no_wrap=True)
    table.add_column("unit")
    for name in (SUBJECT, *results.peers):
        table.add_column(name, justify="right")
    for name in results.peers:
        table.add_column(f"× {name}", justify="right")
    table.add_column("required", no_wrap=True)
    table.add_column("held")
    scenario = ""
    for row in results.rows.values():
        if row.middle(SUBJECT) is None:
            continue
        if row.scenario != scenario:
            table.add_section()
        table.add_row("" if row.scenario == scenario else row.scenario, *_cells(row, results.peers))
        scenario = row.scenario
    console.print(table)
    for note in results.notes:
        console.print(note, highlight=False)
    missed = [f"{row.scenario}, {row.measure}" for row in results.rows.values() if row.verdict is False]
    if missed:
        console.print(f"[bold red]NOT HELD[/]: {'; '.join(missed)}", highlight=False)
    elif any(row.verdict for row in results.rows.values()):
        console.print("[bold green]All that is required is held.[/]")


def _cells(row: Row, peers: Sequence[str]) -> list[str]:
    ratios = [row.ratio(name) for name in peers]
    verdict = {None: "", True: "[green]yes[/]", False: "[bold red]NOT HELD[/]"}[row.verdict]
    return [
        row.measure,
        row.unit,
        *(_number(row.middle(name)) for name in (SUBJECT, *peers)),
        *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
        "\n".join(requirement.describe(row.unit) for requirement in row.requirements),
        verdict,
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write(tables: Sequence[Results], path: Path, seconds: float) -> None:
    """All values of all rounds of all tables, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "python": platform.python_version(),
        "platform": sys.platform,
        "cpus": os.cpu_count(),
        "notes": [note for results in tables for note in results.notes],
        "rows": [
            {
                **asdict(row),
                "medians": {name: row.middle(name) for name in row.values},
                "ratios": {name: row.ratio(name) for name in results.peers},
                "held": row.verdict,
            }
            for results in tables
            for row in results.rows.values()
        ],
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
