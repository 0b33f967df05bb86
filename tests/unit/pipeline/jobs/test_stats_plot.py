"""The stats' picture: plain units, gaps as gaps, partial windows marked, and a picture of whatever exists."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tidelog.pipeline.jobs.stats_plot import MOST_TOPICS, draw, largest, with_gaps
from tidelog.pipeline.jobs.stats_sketches import METRICS

PNG = b"\x89PNG\r\n\x1a\n"


def rows(topic: str, *minutes: int, records: int = 1) -> list[dict[str, Any]]:
    numbers = dict.fromkeys(METRICS, 5) | {"records": records}
    return [numbers | {"topic": topic, "partition": 0, "window_ms": minute * 60_000} for minute in minutes]


def test_a_gap_between_windows_is_filled_at_both_ends() -> None:
    times, values = with_gaps(rows("t", 1, 2, 6, 8), "size_max", 60, 0.0)
    assert times.astype("datetime64[m]").astype(int).tolist() == [1, 2, 3, 5, 6, 7, 7, 8]
    assert values.tolist() == [5, 5, 0, 0, 5, 0, 0, 5]


def test_a_number_that_is_none_is_a_gap_too() -> None:
    _, values = with_gaps([{"window_ms": 0, "lag_max_ms": None}], "lag_max_ms", 60, 0.0)
    assert np.isnan(values).tolist() == [True]
    assert len(with_gaps([], "lag_max_ms", 60, 0.0)[0]) == 0


def test_the_topics_with_the_most_records_are_shown_first() -> None:
    topics = [
        row for number in range(MOST_TOPICS + 2) for row in rows(f"t{number}", 1, 3, records=number + 1)
    ]
    assert largest(topics) == [f"t{number}" for number in range(MOST_TOPICS + 1, 1, -1)]


def test_unknown_lags_leave_their_panel_empty(tmp_path: Path) -> None:
    unknown = [row | dict.fromkeys(("lag_p50_ms", "lag_p95_ms", "lag_max_ms")) for row in rows("t", 1, 2)]
    assert draw(tmp_path / "plot.png", unknown, unknown, 60, lag_is_seen=True) == ["t"]


def test_without_records_there_is_a_picture_all_the_same(tmp_path: Path) -> None:
    assert draw(tmp_path / "new" / "plot.png", [], [], 60, lag_is_seen=False) == []
    assert (tmp_path / "new" / "plot.png").read_bytes().startswith(PNG)


def test_axes_have_plain_units_a_legend_and_marks_for_partial_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    many = [
        row | {"records_per_second": 0.05, "bytes_per_second": 2e6, "lag_max_ms": 27_237_600_000}
        for row in rows("t", 1, 2, 3)
    ]
    draw(
        tmp_path / "plot.png", many, [*many, *(row | {"partition": 1} for row in many)], 60, lag_is_seen=False
    )
    panels = figures[0].axes
    assert [each.get_ylabel() for each in panels] == ["records/s", "MB/s", "record size (B)", "lag (days)"]
    assert panels[3].get_ylim()[1] < 400
    format_tick = panels[0].yaxis.get_major_formatter()
    assert (format_tick(0.05, 0), format_tick(250_000.0, 0)) == ("0.05", "250,000")
    rates, sizes = ([text.get_text() for text in each.get_legend().get_texts()] for each in panels[1:3])
    assert rates == ["each partition", "topic", "partial window"]
    assert sizes == ["p50", "p95", "max"]
    partial = next(line for line in panels[0].lines if line.get_label() == "partial window")
    assert np.asarray(partial.get_xdata()).astype("datetime64[m]").astype(int).tolist() == [1, 3]
