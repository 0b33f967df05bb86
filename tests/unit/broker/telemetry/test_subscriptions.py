"""Which clients push which metrics, and how often."""

from uuid import UUID

import pytest

from tidelog.broker.telemetry.subscriptions import Client, Subscriptions

ID = str(UUID(int=7))
CLIENT = Client(ID, "orders-1", "apache-kafka-java", "4.3.1", "10.0.0.1", "50123")


def test_without_a_resource_a_client_pushes_nothing_and_asks_again_in_five_minutes() -> None:
    subscription = Subscriptions([]).of(CLIENT)
    assert subscription[1:] == ((), 300_000)


def test_the_metrics_of_all_resources_that_match_are_pushed_at_the_shortest_interval() -> None:
    resources = [
        {"metrics": "b.,a.", "interval.ms": "5000"},
        {"metrics": "b.,c.", "interval.ms": "1000", "match": "client_id=orders-.*"},
        {
            "metrics": "d.",
            "interval.ms": "100",
            "match": "client_id=orders-.*,client_software_name=rdkafka",
        },
    ]
    assert Subscriptions(resources).of(CLIENT)[1:] == (("a.", "b.", "c."), 1_000)
    assert Subscriptions([*resources, {"metrics": "*"}]).of(CLIENT).metrics == ("*",)


@pytest.mark.parametrize(
    "match",
    [
        f"client_instance_id={ID}",
        "client_id=orders.*",
        "client_software_name=apache-.*",
        r"client_software_version=4\.[23].*",
        r"client_source_address=10\.0\.0\..*",
        "client_source_port=50123",
    ],
)
def test_a_pattern_must_match_the_whole_of_what_a_client_says(match: str) -> None:
    assert Subscriptions([{"metrics": "*", "match": match}]).of(CLIENT).metrics == ("*",)
    for other in (match.replace("=", "=x"), match.removesuffix(".*") + "x"):
        assert Subscriptions([{"metrics": "*", "match": other}]).of(CLIENT).metrics == ()


def test_each_broker_gives_a_client_the_same_id_and_a_change_another_one() -> None:
    resources = [{"metrics": "a.", "match": "client_id=o.*"}, {"metrics": "b."}]
    first = Subscriptions(resources).of(CLIENT)
    assert Subscriptions(reversed(resources)).of(CLIENT) == first
    assert -(2**31) <= first.subscription_id < 2**31
    others = {
        Subscriptions(resources).of(CLIENT._replace(client_instance_id=str(UUID(int=8)))).subscription_id,
        Subscriptions([*resources, {"interval.ms": "1000"}]).of(CLIENT).subscription_id,
        Subscriptions(resources[1:]).of(CLIENT).subscription_id,
        first.subscription_id,
    }
    assert len(others) == 4
