"""Which ordered fault applies to which request: `rules.txt`."""

from pathlib import Path

import pytest

from tests.scripts import Case, cases
from tidelog.broker.fault_injection.rules import (
    FINISHED_KEPT,
    MOST_ORDERS,
    FaultError,
    FaultKind,
    FaultOrder,
    FaultRules,
    RequestFacts,
    parse_error_code,
    parse_order,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


class Script:
    """The commands. An order has the words of the HTTP port: `drop topic=t count=2`."""

    def __init__(self) -> None:
        self.rules = FaultRules()

    def order(self, fault: str, *words: str) -> str | None:
        values: dict[str, object] = {"fault": fault}
        for word in words:
            name, _, value = word.partition("=")
            values[name] = int(value) if value.lstrip("-").isdigit() else None if value == "null" else value
        try:
            order = parse_order(values)
        except FaultError as error:
            return str(error)
        described = FaultRules().add(order).describe()
        told = ("fault", "api", "topic", "partition", "client_id", "when", "error", "skip", "delay_ms")
        if order.count == 1:
            assert (
                parse_order({name: described[name] for name in told if described[name] is not None}) == order
            )
        self.rules.add(order)
        return None

    def ask(self, count: str, *words: str) -> str:
        """So many requests: `t-0` names a partition, `api=`, `client=`, `acks=`."""
        options = dict(word.split("=") for word in words if "=" in word)
        parts = [word.rpartition("-") for word in words if "=" not in word]
        named = [(topic, int(index)) for topic, _, index in parts] or [("t", 0)]
        api = ApiKey[options.get("api", "produce").upper()]
        facts = RequestFacts(api, options.get("client"), options.get("acks") != "0", lambda: named)
        plans = [self.rules.decide(facts) for _ in range(int(count))]
        return " ".join(
            "-"
            if plan is None
            else f"{plan.kind.value if plan.kind else 'no fault'}"
            + f" after {plan.delay_ms} ms" * bool(plan.delay_ms)
            for plan in plans
        )

    def clear(self, *fault_id: str) -> str:
        return str(self.rules.clear(*map(int, fault_id)))

    def hits(self) -> str:
        shown = (
            [f"{each.fault_id}:{each.hits}" for each in some]
            for some in (self.rules.active, self.rules.finished)
        )
        return "active {}, finished {}".format(*(" ".join(each) or "none" for each in shown))


@cases(Path(__file__).parent / "rules.txt")
async def test_rules(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


def test_orders_and_the_memory_of_finished_ones_are_bounded() -> None:
    rules = FaultRules()
    for _ in range(MOST_ORDERS):
        rules.add(FaultOrder(FaultKind.CUT))
    with pytest.raises(FaultError, match="clear some"):
        rules.add(FaultOrder(FaultKind.CUT))
    facts = RequestFacts(ApiKey.PRODUCE, None, True, lambda: [("t", 0)])
    assert all(rules.decide(facts) for _ in range(MOST_ORDERS))
    assert len(rules.finished) == FINISHED_KEPT
    rules.add(FaultOrder(FaultKind.CUT))
    assert rules.clear() == 1


@pytest.mark.parametrize("given", [45, "45", "OUT_OF_ORDER_SEQUENCE_NUMBER", "out-of-order-sequence-number"])
def test_an_error_code_is_named_as_one_likes(given: object) -> None:
    assert parse_error_code(given) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_minus_1_is_a_code_and_0_is_none() -> None:
    assert parse_error_code(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(FaultError, match="success"):
        parse_error_code(0)
    with pytest.raises(FaultError, match="no error code"):
        parse_error_code(9999)
