"""Rows of text as lines with aligned columns, for people and for `awk`.

Owns the layout: two spaces between columns, numbers to the right, no line longer than the terminal if the
last column can be wrapped. Pure except for the terminal's width.
"""

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Container, Sequence
from datetime import UTC, datetime

_GAP = "  "
_NARROWEST_WRAP = 30
_LONGEST_VALUE = 40


def counted(number: int, noun: str) -> str:
    """The number with its noun, whose plural ends with s: "1 record", "2,000 records"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int | None = None,
    *,
    numbers: Container[str] = (),
) -> list[str]:
    """A heading and one line for each row; `width` wraps the last column, None does not. A cell that
    is None shows `-`.

    `numbers` names columns with numbers written as text.
    """
    texts = [tuple("-" if cell is None else str(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    is_number = [
        name in numbers or (bool(rows) and all(isinstance(row[index], int) for row in rows))
        for index, name in enumerate(columns)
    ]
    before_last = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    last_width = max(width - before_last, _NARROWEST_WRAP) if width else widths[-1]
    lines = []
    for cells in (tuple(columns), *texts):
        aligned = [
            cell.rjust(size) if number else cell.ljust(size)
            for cell, size, number in zip(cells[:-1], widths[:-1], is_number[:-1], strict=True)
        ]
        last = cells[-1].rjust(widths[-1]) if is_number[-1] else cells[-1]
        wrapped = textwrap.wrap(last, last_width, drop_whitespace=True) if len(last) > last_width else [last]
        lines.append(_GAP.join((*aligned, wrapped[0])).rstrip())
        lines += [" " * before_last + more for more in wrapped[1:]]
    return lines


def shortened(text: str) -> str:
    """One long value does not make the columns of all rows wide. JSON has the whole value."""
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def as_objects(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[dict[str, object]]:
    """The rows for JSON; fields have the columns' names in lower case."""
    names = [re.sub(r"\W+", "_", column.lower()).strip("_") for column in columns]
    return [dict(zip(names, row, strict=True)) for row in rows]


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Container[str] = (),
    as_json: bool = False,
) -> None:
    """Print it, wrapped to the terminal where there is one; or each row as one JSON object per line."""
    if as_json:
        for each in as_objects(columns, rows):
            print(json.dumps(each))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join(format_table(columns, rows, width, numbers=numbers)))


def format_timestamp(timestamp_ms: int) -> str:
    """Milliseconds since the epoch as UTC; `-` for none (-1), the bare number where no year holds it."""
    if timestamp_ms < 0:
        return "-" if timestamp_ms == -1 else str(timestamp_ms)
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
