"""A micro-batch covers what is new, within its limit, and what is gone is never passed over in silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.offsets import OffsetRange, OffsetsLostError, Place, to_json
from tidelog.pipeline.source.micro_batches import (
    batch_ranges,
    forget_replaced,
    from_json,
    next_offsets,
    offsets_behind_latest,
    to_checkpoint,
    topic_ids_in,
    waiting_offsets,
)

A, B = Place("a", 0), Place("b", 3)
OFFSETS = st.dictionaries(
    st.builds(Place, st.sampled_from(["a", "b"]), st.integers(0, 12)), st.integers(0, 10_000), min_size=1
)


@given(OFFSETS)
def test_offsets_survive_the_checkpoint(offsets: dict[Place, int]) -> None:
    assert from_json(to_json(offsets)) == offsets


def test_a_checkpoint_names_topics_by_their_ids_and_one_without_ids_is_read_too() -> None:
    offsets = {A: 5, B: 7}
    saved = to_checkpoint(offsets, {"a": "id-a"})
    assert (from_json(saved), topic_ids_in(saved)) == (offsets, {"a": "id-a"})
    assert (from_json(to_json(offsets)), topic_ids_in(to_json(offsets))) == (offsets, {})


def test_a_topic_created_again_is_a_loss_and_begins_anew() -> None:
    offsets, before, now = {A: 5, B: 7}, {"a": "one", "b": "kept"}, {"a": "two", "b": "kept", "c": "new"}
    with pytest.raises(OffsetsLostError, match="topic a was deleted and created again"):
        forget_replaced(offsets, before, now, None)
    losses: list[str] = []
    assert forget_replaced(offsets, before, now, losses) == {B: 7}
    assert len(losses) == 1
    for known, present in (({}, now), (before, {}), (before, {"b": "kept"})):
        assert forget_replaced(offsets, known, present, None) == offsets


@given(OFFSETS, st.integers(1, 5000))
def test_batches_within_the_limit_cover_the_log_once_and_end(ends: dict[Place, int], limit: int) -> None:
    bounds = {place: (0, end) for place, end in ends.items()}
    position = dict.fromkeys(ends, 0)
    while position != ends:
        following = next_offsets(position, bounds, limit, None)
        size = sum(each.size for each in batch_ranges(position, following, bounds, None))
        assert size == sum(following.values()) - sum(position.values())
        assert 0 < size <= limit + len(ends)
        assert all(position[place] <= following[place] <= ends[place] for place in ends)
        position = following


def test_a_partition_that_appears_is_read_from_its_beginning() -> None:
    bounds = {A: (0, 5), B: (0, 7)}
    end = next_offsets({A: 5}, bounds, None, None)
    assert batch_ranges({A: 5}, end, bounds, None) == [OffsetRange("b", 3, 0, 7)]


@pytest.mark.parametrize(
    ("start", "end", "bounds", "left", "reason"),
    [
        ({A: 2}, {A: 9}, {A: (5, 9)}, [OffsetRange("a", 0, 5, 9)], "offsets 2 to 4 are gone"),
        ({A: 2}, {A: 4}, {A: (5, 9)}, [], "offsets 2 to 3 are gone"),
        ({A: 2}, {A: 9}, {A: (0, 6)}, [OffsetRange("a", 0, 2, 6)], "a-0 ends at offset 6"),
        ({A: 2}, {A: 9}, {}, [], "a-0 is gone"),
        ({}, {A: 9}, {A: (3, 9)}, [OffsetRange("a", 0, 3, 9)], "offsets 0 to 2 are gone"),
    ],
)
def test_what_is_gone_is_an_error_or_named(
    start: dict[Place, int],
    end: dict[Place, int],
    bounds: dict[Place, tuple[int, int]],
    left: list[OffsetRange],
    reason: str,
) -> None:
    with pytest.raises(OffsetsLostError, match=reason):
        batch_ranges(start, end, bounds, None)
    losses: list[str] = []
    assert batch_ranges(start, end, bounds, losses) == left
    assert len(losses) == 1
    assert reason in losses[0]


def test_a_log_that_ends_before_the_stream_is_an_error_or_named() -> None:
    with pytest.raises(OffsetsLostError, match="ends at offset 3"):
        next_offsets({A: 8}, {A: (0, 3)}, None, None)
    losses: list[str] = []
    assert next_offsets({A: 8, B: 1}, {A: (0, 3)}, 2, losses) == {A: 3}
    assert len(losses) == 2


def test_what_waits_is_counted_from_where_the_stream_is() -> None:
    assert waiting_offsets({A: 5}, {A: (0, 9), B: (2, 7)}) == 4 + 5
    assert waiting_offsets({A: 5, B: 9}, {A: (7, 9), B: (2, 7)}) == 2


def test_how_far_a_stream_is_behind_has_the_names_of_spark_s_kafka_source() -> None:
    source = {"endOffset": '{"a": {"0": 5, "1": 7}, "a:id": {}}', "latestOffset": '{"a": {"0": 9, "1": 7}}'}
    assert offsets_behind_latest({"sources": [source]}) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 4,
        "avgOffsetsBehindLatest": 2.0,
    }
    for unknown in ({"latestOffset": "null"}, {"endOffset": ""}, {"endOffset": None}):
        assert offsets_behind_latest({"sources": [source | unknown]}) == {}
    assert offsets_behind_latest(None) == {}
