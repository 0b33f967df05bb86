"""Incremental fetch sessions: `fetch_sessions.txt`."""

from itertools import count
from pathlib import Path

import pytest

from tests.scripts import Case, cases
from tidelog.broker.handlers.fetch_sessions import (
    INITIAL_EPOCH,
    MAX_PARTITIONS,
    FetchContext,
    FetchSessions,
    next_epoch,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchPartitionResult


class Script:
    """The commands. A wanted partition is `INDEX@OFFSET/LEADER_EPOCH`, a result `INDEX:WHAT`."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.contexts: list[FetchContext] = []
        self.slots("10")

    def slots(self, number: str, partitions: str = "1000000") -> None:
        ids = count(1)
        self.sessions = FetchSessions(int(number), int(partitions), lambda: next(ids))

    def wait(self, milliseconds: str) -> None:
        self.now_ms += int(milliseconds)

    def fetch(self, session_id: str, epoch: str, *words: str) -> str:
        """The session, and what is read."""
        options = dict(word.split("=") for word in words)
        wanted = [("t", _wanted(each)) for each in options.get("partitions", "").split(",") if each]
        forgotten = [("t", int(each)) for each in options.get("forget", "").split(",") if each]
        context = self.sessions.open_context(
            int(session_id), int(epoch), wanted, forgotten, self.now_ms, by_id=False
        )
        self.contexts.append(context)
        read = " ".join(f"{each.partition}@{each.fetch_offset}" for _, each in context.partitions)
        name = "no session" if context.session is None else f"session {context.session.session_id}"
        return f"{name}, reads {read or 'nothing'}"

    def answer(self, *results: str) -> str:
        """What of these results is named to the last fetch."""
        return self._answered(self.contexts[-1], results)

    def answer_first(self, *results: str) -> str:
        return self._answered(self.contexts[0], results)

    def _answered(self, context: FetchContext, results: tuple[str, ...]) -> str:
        chosen = self.sessions.select(context, list(map(_result, results)))
        return " ".join(str(each.partition_index) for _, each in chosen) or "nothing"

    def held(self) -> str:
        sessions = self.sessions
        return (
            f"{len(sessions)} sessions, {sessions.partition_count} partitions, {sessions.evictions} evicted"
        )

    def next_epoch(self, epoch: str) -> str:
        return str(next_epoch(int(epoch)))


def _wanted(text: str) -> FetchPartition:
    place, _, epoch = text.partition("/")
    index, _, offset = place.partition("@")
    return FetchPartition(int(index), int(epoch or -1), int(offset or 0), -1, -1, 1000)


def _result(text: str) -> tuple[str, FetchPartitionResult, bool]:
    index, _, what = text.partition(":")
    name, _, value = what.partition("=")
    fields = {"high-watermark": "high_watermark", "log-start": "log_start_offset", "error": "error_code"}
    result = FetchPartitionResult(int(index), 0, high_watermark=5, log_start_offset=0)
    if name in fields:
        result = result._replace(**{fields[name]: int(value)})
    if name == "diverging":
        result = result._replace(diverging_epoch=(0, 3))
    return "t", result, name == "records"


@cases(Path(__file__).parent / "fetch_sessions.txt")
async def test_sessions(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


def test_a_session_never_holds_more_partitions_than_the_limit() -> None:
    script = Script()
    wanted = [("t", _wanted(str(index))) for index in range(MAX_PARTITIONS + 1)]
    opened = script.sessions.open_context(0, INITIAL_EPOCH, wanted, (), 0, by_id=False)
    assert opened.session is None
    opened = script.sessions.open_context(0, INITIAL_EPOCH, wanted[:-1], (), 0, by_id=False)
    assert opened.session is not None
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
        script.sessions.open_context(opened.session.session_id, 1, wanted[-1:], (), 0, by_id=False)
    assert len(script.sessions) == 0
