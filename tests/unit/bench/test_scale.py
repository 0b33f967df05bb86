"""What the scale scenarios put in, take turns with, and read back is what they say."""

import random
from collections import Counter
from pathlib import Path

import pytest

from bench.loads import producers_load
from bench.loads.producers_load import StateError, check_seconds, filled, header, run, skewed
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


def test_populations_have_as_many_rounds_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_load, "_CHECKS", 500)
    numbers = run(str(tmp_path), (2, 5))
    for load in ("uniform", "skewed"):
        assert len(numbers[f"{load}_us_2"]) == len(numbers[f"{load}_us_5"]) > 1
    assert numbers["snapshot_bytes"] > 0


def test_a_skewed_load_has_few_busy_producers_and_leaves_none_out() -> None:
    chooser = random.Random(3)
    counts = Counter(chosen for _ in range(40) for chosen in skewed(chooser, 100))
    assert set(counts) == set(range(100))
    busiest = sum(count for _, count in counts.most_common(10))
    assert 0.4 < busiest / counts.total() < 0.6
