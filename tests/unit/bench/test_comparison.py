"""Servers are compared turn by turn; one that cannot be had is absent, with the reason, and ends nothing."""

from pathlib import Path

import pytest

from bench.comparison import Case, Comparison, Run, speed
from bench.targets.process import Target, TargetError
from bench.targets.tidelog import Tidelog


class Absent(Target):
    name = "absent"

    def command(self) -> list[str]:
        raise TargetError("it is nowhere")


class Ending(Target):
    name = "ending"

    def command(self) -> list[str]:
        return ["sh", "-c", "echo no port today; exit 3"]


CASE = Case("few", "raw_load", {"connections": 2, "partitions": 3, "requests": 20}, speed(), is_timed=False)


def test_a_server_that_is_absent_is_noted_and_the_others_are_measured(tmp_path: Path) -> None:
    comparison = Comparison("title", (Tidelog, Absent, Ending), (CASE,))
    results = comparison(Run(tmp_path, rounds=1, seconds=0.01))
    assert [row.measure for row in results.rows.values()] == ["rate", "server CPU", "p99"]
    for row in results.rows.values():
        assert [len(row.values["tidelog"]), len(row.others["tidelog"])] == [1, 1]
        assert row.values.keys() == {"tidelog"}
    assert results.notes == [
        "absent is absent: it is nowhere",
        "ending is absent: ending ended with exit code 3; it printed:\nno port today",
    ]


def test_nothing_is_compared_without_tidelog(tmp_path: Path) -> None:
    class Missing(Absent):
        name = "tidelog"

    with pytest.raises(TargetError, match="nowhere"):
        Comparison("title", (Missing, Ending), (CASE,))(Run(tmp_path, rounds=1, seconds=0.01))
