"""The picture of the stats job: a column of panels for each topic, with time to the right.

Owns the drawing, not the numbers. It shows the throughput in records and in bytes (thin lines: partitions),
the size of records, and their lag. A window without records is zero in the rates and a gap in the others.
Imports matplotlib, without a display: import this module only if a picture is drawn.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tidelog.pipeline.jobs.quantities import DURATION, SIZE, Unit, as_duration, unit_of

Rows: TypeAlias = Sequence[Mapping[str, Any]]

MOST_TOPICS = 6


class _Panel(NamedTuple):
    """What one panel shows: its label, with a place for the unit; the units of its axis; its metrics."""

    label: str
    units: tuple[Unit, ...]
    names: tuple[str, ...]


_RATES = (
    _Panel("records/s", (Unit("", 1),), ("records_per_second",)),
    _Panel("{}/s", SIZE, ("bytes_per_second",)),
)
_SPREADS = (
    _Panel("record size ({})", SIZE, ("size_p50", "size_p95", "size_max")),
    _Panel("lag ({})", DURATION, ("lag_p50_ms", "lag_p95_ms", "lag_max_ms")),
)
_WIDTH, _HEIGHT = 8.5, 12.5
# They differ by lightness too: readable in print and to every eye.
_RATE_COLOUR, _PARTITION_COLOUR = "#1f5aa6", "#9aa7b5"
_HOLLOW: Any = {"markerfacecolor": "white", "markersize": 7}
_SPREAD_STYLES = (("p50", "#1f5aa6", "-"), ("p95", "#d9822b", "-"), ("max", "#8a8a8a", ":"))
_MARK_BELOW = 40
_CONCISE: Any = ConciseDateFormatter


def draw(file: Path, topics: Rows, partitions: Rows, window_seconds: int, *, lag_is_seen: bool) -> list[str]:
    """Write the PNG; the topics that are in it, those with the most records first.

    Rows have `topic`, `window_ms` and the stats' metrics, one for each topic and window, or partition and
    window, in the order of windows. Makes the folder if need be.
    """
    shown = largest(topics)
    columns = max(len(shown), 1)
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT), dpi=110, layout="constrained")
    panels = figure.subplots(4, columns, sharex="col", squeeze=False)
    for topic, column in zip(shown, panels.T, strict=False):
        of_topic = [row for row in topics if row["topic"] == topic]
        of_partitions = [row for row in partitions if row["topic"] == topic]
        column[0].set_title(topic, loc="left", fontweight="bold")
        for axes, panel in zip(column[:2], _RATES, strict=True):
            _draw_rate(axes, panel, of_topic, of_partitions, window_seconds)
        for axes, panel in zip(column[2:], _SPREADS, strict=True):
            _draw_spread(axes, panel, of_topic, window_seconds)
        column[3].set_title(
            "when a reader saw the record" if lag_is_seen else "at least, by the order of the log",
            loc="left",
            fontsize="small",
        )
        dates: Any = column[3].xaxis
        dates.set_major_formatter(_CONCISE(dates.get_major_locator()))
    if not shown:
        panels[0][0].set_title("no records", loc="left")
    for axes in panels.flat:
        axes.grid(visible=True, color="#e3e6ea", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    left_out = len({row["topic"] for row in topics}) - len(shown)
    more = f"; {left_out} more topics not shown" if left_out else ""
    figure.suptitle(f"windows of {as_duration(1000 * window_seconds)}, UTC{more}", fontsize="medium")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, format="png")
    return shown


def largest(topics: Rows) -> list[str]:
    """At most MOST_TOPICS names, those with the most records first."""
    records: dict[str, int] = {}
    for row in topics:
        records[row["topic"]] = records.get(row["topic"], 0) + row["records"]
    return sorted(records, key=lambda topic: (-records[topic], topic))[:MOST_TOPICS]


def _draw_rate(axes: Axes, panel: _Panel, topic: Rows, partitions: Rows, window_seconds: int) -> None:
    (name,) = panel.names
    unit = _unit(panel, topic)
    numbers = sorted({row["partition"] for row in partitions})
    for number in numbers if len(numbers) > 1 else ():
        rows = [row for row in partitions if row["partition"] == number]
        times, values = with_gaps(rows, name, window_seconds, 0.0)
        label = "each partition" if number == numbers[0] else None
        axes.plot(times, values / unit.amount, color=_PARTITION_COLOUR, linewidth=0.7, label=label)
    times, values = with_gaps(topic, name, window_seconds, 0.0)
    values = values / unit.amount
    axes.plot(times, values, color=_RATE_COLOUR, linewidth=1.6, marker=_marker(values), label="topic")
    ends = sorted({0, len(times) - 1})
    axes.plot(times[ends], values[ends], "o", color=_RATE_COLOUR, label="partial window", **_HOLLOW)
    _finish(axes, panel, unit)


def _draw_spread(axes: Axes, panel: _Panel, topic: Rows, window_seconds: int) -> None:
    unit = _unit(panel, topic)
    for name, (short, colour, line) in zip(panel.names, _SPREAD_STYLES, strict=True):
        times, values = with_gaps(topic, name, window_seconds, np.nan)
        axes.plot(times, values / unit.amount, line, color=colour, label=short, marker=_marker(values))
    _finish(axes, panel, unit)


def _unit(panel: _Panel, rows: Rows) -> Unit:
    """The unit of the panel's axis: that of its largest number."""
    return unit_of(max((row[name] or 0 for row in rows for name in panel.names), default=0), panel.units)


def _finish(axes: Axes, panel: _Panel, unit: Unit) -> None:
    # If all is zero, an axis of its own choice would be half below it.
    axes.set_ylim(bottom=0, top=None if axes.dataLim.ymax > 0 else 1)
    axes.set_ylabel(panel.label.format(unit.name))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98)}
    axes.legend(ncols=3, frameon=False, fontsize="small", **place)


def with_gaps(
    rows: Rows, name: str, window_seconds: int, empty: float
) -> tuple[npt.NDArray[np.datetime64], npt.NDArray[np.float64]]:
    """Times (UTC) and values of `name`, with `empty` at both ends of every gap between two windows."""
    step = window_seconds * 1000
    starts = np.array([row["window_ms"] for row in rows], np.int64)
    values = np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)
    after = np.flatnonzero(np.diff(starts) > step)
    edges = np.concatenate((starts[after] + step, starts[after + 1] - step))
    places = np.concatenate((after + 1, after + 1))
    times = np.insert(starts, places, edges)
    return times.astype("datetime64[ms]"), np.insert(values, places, empty)


def _marker(values: npt.NDArray[np.float64]) -> str | None:
    """Points where there are few: a window between two gaps has no line."""
    return "." if len(values) < _MARK_BELOW else None
