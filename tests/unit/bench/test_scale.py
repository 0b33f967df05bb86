"""What the scale scenarios put in, take turns with, and read back is what they say."""

import random
from collections import Counter
from pathlib import Path

import pytest

from bench.loads.process import LoadError
from bench.loads.producers_load import StateError, check_seconds, filled, header, run, skewed
from bench.results import REFERENCE, SUBJECT
from bench.scenarios.idempotence import turns
from bench.scenarios.recovery import read_seconds, recovery_report, tail_pieces
from broker.storage.producer_table import CACHED_BATCHES


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


def test_a_skewed_load_has_few_busy_producers_and_leaves_none_out() -> None:
    chooser = random.Random(3)
    counts = Counter(chosen for _ in range(40) for chosen in skewed(chooser, 100))
    assert set(counts) == set(range(100))
    busiest = sum(count for _, count in counts.most_common(10))
    assert 0.4 < busiest / counts.total() < 0.6


def test_each_goes_first_as_often_as_second() -> None:
    pairs = turns(4)
    assert [first for first, _ in pairs] == [REFERENCE, SUBJECT] * 2
    assert all(set(pair) == {SUBJECT, REFERENCE} for pair in pairs)


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
