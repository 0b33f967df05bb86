"""Frameworks over Kafka, unchanged, as their users run them: workers that come and go bill orders, and the
broker is killed meanwhile. No order is lost, and only orders that were not committed are billed twice.

The programs are the examples of docs/frameworks.md.
"""

import asyncio
from functools import partial

import pytest

from tests.frameworks import judgement
from tests.frameworks.trial import Framework, Outcome, Trial, bill_orders

FRAMEWORKS = (
    Framework("faststream", ("faststream", "run", "faststream_billing:app")),
    Framework("faust", ("faust", "-A", "faust_billing", "worker", "--without-web")),
    Framework("quix", ("python", "-m", "quix_billing"), counts_orders=True, exactly_once=True),
    Framework(
        "taskiq",
        ("taskiq", "worker", "taskiq_billing:broker", "--workers", "1"),
        sender=("python", "-m", "taskiq_orders"),
        prints_bills=r"^billed (\d+)$",
    ),
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    trials = (partial(Trial, framework) for framework in FRAMEWORKS)
    return asyncio.run(bill_orders(tmp_path_factory.mktemp("frameworks"), *trials))


@pytest.fixture(params=[framework.name for framework in FRAMEWORKS])
def outcome(request: pytest.FixtureRequest, outcomes: dict[str, Outcome]) -> Outcome:
    return outcomes[request.param]


def test_every_order_is_billed(outcome: Outcome) -> None:
    judgement.check_nothing_is_lost(outcome)


def test_only_orders_that_were_not_committed_are_billed_twice(outcome: Outcome) -> None:
    judgement.check_only_what_was_not_committed_is_billed_twice(outcome)


def test_a_worker_that_is_stopped_has_committed_all_that_it_billed(outcome: Outcome) -> None:
    judgement.check_stopped_workers_have_committed_all(outcome)


@pytest.mark.parametrize("name", [framework.name for framework in FRAMEWORKS if framework.counts_orders])
def test_the_state_of_a_framework_moves_with_its_partitions_and_loses_nothing(
    outcomes: dict[str, Outcome], name: str
) -> None:
    judgement.check_the_state_is_complete(outcomes[name])
