"""A mirror's settings before Spark starts, and its stream, which outlives topics that come while it runs."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tidelog.client import BrokerUnavailableError, ClusterConfig
from tidelog.pipeline.jobs import mirror
from tidelog.pipeline.jobs.mirror_settings import MirrorSettings
from tidelog.pipeline.jobs.mirror_topics import Prepared
from tidelog.pipeline.mirror.session_folder import MirrorSession
from tidelog.pipeline.offsets import OptionError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic_pattern": "("}, r"'\(' is not a regular expression"),
        ({"topics": ("t",), "topic_pattern": "t.*"}, "either topics or a topic_pattern"),
    ],
)
def test_wrong_settings_are_refused_before_spark_starts(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        MirrorSettings("checkpoint", ClusterConfig("localhost:9092"), **given).check()


class Query:
    """A stream of Spark's, as far as a mirror watches it: ends as told."""

    lastProgress = None  # noqa: N815

    def __init__(self, name: str, end: Exception | bool) -> None:
        self.runId, self._end = name, end

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


class Writer:
    """Starts one query after the other."""

    def __init__(self, *ends: Exception | bool) -> None:
        self._queries = iter([Query(str(number), end) for number, end in enumerate(ends)])

    def start(self) -> Query:
        return next(self._queries)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Prepared | Exception]]:
    """What looking for topics finds, one after the other."""
    found: list[Prepared | Exception] = []

    async def prepare(*_: object) -> Prepared:
        answer = found.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(mirror, "prepare_topics", prepare)
    monkeypatch.setattr(mirror, "_LOOK_SECONDS", float("inf"))
    yield found
    assert not found, "all of them were asked for"


def runs(*ends: Exception | bool) -> mirror._Runs:
    settings = MirrorSettings("checkpoint", ClusterConfig("localhost:9092"), topic_pattern=".*")
    return mirror._Runs(settings, MirrorSession("checkpoint", ""), Writer(*ends), 1)


FAILED = StreamingQueryException("a batch failed")


def test_a_stream_that_met_a_topic_without_a_copy_goes_on_when_there_is_one(
    answers: list[Prepared | Exception],
) -> None:
    answers += [Prepared(2, True)]
    watched = runs(FAILED, True)
    assert not watched.have_ended()
    assert watched.have_ended()
    assert (watched.topics, watched.query.runId) == (2, "1")


def test_a_copy_that_was_made_just_before_the_failure_counts_too(
    answers: list[Prepared | Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers += [Prepared(2, True), Prepared(2, False), Prepared(2, False)]
    watched = runs(False, FAILED)
    monkeypatch.setattr(mirror, "_LOOK_SECONDS", -1.0)
    assert not watched.have_ended()
    monkeypatch.setattr(mirror, "_LOOK_SECONDS", float("inf"))
    watched.query._end = FAILED
    assert not watched.have_ended()
    assert watched.query.runId == "1"
    with pytest.raises(StreamingQueryException):
        watched.have_ended()


@pytest.mark.parametrize("found", [Prepared(1, False), BrokerUnavailableError("away")])
def test_a_failure_that_no_missing_copy_explains_ends_the_mirror(
    answers: list[Prepared | Exception], found: Prepared | Exception
) -> None:
    answers += [found]
    with pytest.raises(StreamingQueryException):
        runs(FAILED).have_ended()
