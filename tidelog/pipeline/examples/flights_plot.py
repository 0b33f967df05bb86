"""The picture of the flights example: how late departures are, by day and by hour of the day.

Owns the drawing; takes rows of `delays.hourly_delays`. Imports matplotlib, without a display.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from matplotlib.figure import Figure

NEW_YORK = ZoneInfo("America/New_York")
_COLOURS = ("#1f5aa6", "#d9822b", "#4c9a5d", "#8a5aa8")


def draw_delays(rows: Iterable[Mapping[str, Any]], file: Path) -> None:
    """Write the PNG. Rows have hour (with its time zone), origin, flights and mean_delay_minutes."""
    table = list(rows)
    figure = Figure(figsize=(9, 7), dpi=110, layout="constrained")
    days, hours = figure.subplots(2, 1)
    for colour, origin in zip(_COLOURS, sorted({row["origin"] for row in table}), strict=False):
        of_origin = [row for row in table if row["origin"] == origin]
        by_day = mean_delays(of_origin, lambda hour: hour.date())
        days.plot(list(by_day), list(by_day.values()), color=colour, linewidth=0.9, label=origin)
        by_hour = mean_delays(of_origin, lambda hour: hour.hour)
        hours.plot(list(by_hour), list(by_hour.values()), color=colour, marker="o", label=origin)
    days.set_title("Mean delay of departures from New York City by day", loc="left")
    hours.set_title("By the hour of the day for which they were scheduled", loc="left")
    hours.set_xlabel("hour in New York")
    hours.set_xticks(range(0, 25, 3))
    for axes in (days, hours):
        axes.set_ylabel("minutes")
        axes.grid(visible=True, color="#e3e6ea", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    if table:
        days.legend(frameon=False, ncols=len(_COLOURS))
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, format="png")


def mean_delays(rows: Iterable[Mapping[str, Any]], group: Callable[[datetime], Any]) -> dict[Any, float]:
    """Mean minutes by group of the local hour, each hour weighted by its flights, in the order of groups."""
    minutes: dict[Any, float] = defaultdict(float)
    flights: dict[Any, int] = defaultdict(int)
    for row in rows:
        key = group(row["hour"].astimezone(NEW_YORK))
        minutes[key] += row["mean_delay_minutes"] * row["flights"]
        flights[key] += row["flights"]
    return {key: minutes[key] / flights[key] for key in sorted(flights)}
