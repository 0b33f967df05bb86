"""Servers are compared turn by turn; one that cannot be had is absent, with the reason, and ends nothing."""

from pathlib import Path

import pytest

from bench.comparison import Case, Comparison, Run, is_warm, new_topic, speed
from bench.loads.process import run_load
from bench.loads.share_load import in_flight
from bench.results import Results
from bench.targets.process import Server, Target, TargetError
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
    rate, *others = results.rows.values()
    assert len(rate.busy["tidelog"]) == 1
    assert not any(row.busy for row in others)
    # A busy machine may keep the one that is measured from being warm, which is noted too.
    assert [note for note in results.notes if " is absent" in note] == [
        "absent is absent: it is nowhere",
        "ending is absent: ending ended with exit code 3; it printed:\nno port today",
    ]


def test_nothing_is_compared_without_tidelog(tmp_path: Path) -> None:
    class Missing(Absent):
        name = "tidelog"

    with pytest.raises(TargetError, match="nowhere"):
        Comparison("title", (Missing, Ending), (CASE,))(Run(tmp_path, rounds=1, seconds=0.01))


def test_a_server_is_warm_when_three_turns_in_a_row_take_nearly_the_same() -> None:
    assert not is_warm([1.0, 1.0])
    assert not is_warm([3.0, 1.0, 1.06])
    assert is_warm([3.0, 1.0, 1.05, 1.02])


FILL = {"requests": 400, "records_per_batch": 10}
LOADS = (
    Case("batches", "raw_producer", {"records_per_batch": 10, "value_bytes": 100}, speed()),
    Case("fetches", "raw_consumer", {}, speed(), FILL),
    Case("share group", "share_load", {"members": 3}, speed()[:2], {**FILL, "value_bytes": 99}),
    Case("share group, one by one", "share_load", {"members": 3, "one_by_one": True}, speed()[:2], FILL),
    Case("share group, from send to delivery", "share_load", {"rate": 100}, speed()),
)


def test_loads_over_sockets_are_answered_and_counted(tmp_path: Path) -> None:
    results = Comparison("title", (Tidelog,), LOADS)(
        Run(tmp_path, rounds=1, seconds=0.5, most_warm_up_turns=1)
    )
    rates = [row for row in results.rows.values() if row.measure == "rate"]
    assert [row.scenario for row in rates] == [case.title for case in LOADS]
    assert all(rate > 0 for row in rates for rate in row.values["tidelog"])


def test_who_cannot_be_measured_afterwards_is_noted(tmp_path: Path) -> None:
    class Other(Tidelog):
        name = "other"

    def measured(results: Results, server: Server, run: Run) -> None:
        if server.name == "other":
            raise TargetError("its memory cannot be read")

    results = Comparison("title", (Tidelog, Other), (), measured)(Run(tmp_path, rounds=1, seconds=0.01))
    assert results.notes == ["other is absent from what follows: its memory cannot be read"]


def test_as_many_records_as_wanted_are_in_flight(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as server, new_topic(server, 3) as topic:
        run_load(server, "raw_load", topic=topic, partitions=3, requests=4, records_per_batch=10)
        with in_flight(server.port, topic, partitions=3, records=40) as records:
            assert records == 120
