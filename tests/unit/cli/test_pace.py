"""How fast a command may go, and what it shows meanwhile."""

import io
import sys

import pytest

from tidelog.cli import pace
from tidelog.cli.pace import Pace, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pace_holds_over_time_and_makes_up_for_delays() -> None:
    it = Pace(10)
    assert it.delay(0, 100.0) == 0
    assert it.delay(1, 100.0) == pytest.approx(0.1)
    assert it.delay(10, 100.5) == pytest.approx(0.5)
    assert it.delay(11, 103.0) == 0
    assert Pace(None).delay(10**9, 0.0) == 0


def test_progress_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(pace, "_SHOWN_EVERY_S", 0.0)
    progress = Progress("sent", 4_000)
    progress.show(1_000)
    assert terminal.getvalue().startswith("\r\x1b[Ksent 1,000 of 4,000 (25 %), ")
    assert "\n" not in terminal.getvalue()
    progress.end()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(("stream", "wanted"), [(io.StringIO, True), (Terminal, False)])
def test_nobody_who_did_not_ask_or_cannot_look_is_shown_anything(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], wanted: bool
) -> None:
    shown = stream()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(pace, "_SHOWN_EVERY_S", 0.0)
    progress = Progress("sent", wanted=wanted)
    progress.show(1)
    progress.end()
    assert shown.getvalue() == ""
