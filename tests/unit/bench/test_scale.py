"""What the scale scenarios put in, take turns with, and read back is what they say."""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from bench.loads.lag_load import run as probed
from bench.loads.pair_load import alternate
from bench.loads.process import LoadError
from bench.loads.producers_load import StateError, check_seconds, filled, header, run, skewed
from bench.loads.sides import Side
from bench.results import REFERENCE, SUBJECT, Results
from bench.scenarios.idempotence import CASES, note
from bench.scenarios.producers import PIECES
from bench.scenarios.recovery import read_seconds, recovery_report, tail_pieces
from tidelog.broker.storage.producer_table import CACHED_BATCHES


def test_every_producer_has_its_full_window() -> None:
    states, end_offset = filled(3)
    assert [len(entry.batches) for entry in states.entries()] == [CACHED_BATCHES] * 3
    assert max(entry.batches[-1].last_offset for entry in states.entries()) == end_offset - 1


def test_a_check_that_does_not_let_the_next_batch_in_is_not_timed() -> None:
    states, _ = filled(2)
    assert check_seconds(states, [header(1, CACHED_BATCHES)]) > 0
    with pytest.raises(StateError, match="not to be appended"):
        check_seconds(states, [header(1, CACHED_BATCHES + 1)])


def test_populations_have_as_many_rounds_each(tmp_path: Path) -> None:
    numbers = run(tmp_path, (2, 5))
    for load in ("uniform", "skewed", "dictionary"):
        assert len(numbers[f"{load}_us_2"]) == len(numbers[f"{load}_us_5"]) > 1
    assert numbers["snapshot_bytes"] > 0


def test_the_loop_is_probed_while_every_piece_of_upkeep_runs(tmp_path: Path) -> None:
    numbers = asyncio.run(probed(tmp_path, 1_500))
    assert set(numbers) == {f"{key}{unit}" for key, _ in PIECES for unit in ("_ms", "_cpu_ms")}
    assert all(value > 0 for value in numbers.values())


def test_a_skewed_load_has_few_busy_producers_and_leaves_none_out() -> None:
    chooser = random.Random(3)
    counts = Counter(chosen for _ in range(40) for chosen in skewed(chooser, 100))
    assert set(counts) == set(range(100))
    busiest = sum(count for _, count in counts.most_common(10))
    assert 0.4 < busiest / counts.total() < 0.6


def test_each_side_takes_as_many_turns_and_goes_first_as_often() -> None:
    order: list[str] = []
    sides = {
        name: Side(lambda name=name: order.append(name), lambda: None)  # type: ignore[misc]
        for name in ("idempotent", "plain")
    }
    numbers = alternate(sides, os.getpid(), 4)
    assert [len(numbers[f"{name}_s"]) for name in sides] == [4, 4]
    assert [len(numbers[f"{name}_cpu_s"]) for name in sides] == [4, 4]
    # The first two are no turns: they connect and warm up.
    assert order[2:] == ["plain", "idempotent", "idempotent", "plain"] * 2


def test_a_turn_becomes_a_rate_and_a_price_on_each_side() -> None:
    case = next(case for case in CASES if case.way == "raw" and case.records_a_batch > 1)
    sides = {
        "idempotent_s": [0.4, 0.6],
        "idempotent_cpu_s": [0.1, 0.3],
        "plain_s": [0.25, 0.25],
        "plain_cpu_s": [0.1, 0.1],
    }
    results = Results((REFERENCE,))
    note(results, "tidelog", case, sides | {"idempotent_in_flight": 5, "plain_in_flight": 5})
    rate, price = results.rows.values()
    assert rate.ratio(REFERENCE) == 0.5
    assert rate.verdict is False
    batches = case.records / case.records_a_batch
    assert price.middle(SUBJECT) == pytest.approx(0.2e6 / batches)
    assert "0.500 to 0.500" in results.notes[0]


def test_the_tail_is_the_end_of_the_last_files() -> None:
    first, second = Path("1.log"), Path("2.log")
    sizes = [(first, 100), (second, 40)]
    assert tail_pieces(sizes, 30) == [(second, 10, 30)]
    assert tail_pieces(sizes, 60) == [(second, 0, 40), (first, 80, 20)]
    assert tail_pieces(sizes, 0) == []


def test_pieces_are_read_to_their_end_even_where_the_file_is_shorter(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(10))
    assert read_seconds([(path, 4, 6), (path, 0, 99)]) > 0


def test_what_a_broker_recovered_is_found_among_its_events() -> None:
    lines = ["a warning", '{"event": "broker_started"}', '{"event": "log_recovered", "scanned_bytes": 7}']
    assert recovery_report(lines)["scanned_bytes"] == 7
    with pytest.raises(LoadError, match="log_recovered"):
        recovery_report(lines[:2])
