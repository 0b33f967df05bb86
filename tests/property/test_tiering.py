"""What is in remote storage follows a model, whatever is copied, deleted and lost, and whoever leads."""

from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.remote_log.test_object_store import TOPIC
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.tiering.plan import agreed_end, may_be_copied, start_after_retention
from tidelog.remote_log.manifest import CopiedSegment, Manifest, decode, encode, segment_name

MS = 1_000


class Closed(NamedTuple):
    """A segment of a log: one record per offset, of the same size, at a time that is its offset."""

    base: int
    end: int


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Closed], list[tuple[int, int]]]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    segments, end = [], 0
    for size in sizes:
        segments.append(Closed(end, end + size))
        end += size
    starts = sorted(draw(st.sets(st.integers(1, end), max_size=3)) | {0})
    epochs = sorted(draw(st.sets(st.integers(0, 9), min_size=len(starts), max_size=len(starts))))
    return segments, list(zip(epochs, starts, strict=True))


def known_from(epochs: list[tuple[int, int]], begin: int) -> list[tuple[int, int]]:
    """The epochs that a log knows which begins at `begin`: the first of them from there on."""
    number = max(number for number, (_, first) in enumerate(epochs) if first <= begin)
    return [(epochs[number][0], begin), *epochs[number + 1 :]]


def copied(each: Closed) -> CopiedSegment:
    size = each.end - each.base
    latest = each.end - 1
    name = segment_name(each.base, 0, UUID(int=each.base))
    return CopiedSegment(name, each.base, each.end, size, 0, (0, 0, 0), 0, latest, latest, latest)


def manifest_of(log: tuple[list[Closed], list[tuple[int, int]]], count: int) -> Manifest:
    segments, epochs = log
    manifest = Manifest(0, "t", TOPIC, 0, 0, 0, 0)
    for each in segments[:count]:
        manifest = manifest.with_copied(copied(each), epochs)
    return manifest


@given(logs(), st.data())
def test_the_manifest_holds_what_was_copied_and_not_deleted(log: Any, data: st.DataObject) -> None:
    segments, epochs = log
    manifest = Manifest(0, "t", TOPIC, 0, 0, 0, 0)
    start = 0
    for each in segments:
        # A later leader's log may begin later than the manifest, and know no older epochs.
        begin = data.draw(st.integers(0, each.base))
        manifest = manifest.with_copied(copied(each), known_from(epochs, begin))
        if data.draw(st.booleans()):
            start = max(start, data.draw(st.integers(0, each.end)))
            manifest = manifest.starting_at(start)
        assert decode(encode(manifest)) == manifest
        assert (manifest.start_offset, manifest.end_offset) == (start, each.end)
        held = {offset for s in manifest.segments for offset in range(s.base_offset, s.end_offset)}
        assert set(range(start, each.end)) <= held
        assert all(s.end_offset > start for s in manifest.segments)
        assert list(manifest.epochs) == [e for e in epochs if e[1] < each.end]


@given(
    logs(),
    st.integers(0, 12),
    st.integers(-1, 70),
    st.integers(-1, 70),
    st.integers(0, 20),
    st.integers(0, 90),
)
def test_retention_deletes_the_oldest_segments_that_are_too_old_or_too_many(
    log: Any, count: int, retention_ms: int, retention_bytes: int, newer_bytes: int, now_ms: int
) -> None:
    manifest = manifest_of(log, count)
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
    start = start_after_retention(manifest, config, newer_bytes, now_ms)
    left = manifest.starting_at(start)
    assert start in {0, *(each.end_offset for each in manifest.segments)}
    gone = manifest.segments[: len(manifest.segments) - len(left.segments)]
    for each in gone:
        after = manifest.starting_at(each.base_offset).size_bytes + newer_bytes
        is_old = retention_ms >= 0 and each.max_timestamp < now_ms - retention_ms
        assert is_old or 0 <= retention_bytes <= after - each.size_bytes
    if left.segments:
        oldest = left.segments[0]
        assert retention_ms < 0 or oldest.max_timestamp >= now_ms - retention_ms
        assert retention_bytes < 0 or left.size_bytes + newer_bytes - retention_bytes < oldest.size_bytes
    kept = replace(config, cleanup_policy=())
    assert start_after_retention(manifest, kept, newer_bytes, now_ms) == manifest.start_offset


@given(logs(), st.integers(-1, 70), st.integers(-1, 70), st.integers(0, 20), st.integers(0, 90))
def test_a_segment_is_copied_by_the_first_of_two_lags(
    log: Any, lag_ms: int, lag_bytes: int, newer_bytes: int, now_ms: int
) -> None:
    segment = copied(log[0][0])
    limits = LogConfig(local_retention_ms=60, local_retention_bytes=50, remote_storage_enable=True)
    config = replace(limits, remote_copy_lag_ms=lag_ms, remote_copy_lag_bytes=lag_bytes)
    age_ms = now_ms - segment.latest_ms
    is_old = lag_ms == 0 or age_ms >= (60 if lag_ms < 0 else lag_ms)
    assert may_be_copied(segment, newer_bytes, config, now_ms) == (
        is_old or newer_bytes >= (50 if lag_bytes < 0 else lag_bytes)
    )
    without_limits = LogConfig(remote_copy_lag_ms=-1, retention_ms=-1)
    assert not may_be_copied(segment, newer_bytes, without_limits, now_ms)


@given(logs(), st.integers(0, 12), st.data())
def test_a_leader_that_lost_nothing_agrees_with_the_manifest(
    log: Any, count: int, data: st.DataObject
) -> None:
    """Its log may begin anywhere up to the end of the manifest."""
    segments, epochs = log
    manifest = manifest_of(log, count)
    end = segments[-1].end
    start = data.draw(st.integers(0, manifest.end_offset))
    known = data.draw(st.sampled_from([epochs, known_from(epochs, start)]))
    assert agreed_end(manifest, known, start, end) == manifest.end_offset


@given(logs(), st.integers(1, 12), st.data())
def test_a_leader_that_lost_copied_records_gives_them_up(log: Any, count: int, data: st.DataObject) -> None:
    """After an unclean election it may have written others in their place."""
    _, epochs = log
    manifest = manifest_of(log, count)
    lost_from = data.draw(st.integers(0, manifest.end_offset - 1))
    kept = [each for each in epochs if each[1] < lost_from]
    written = data.draw(st.integers(0, 20))
    others = [*kept, (20, lost_from)] if written else kept
    end = agreed_end(manifest, others, 0, lost_from + written)
    assert end == lost_from
    left = decode(encode(manifest.ending_at(end)))
    assert left.end_offset <= lost_from
    assert all(each.end_offset <= lost_from for each in left.segments)
