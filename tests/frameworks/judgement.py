"""What must hold of every framework after its trial."""

from tests.frameworks.trial import CUSTOMERS, Outcome


def check_nothing_is_lost(outcome: Outcome) -> None:
    assert sorted(outcome.billed()) == sorted(outcome.orders) == list(range(outcome.sent))


def check_only_what_was_not_committed_is_billed_twice(outcome: Outcome) -> None:
    repeated = {order for order, times in outcome.billed().items() if times > 1}
    allowed = outcome.may_be_repeated()
    assert len(allowed) < outcome.sent, "the judgement allows everything"
    assert repeated <= allowed


def check_stopped_workers_have_committed_all(outcome: Outcome) -> None:
    assert outcome.committed_at_the_end == outcome.ends


def check_the_state_is_complete(outcome: Outcome) -> None:
    """The count of a customer's orders moves with its partition. Orders that came twice may count twice."""
    allowed = outcome.may_be_repeated()
    for customer in range(CUSTOMERS):
        orders = set(range(customer, outcome.sent, CUSTOMERS))
        counted = max(bill["number"] for bill in outcome.bills if bill["order"] in orders)
        assert len(orders) <= counted <= len(orders) + len(orders & allowed)
