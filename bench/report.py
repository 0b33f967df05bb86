"""Results for people (a table) and for programs (a JSON file).

Owns only how results look.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.results import SUBJECT, Results, Row

RATIO = "{:.2f}".format
_VERDICTS = {None: "", True: "[green]yes[/]", False: "[bold red]NOT HELD[/]"}


def show(results: Results, console: Console) -> None:
    """The table, the notes, and one line that says what was not held."""
    table = Table(title=results.title)
    for name in ("scenario", "measure", "unit"):
        table.add_column(name, no_wrap=True)
    for name in (SUBJECT, *results.peers, *(f"× {name}" for name in results.peers)):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limit")
    table.add_column("others' CPU", justify="right")
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
    limits = {name: row.limit(name) for name in (SUBJECT, *peers) if row.limit(name)}
    others = f"{max(map(row.others_share, row.values)):.0%}" if row.others else ""
    return [
        row.measure,
        row.unit,
        *(middle_and_range(row.middle(name), row.range(name)) for name in (SUBJECT, *peers)),
        *(middle_and_range(row.ratio(name), row.ratio_range(name), RATIO) for name in peers),
        "\n".join(f"{name}: {limit}" for name, limit in limits.items()),
        others if row.is_quiet else f"[bold red]{others} busy[/]",
        "\n".join(requirement.describe(row.unit) for requirement in row.requirements),
        _VERDICTS[row.verdict],
    ]


def middle_and_range(
    middle: float | None, ends: tuple[float, float] | None, show: Callable[[float], str] | None = None
) -> str:
    """As "median (least to largest)", each as `show` shows it, by default as a `number`."""
    if middle is None or ends is None:
        return "–"
    shown, least, largest = map(show or number, (middle, *ends))
    return shown if least == largest else f"{shown} ({least} to {largest})"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write(tables: Mapping[str, Results], path: Path, about: Mapping[str, object]) -> None:
    """All values of all rounds of all tables by the scenario's name, as JSON, and what they are `about`.

    Tables of other names stay in the file.
    """
    about = {"measured_at": datetime.now(UTC).isoformat(timespec="seconds"), **about}
    before = json.loads(path.read_text())["tables"] if path.exists() else {}
    content = {
        "tables": before
        | {
            name: {
                **about,
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
