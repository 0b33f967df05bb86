"""Which ordered fault applies to which request."""

import pytest

from tidelog.broker.fault_injection.rules import (
    FINISHED_KEPT,
    MOST_ORDERS,
    FaultError,
    FaultKind,
    FaultOrder,
    FaultRules,
    Moment,
    RequestFacts,
    parse_error_code,
    parse_order,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


def request(
    *partitions: tuple[str, int],
    api: ApiKey = ApiKey.PRODUCE,
    client_id: str | None = None,
    acks: int = -1,
) -> RequestFacts:
    return RequestFacts(api, client_id, acks != 0, lambda: list(partitions) or [("t", 0)])


def kinds(rules: FaultRules, count: int, facts: RequestFacts | None = None) -> list[FaultKind | None]:
    plans = [rules.decide(facts or request()) for _ in range(count)]
    return [plan.kind if plan else None for plan in plans]


def test_an_order_hits_so_many_requests_after_those_that_it_lets_pass() -> None:
    rules = FaultRules()
    rules.add(FaultOrder(FaultKind.DROP, skip=2, count=2))
    assert kinds(rules, 6) == [None, None, FaultKind.DROP, FaultKind.DROP, None, None]
    assert rules.active == []
    assert [fault.hits for fault in rules.finished] == [2]


def test_an_order_without_a_count_goes_on_until_it_is_cleared() -> None:
    rules = FaultRules()
    fault = rules.add(FaultOrder(FaultKind.CUT, count=None))
    assert kinds(rules, 200) == [FaultKind.CUT] * 200
    assert (fault.hits, fault.remaining) == (200, None)
    assert rules.clear(fault.fault_id) == 1
    assert kinds(rules, 1) == [None]


def test_the_oldest_order_comes_first_and_the_next_is_not_used_up_with_it() -> None:
    rules = FaultRules()
    rules.add(FaultOrder(FaultKind.CUT))
    rules.add(FaultOrder(FaultKind.DROP))
    assert kinds(rules, 3) == [FaultKind.CUT, FaultKind.DROP, None]


def test_delays_add_up_and_come_before_what_else_happens() -> None:
    rules = FaultRules()
    rules.add(FaultOrder(FaultKind.DELAY, delay_ms=5))
    rules.add(FaultOrder(FaultKind.ERROR, error=ErrorCode.REQUEST_TIMED_OUT, moment=Moment.BEFORE))
    rules.add(FaultOrder(FaultKind.DELAY, delay_ms=7))
    plan = rules.decide(request())
    assert plan == ((1, 2, 3), 12, FaultKind.ERROR, Moment.BEFORE, ErrorCode.REQUEST_TIMED_OUT)
    assert rules.decide(request()) is None


@pytest.mark.parametrize(
    ("order", "facts", "fits"),
    [
        (FaultOrder(FaultKind.DROP, topic="t"), request(("u", 0), ("t", 3)), True),
        (FaultOrder(FaultKind.DROP, topic="t"), request(("u", 0)), False),
        (FaultOrder(FaultKind.DROP, topic="t", partition=1), request(("t", 0), ("u", 1)), False),
        (FaultOrder(FaultKind.DROP, partition=1), request(("t", 0), ("u", 1)), True),
        (FaultOrder(FaultKind.DROP, client_id="c"), request(client_id="c"), True),
        (FaultOrder(FaultKind.DROP, client_id="c"), request(client_id="d"), False),
        (FaultOrder(FaultKind.DROP), request(api=ApiKey.FETCH), False),
        (FaultOrder(FaultKind.DROP, api="fetch"), request(api=ApiKey.FETCH), True),
        (FaultOrder(FaultKind.DROP), request(acks=0), False),
        (FaultOrder(FaultKind.DELAY, delay_ms=1), request(acks=0), False),
        (FaultOrder(FaultKind.ERROR), request(acks=0), False),
        (FaultOrder(FaultKind.CUT), request(acks=0), True),
    ],
)
def test_an_order_fits_what_it_names_and_what_can_carry_it(
    order: FaultOrder, facts: RequestFacts, fits: bool
) -> None:
    rules = FaultRules()
    rules.add(order)
    assert (rules.decide(facts) is not None) is fits


def test_what_does_not_fit_uses_up_neither_the_count_nor_the_skip() -> None:
    rules = FaultRules()
    rules.add(FaultOrder(FaultKind.DROP, topic="t", skip=1))
    assert kinds(rules, 5, request(("other", 0))) == [None] * 5
    assert kinds(rules, 2) == [None, FaultKind.DROP]


def test_orders_and_the_memory_of_finished_ones_are_bounded() -> None:
    rules = FaultRules()
    for _ in range(MOST_ORDERS):
        rules.add(FaultOrder(FaultKind.CUT))
    with pytest.raises(FaultError, match="clear some"):
        rules.add(FaultOrder(FaultKind.CUT))
    assert kinds(rules, MOST_ORDERS) == [FaultKind.CUT] * MOST_ORDERS
    assert len(rules.finished) == FINISHED_KEPT
    rules.add(FaultOrder(FaultKind.CUT))
    assert rules.clear() == 1


def test_what_describes_a_fault_orders_it_again() -> None:
    values = {"fault": "error", "topic": "t", "error": "OUT_OF_ORDER_SEQUENCE_NUMBER", "when": "before"}
    order = parse_order(values)
    described = FaultRules().add(order).describe()
    told = {name: described[name] for name in ("fault", "api", "topic", "when", "error", "skip")}
    assert parse_order(told) == order


@pytest.mark.parametrize("given", [45, "45", "OUT_OF_ORDER_SEQUENCE_NUMBER", "out-of-order-sequence-number"])
def test_an_error_code_is_named_as_one_likes(given: object) -> None:
    assert parse_error_code(given) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"fault": "drop", "topik": "t"}, "topik"),
        ({"fault": "drop", "when": "before"}, "answer"),
        ({"fault": "delay"}, "delay_ms"),
        ({"fault": "error", "error": "NO_SUCH"}, "NO_SUCH"),
        ({"fault": "error"}, "code"),
        ({"fault": "drop", "count": 0}, "count"),
        ({"fault": "drop", "api": "init_producer_id", "topic": "t"}, "names no topic"),
    ],
)
def test_an_order_that_cannot_be_is_refused_with_the_reason(values: dict[str, object], word: str) -> None:
    with pytest.raises(FaultError, match=word):
        parse_order(values)


def test_minus_1_is_a_code_and_0_is_none() -> None:
    assert parse_error_code(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(FaultError, match="success"):
        parse_error_code(0)
    with pytest.raises(FaultError, match="no error code"):
        parse_error_code(9999)
