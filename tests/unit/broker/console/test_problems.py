"""What the console says is wrong: one problem for each cause, none for a healthy broker, and no name that the
user may not see."""

from typing import Any

import pytest

from tidelog.broker.cluster.store import StoreMember, StoreView
from tidelog.broker.console.condition import Condition, Disk, Named, Partitions
from tidelog.broker.console.problems import CurrentProblem, problems
from tidelog.broker.observability.history import Lately

FINE = Partitions(3, 100)
ONE = Named(1, (("t", 0),))
HEALTHY = Condition(
    partitions=FINE,
    is_cut_off=False,
    gone_brokers=(),
    hanging=(),
    disk=Disk(100 << 30, 50 << 30),
    free_handles=900,
    handle_limit=1000,
    kept_handles=100,
    queued_bytes=0,
    queued_max_bytes=1000,
    certificate_seconds={"SSL": 90 * 86_400.0},
    prepared_seconds={"fresh": 10.0},
    uncleanable_partitions=0,
    ordered_faults=None,
    store=StoreView((StoreMember("a", version="3.5"), StoreMember("b", version="3.5"))),
    has_open_store=False,
)


def found(events: Any = None, errors: Any = None, hidden: str = "", **changes: Any) -> list[CurrentProblem]:
    lately = Lately(300.0, events or {}, errors or {})
    return problems(
        HEALTHY._replace(**changes), lately, lambda name: name != hidden, lambda name: name != hidden
    )


def test_nothing_is_wrong_with_a_healthy_broker() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("disk_unreadable", {"disk": None}),
        ("disk_full", {"disk": Disk(100 << 30, 1 << 20)}),
        ("disk_nearly_full", {"disk": Disk(100 << 30, 2 << 30)}),
        ("storage_errors", {"errors": {"KAFKA_STORAGE_ERROR": 2}}),
        ("partition_offline", {"partitions": FINE._replace(offline=ONE)}),
        ("partition_has_hole", {"partitions": FINE._replace(with_holes=ONE)}),
        ("replicas_out_of_sync", {"partitions": FINE._replace(without_replicas=Named(2))}),
        ("too_few_in_sync", {"partitions": FINE._replace(below_least=Named(1))}),
        ("broker_lags", {"partitions": FINE._replace(lagging=((2, 7),))}),
        ("reassignment_under_way", {"partitions": FINE._replace(reassigned=Named(1))}),
        ("broker_cut_off", {"is_cut_off": True}),
        ("broker_gone", {"gone_brokers": (3,)}),
        ("transaction_hangs", {"hanging": (("t", 0),)}),
        ("partition_uncleanable", {"uncleanable_partitions": 1}),
        ("file_handles_lacking", {"free_handles": 99, "events": {"tidelog_connections_refused": 1}}),
        ("connections_refused", {"events": {"tidelog_connections_refused": 1}}),
        ("connections_cut_for_memory", {"events": {"tidelog_connections_cut_for_memory": 1}}),
        ("memory_short", {"queued_bytes": 501}),
        ("certificate_expires", {"certificate_seconds": {"SSL": 86_400.0}}),
        ("handshakes_refused", {"events": {"tidelog_tls_failures": 1}}),
        ("authentications_failed", {"events": {"failed_authentication": 1}}),
        ("access_denied", {"events": {"access_denied": 1}}),
        ("producer_fenced", {"events": {"tidelog_fenced_batches": 1}}),
        ("sequences_out_of_order", {"events": {"tidelog_out_of_order_batches": 301}}),
        ("transaction_waits", {"prepared_seconds": {"old": 3_601.0}}),
        ("faults_enabled", {"ordered_faults": 0}),
        ("catalog_lost", {"store": StoreView(is_lost=True)}),
        ("store_member_down", {"store": StoreView((StoreMember("a", problem="it knows no leader"),))}),
        ("store_alarm", {"store": StoreView((StoreMember("a", alarms=("NOSPACE",), used=1),))}),
        ("store_nearly_full", {"store": StoreView((StoreMember("a", used=0.81),))}),
        (
            "store_members_apart",
            {"store": StoreView((StoreMember("a", cluster_id="1"), StoreMember("b", cluster_id="2")))},
        ),
        (
            "store_versions_differ",
            {"store": StoreView((StoreMember("a", version="3.4"), StoreMember("b", version="3.5")))},
        ),
        ("store_without_security", {"has_open_store": True}),
    ],
)
def test_each_cause_is_one_problem_with_a_remedy(name: str, changes: dict[str, Any]) -> None:
    (problem,) = found(**changes)
    assert problem["name"] == name
    assert problem["text"].endswith(".")
    assert problem["remedy"].endswith(".")


def test_a_store_that_lost_most_members_is_a_critical_problem_and_one_that_lost_one_a_warning() -> None:
    well, down = StoreMember("a"), StoreMember("b", problem="refused")
    for members, severity in (((well, well, down), "warning"), ((well, down, down), "critical")):
        (problem,) = found(store=StoreView(members))
        assert problem["severity"] == severity


def test_the_critical_problems_come_first() -> None:
    severities = [
        each["severity"]
        for each in found(ordered_faults=0, events={"access_denied": 1}, disk=None, free_handles=0)
    ]
    assert severities == ["critical", "critical", "warning", "notice"]


def test_now_and_then_a_repeated_request_is_no_problem() -> None:
    assert found(events={"tidelog_out_of_order_batches": 300}) == []


def test_a_name_that_the_user_may_not_see_is_not_shown() -> None:
    offline = FINE._replace(offline=Named(2, (("orders", 1), ("secret", 0))))
    (problem,) = found(partitions=offline, hidden="secret")
    assert problem["text"].startswith("2 partitions (orders-1, …) are offline")
    assert found(prepared_seconds={"secret": 9_999.0}, hidden="secret") == []


def test_counts_and_times_are_in_words() -> None:
    (problem,) = problems(HEALTHY, Lately(42.0, {"access_denied": 1}, {}), lambda _: True, lambda _: True)
    assert "once in the last 42 seconds" in problem["text"]
    (problem,) = found(events={"access_denied": 7})
    assert "7 times in the last 5 minutes" in problem["text"]
