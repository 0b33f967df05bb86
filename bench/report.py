"""Results for people (a table) and for programs (a JSON file).

Owns only how results look.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.results import SUBJECT, Results, Row

_VERDICTS = {None: "", True: "[green]yes[/]", False: "[bold red]NOT HELD[/]"}


def show(results: Results, console: Console) -> None:
    """The table, the notes, and one line that says what was not held."""
    table = Table(title=results.title)
    for name in ("scenario", "measure", "unit"):
        table.add_column(name, no_wrap=True)
    for name in (SUBJECT, *results.peers, *(f"× {name}" for name in results.peers), "others' CPU"):
        table.add_column(name, justify="right")
    table.add_column("required", no_wrap=True)
    table.add_column("held")
    scenario = ""
    rows = [row for row in results.rows.values() if row.values]
    for row in rows:
        if row.scenario != scenario:
            table.add_section()
        table.add_row("" if row.scenario == scenario else row.scenario, *_cells(row, results.peers))
        scenario = row.scenario
    console.print(table)
    busy = list(dict.fromkeys(row.scenario for row in rows if not row.is_quiet))
    if busy:
        results.note(f"The machine was too busy for reliable numbers: {'; '.join(busy)}.")
    for note in results.notes:
        console.print(note, highlight=False)
    missed = [f"{row.scenario}, {row.measure}" for row in rows if row.verdict is False]
    if missed:
        console.print(f"[bold red]NOT HELD[/]: {'; '.join(missed)}", highlight=False)
    elif any(row.verdict for row in rows):
        console.print("[bold green]All that is required is held.[/]")


def _cells(row: Row, peers: Sequence[str]) -> list[str]:
    ratios = [row.ratio(name) for name in peers]
    others = f"{max(map(row.busy, row.values)):.0%}" if row.others else ""
    return [
        row.measure,
        row.unit,
        *(number(row.middle(name)) for name in (SUBJECT, *peers)),
        *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
        others if row.is_quiet else f"[bold red]{others} busy[/]",
        "\n".join(requirement.describe(row.unit) for requirement in row.requirements),
        _VERDICTS[row.verdict],
    ]


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write(tables: Mapping[str, Results], path: Path, about: Mapping[str, object]) -> None:
    """All values of all rounds of all tables by the scenario's name, as JSON, and what they are `about`."""
    content = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
        "tables": {
            name: {
                "title": results.title,
                "notes": results.notes,
                "rows": [
                    {
                        **asdict(row),
                        "medians": {target: row.middle(target) for target in row.values},
                        "ratios": {peer: row.ratio(peer) for peer in results.peers if peer in row.values},
                        "is_quiet": row.is_quiet,
                        "held": row.verdict,
                    }
                    for row in results.rows.values()
                ],
            }
            for name, results in tables.items()
        },
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
