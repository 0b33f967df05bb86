"""Frameworks over Kafka, unchanged, as their users run them: workers that come and go bill orders, and the
broker is killed meanwhile. No order is lost, and only orders that were not committed are billed twice.

The programs are the examples of docs/frameworks.md.
"""

import asyncio

import pytest

from tests.frameworks.trial import CUSTOMERS, Framework, Outcome, bill_orders

FRAMEWORKS = (
    Framework("faststream", ("faststream", "run", "faststream_billing:app")),
    Framework("faust", ("faust", "-A", "faust_billing", "worker", "--without-web"), counts_orders=True),
    Framework("quix", ("python", "-m", "quix_billing"), counts_orders=True),
    Framework(
        "taskiq",
        ("taskiq", "worker", "taskiq_billing:broker", "--workers", "1"),
        sender=("python", "-m", "taskiq_orders"),
        prints_bills=True,
    ),
)
_NAMES = [framework.name for framework in FRAMEWORKS]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return asyncio.run(bill_orders(FRAMEWORKS, tmp_path_factory.mktemp("frameworks")))


@pytest.mark.parametrize("name", _NAMES)
def test_every_order_is_billed(outcomes: dict[str, Outcome], name: str) -> None:
    assert (
        sorted(outcomes[name].billed()) == sorted(outcomes[name].orders) == list(range(outcomes[name].sent))
    )


@pytest.mark.parametrize("name", _NAMES)
def test_only_orders_that_were_not_committed_are_billed_twice(
    outcomes: dict[str, Outcome], name: str
) -> None:
    repeated = {order for order, times in outcomes[name].billed().items() if times > 1}
    allowed = outcomes[name].may_be_repeated()
    assert len(allowed) < outcomes[name].sent, "the judgement allows everything"
    assert repeated <= allowed


@pytest.mark.parametrize("name", _NAMES)
def test_a_worker_that_is_stopped_has_committed_all_that_it_billed(
    outcomes: dict[str, Outcome], name: str
) -> None:
    assert outcomes[name].committed_at_the_end == outcomes[name].ends


@pytest.mark.parametrize("name", [framework.name for framework in FRAMEWORKS if framework.counts_orders])
def test_the_state_of_a_framework_moves_with_its_partitions_and_loses_nothing(
    outcomes: dict[str, Outcome], name: str
) -> None:
    allowed = outcomes[name].may_be_repeated()
    for customer in range(CUSTOMERS):
        orders = set(range(customer, outcomes[name].sent, CUSTOMERS))
        counted = max(bill["number"] for bill in outcomes[name].bills if bill["order"] in orders)
        assert len(orders) <= counted <= len(orders) + len(orders & allowed)
