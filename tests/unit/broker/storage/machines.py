"""What the tests of the producers' rules and of their memory share."""

from __future__ import annotations

from tests.unit.broker.storage.support import NEVER_ISSUED, NOW_MS, header
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import Append, ProducerRules, Refusal, Verdict
from tidelog.protocol.errors import ErrorCode

TRANSACTIONAL = 0x10
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
        if isinstance(verdict, Append):
            self.machine.apply(sent, self.end, now_ms)
            self.end += sent.record_count
        return verdict


def code(verdict: Verdict) -> ErrorCode:
    assert isinstance(verdict, Refusal), verdict
    assert verdict.message
    return verdict.code
