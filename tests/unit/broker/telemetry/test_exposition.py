"""What clients pushed, as Prometheus reads it."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tidelog.broker.telemetry.client_instances import Instance
from tidelog.broker.telemetry.exposition import exposition
from tidelog.broker.telemetry.metrics_data import Series, Value
from tidelog.broker.telemetry.subscriptions import Client, Subscription
from tidelog.protocol.steps import finish


def instance(client_id: str, left_out: int = 0, **numbers: float) -> Instance:
    made = Instance(Client("", client_id, "java", "4.3", "", ""), Subscription(1, ("*",), 1_000))
    made.series = {
        Series(f"org.apache.kafka.{name.replace('_', '.')}", (("topic", 'a"b'),)): Value(
            number, name.endswith("total")
        )
        for name, number in numbers.items()
    }
    made.left_out = left_out
    return made


def read(*instances: Instance) -> dict[str, Any]:
    """Name of each family -> its type and values by client id."""
    text = finish(exposition(instances)).decode()
    return {
        family.name: (family.type, {each.labels.get("client_id"): each.value for each in family.samples})
        for family in text_string_to_metric_families(text)
    }


def test_a_series_has_the_name_of_the_metric_and_what_it_is_about() -> None:
    text = finish(exposition([instance("orders", producer_record_error_rate=0.5)])).decode()
    labels = r'client_id="orders",client_software="java 4.3",topic="a\"b"'
    assert f"kafka_client_producer_record_error_rate{{{labels}}} 0.5\n" in text
    assert read(instance("orders", left_out=3))["tidelog_client_telemetry_series_left_out"][1] == {None: 3}


def test_of_clients_with_one_id_rates_and_counters_are_added_and_else_the_largest_is_shown() -> None:
    both = [
        instance("a", record_error_rate=1, record_error_total=2, latency_avg=3),
        instance("a", record_error_rate=10, record_error_total=20, latency_avg=30),
        instance("b", latency_avg=1),
    ]
    found = read(*both)
    assert found["kafka_client_record_error_rate"] == ("gauge", {"a": 11})
    assert found["kafka_client_record_error"] == ("counter", {"a": 22})
    assert found["kafka_client_latency_avg"] == ("gauge", {"a": 30, "b": 1})
    assert found["tidelog_client_telemetry_instances"] == ("gauge", {None: 3})


def test_names_of_clients_that_look_alike_make_one_family() -> None:
    other = instance("b")
    other.series = {Series("latency-avg", ()): Value(5, False)}
    assert read(instance("a", latency_avg=1), other)["kafka_client_latency_avg"] == ("gauge", {"a": 1})
