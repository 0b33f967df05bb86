"""What the tests of the producers' rules and of their memory share."""

from tests.unit.broker.storage.support import NEVER_ISSUED, NOW_MS, header
from tidelog.broker.storage.open_transactions import EndedTransaction
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import Append, Begin, ProducerRules, Refusal, Verdict
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import EndTransactionMarker

TRANSACTIONAL = 0x10
CONTROL = 0x20
DAY_MS = 86_400_000


def states(**rules: object) -> ProducerStates:
    return ProducerStates(ProducerRules(**rules), lambda: NEVER_ISSUED)  # type: ignore[arg-type]


class Log:
    """Applies what `check` lets through, as a partition does."""

    def __init__(self, machine: ProducerStates) -> None:
        self.machine = machine
        self.end = 0

    def send(self, *fields: int, now_ms: int = NOW_MS, attributes: int = 0) -> Verdict:
        sent = header(*fields, attributes=attributes)
        verdict = self.machine.check(sent)
        if isinstance(verdict, Append | Begin):
            self.machine.apply(sent, self.end, now_ms)
            self.end += sent.record_count
        return verdict

    def end_transaction(
        self, producer_id: int, epoch: int, *, commits: bool = True, now_ms: int = NOW_MS
    ) -> EndedTransaction | None:
        """As a coordinator of epoch 0 does."""
        self.end += 1
        sent = header(producer_id, epoch, -1, attributes=TRANSACTIONAL | CONTROL)
        return self.machine.apply_marker(sent, EndTransactionMarker(commits, 0), self.end - 1, now_ms)


def code(verdict: Verdict) -> ErrorCode:
    assert isinstance(verdict, Refusal), verdict
    assert verdict.message
    return verdict.code
