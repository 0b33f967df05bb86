"""What the bench of several processes computes for more cores."""

from bench.results import SUBJECT, Results
from bench.scenarios import processes


def test_more_cores_answer_as_many_times_more_as_one_of_several_processes_is_as_cheap_as_one_alone() -> None:
    results = Results(("4 processes",), "One process, two and four")
    row = results.row("requests of 1 × 100 B, 1×5, 1 program", "server CPU", "µs/request")
    for one, four in ((100.0, 100.0), (100.0, 125.0), (80.0, 200.0)):
        row.add(SUBJECT, one)
        row.add("4 processes", four)
    processes._note_cores(results, 1)
    (note,) = results.notes
    assert "takes 1.25 × the processor time" in note
    assert note.endswith("answer 8 / 1.25 = 6.4 × as many (0.80 N).")


def test_without_four_processes_nothing_is_computed() -> None:
    results = Results((), "One process, two and four")
    results.row("requests of 1 × 100 B, 1×5, 1 program", "server CPU", "µs/request").add(SUBJECT, 100.0)
    processes._note_cores(results, 1)
    assert not results.notes
