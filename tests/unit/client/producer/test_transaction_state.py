"""The rules of a transactional producer: `transaction_state.txt`, and tables of events and codes."""

from pathlib import Path

import pytest

from tests.scripts import Case, cases
from tidelog.client import ClientError, DeliveryFailedError, ProducerFencedError, TopicPartition
from tidelog.client.producer.transaction_state import (
    TRANSITIONS,
    Event,
    Meaning,
    Phase,
    Request,
    TransactionState,
    error_of,
    meaning_of,
)
from tidelog.protocol.errors import ErrorCode

FAILURE = DeliveryFailedError("refused", "t", 0)


class Script:
    """The commands: first the names of events. A partition is its index."""

    def __init__(self) -> None:
        self.state = TransactionState("app")
        self.first: int | None = None

    def ready(self, *words: str) -> None:
        """The words `without epochs`: brokers do not give each transaction an epoch."""
        self.state.initialized(has_epoch_per_transaction=not words)

    def begin(self) -> str | None:
        said = self._said(self.state.begin)
        self.first = self.state.number if self.first is None else self.first
        return said

    def change(self, event: str) -> str | None:
        return self._said(self.state.change, Event[event])

    def fail(self, code: str = "") -> None:
        self.state.fail(FAILURE, *([ErrorCode[code]] if code else []))

    def fence(self) -> None:
        self.state.fail_for_good(ProducerFencedError("another one"))

    def require(self) -> str | None:
        """A transaction."""
        return self._said(self.state.require_transaction)

    def require_first(self) -> str | None:
        """The first transaction of this producer."""
        return self._said(self.state.require_transaction, self.first)

    def admits(self, *partitions: str) -> str:
        found = {each: self.state.admits(TopicPartition("t", int(each))) for each in partitions}
        to_add = " ".join(str(each.partition) for each in self.state.to_add) or "none"
        return f"{' '.join(each for each in partitions if found[each]) or 'none'}, to add {to_add}"

    def adding(self) -> None:
        self.state.adding()

    def added(self, partition: str) -> None:
        self.state.added([TopicPartition("t", int(partition))])

    def decided(self, *words: str) -> None:
        self.state.decided(has_new_epoch=bool(words))

    def ended(self) -> None:
        self.state.ended()

    def means(self, request: str, code: str) -> str:
        return self.state.meaning(Request[request], ErrorCode[code]).name

    def phase(self) -> str:
        wants = ", needs an end" * self.state.needs_end + ", must initialize" * self.state.must_initialize
        return f"{self.state.phase.name}{wants}"

    def _said(self, call: object, *arguments: object) -> str | None:
        try:
            call(*arguments)  # type: ignore[operator]
        except ClientError as error:
            return f"{type(error).__name__}: {error}" + f" (from {error.__cause__})" * bool(error.__cause__)
        return None


@cases(Path(__file__).parent / "transaction_state.txt")
async def test_transaction_state(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


@pytest.mark.parametrize("event", Event)
def test_an_event_that_the_table_does_not_have_changes_nothing_and_is_an_error(event: Event) -> None:
    for phase in Phase:
        state = TransactionState("app")
        state.phase, state.error = phase, FAILURE
        if (phase, event) in TRANSITIONS:
            state.change(event)
            assert state.phase is TRANSITIONS[phase, event]
        else:
            with pytest.raises(ClientError):
                state.change(event)
            assert state.phase is phase
    after_failure = {each for each in Event if (Phase.ABORTABLE_ERROR, each) in TRANSITIONS}
    assert after_failure == {Event.ABORT, Event.FAILED, Event.FAILED_FOR_GOOD}
    assert {each for each in Event if (Phase.FATAL_ERROR, each) in TRANSITIONS} == {Event.FAILED_FOR_GOOD}


_ENDING = (Request.ADD_PARTITIONS, Request.ADD_OFFSETS, Request.END)


@pytest.mark.parametrize(
    ("code", "requests", "meaning"),
    [
        (ErrorCode.NONE, tuple(Request), Meaning.DONE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, tuple(Request), Meaning.RETRY),
        (ErrorCode.NOT_COORDINATOR, tuple(Request), Meaning.RETRY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, tuple(Request), Meaning.RETRY),
        (ErrorCode.PRODUCER_FENCED, tuple(Request), Meaning.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, tuple(Request), Meaning.FATAL),
        (ErrorCode.INVALID_TXN_STATE, _ENDING, Meaning.FATAL),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _ENDING, Meaning.FATAL),
        (ErrorCode.UNSUPPORTED_VERSION, tuple(Request), Meaning.FATAL),
        (ErrorCode.TRANSACTION_ABORTABLE, (*_ENDING, Request.COMMIT_OFFSETS), Meaning.ABORTABLE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, (*_ENDING, Request.COMMIT_OFFSETS), Meaning.ABORTABLE),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, (*_ENDING, Request.COMMIT_OFFSETS), Meaning.ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, _ENDING, Meaning.ABORTABLE),
        (ErrorCode.UNKNOWN_PRODUCER_ID, _ENDING, Meaning.ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, (Request.COMMIT_OFFSETS,), Meaning.FATAL),
        (ErrorCode.UNKNOWN_MEMBER_ID, (Request.COMMIT_OFFSETS,), Meaning.ABORTABLE),
        (ErrorCode.ILLEGAL_GENERATION, (Request.COMMIT_OFFSETS,), Meaning.ABORTABLE),
        (ErrorCode.FENCED_INSTANCE_ID, (Request.COMMIT_OFFSETS,), Meaning.ABORTABLE),
        (ErrorCode.ILLEGAL_GENERATION, _ENDING, Meaning.FATAL),
    ],
)
def test_what_each_code_means(code: ErrorCode, requests: tuple[Request, ...], meaning: Meaning) -> None:
    assert {meaning_of(request, code) for request in requests} == {meaning}


def test_a_start_has_nothing_to_abort() -> None:
    assert Meaning.ABORTABLE not in {meaning_of(Request.INITIALIZE, code) for code in ErrorCode}


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_zombie_gets_a_clear_error(code: ErrorCode) -> None:
    error = error_of(Request.END, code, "app")
    assert isinstance(error, ProducerFencedError)
    assert "another producer with this id was started" in str(error)
    assert "'app'" in str(error)
