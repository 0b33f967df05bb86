"""The connections that the console shows: found by a part of a name, by pages, with their rates."""

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.console.views.clients import MOST_REMEMBERED, RequestRates, clients, quotas_of
from tidelog.broker.limits.client_quotas import ClientQuotas
from tidelog.broker.telemetry.client_instances import Instance
from tidelog.broker.telemetry.metrics_data import Series, Value
from tidelog.broker.telemetry.subscriptions import Client as ClientFacts
from tidelog.broker.telemetry.subscriptions import Subscription
from tidelog.protocol.steps import finish


def connection(number: int, requests: int = 0, **state: Any) -> Any:
    values = {
        "listener": SimpleNamespace(name="PLAINTEXT"),
        "principal": SimpleNamespace(name="ANONYMOUS"),
        "authentication": SimpleNamespace(name="NOT_REQUIRED"),
        "client_id": f"client-{number}",
        "client_software": "",
        **state,
    }
    return SimpleNamespace(
        connection_id=number,
        peer=f"10.0.0.1:{number}",
        opened=0.0,
        last_arrival=0.0,
        requests=requests,
        state=SimpleNamespace(**values),
    )


def store(quotas: Any = None) -> Any:
    of_clients = ClientQuotas(1.0)
    of_clients.replace(quotas or {})
    return SimpleNamespace(of_clients=of_clients, all=quotas or {})


def shown(connections: list[Any], search: str | None = None, offset: int = 0, limit: int = 50) -> Any:
    return finish(clients(1, connections, RequestRates(), store(), {}, search, offset, limit))


def test_the_oldest_come_first_by_pages() -> None:
    found = shown([connection(number) for number in (3, 1, 2, 10)], offset=1, limit=2)
    assert [each["connection_id"] for each in found["rows"]] == [2, 3]
    assert (found["total"], found["offset"], found["limit"]) == (4, 1, 2)


@pytest.mark.parametrize("search", ["10.0.0.1:2", "CLIENT-2", "alice", "java"])
def test_a_part_of_an_address_a_user_an_id_or_a_software_finds(search: str) -> None:
    alice = connection(2, principal=SimpleNamespace(name="alice"), client_software="apache-kafka-java 4.1")
    found = shown([connection(1), alice], search)
    assert [each["connection_id"] for each in found["rows"]] == [2]


def test_the_quotas_that_hold_for_a_client_are_shown_with_it() -> None:
    quotas = {
        (("client-id", None),): {"producer_byte_rate": 5.0},
        (("client-id", "client-1"),): {"request_percentage": 9.0},
    }
    rows = finish(clients(1, [connection(1)], RequestRates(), store(quotas), {}, None, 0, 5))["rows"]
    assert rows[0]["quotas"] == {"producer_byte_rate": 5.0, "request_percentage": 9.0}


def test_what_a_client_pushes_is_shown_with_its_connection() -> None:
    instance = Instance(ClientFacts("", "", "", "", "", ""), Subscription(1, ("*",), 100))
    named = {
        "consumer.fetch.manager.records.lag.max": 7.0,
        "producer.node.request.latency.max": 20.0,
        "producer.request.latency.max": 30.00049,
        "producer.record.error.rate": 0.5,
        "producer.io.ratio": 1.0,
    }
    instance.series = {Series(name, ()): Value(number, False) for name, number in named.items()}
    pushing = {2: instance}
    rows = finish(clients(1, [connection(1), connection(2)], RequestRates(), store(), pushing, None, 0, 5))[
        "rows"
    ]
    shown = {"request.latency.max": 30.0, "record.error.rate": 0.5, "records.lag.max": 7.0}
    assert [row["pushed"] for row in rows] == [{}, shown]


def test_a_rate_is_that_since_the_look_before_and_at_first_that_since_the_connection_began() -> None:
    rates = RequestRates()
    assert rates.of(connection(1, requests=100), now=10.0) == 10
    assert rates.of(connection(1, requests=160), now=12.0) == 30
    assert rates.of(connection(1, requests=999), now=12.5) == 30, "looks that are close together share one"
    assert rates.of(connection(1, requests=160), now=15.0) == 0


def test_rates_of_a_bounded_number_of_connections_are_remembered() -> None:
    rates = RequestRates()
    for number in range(MOST_REMEMBERED + 1):
        rates.of(connection(number, requests=100), now=10.0)
    assert rates.of(connection(0, requests=100), now=20.0) == 5, "since it began: it was forgotten"
    assert rates.of(connection(MOST_REMEMBERED, requests=100), now=20.0) == 0


def test_quotas_name_who_they_are_for() -> None:
    quotas = {
        (("client-id", "app"), ("user", None)): {"producer_byte_rate": 5.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 2.0},
    }
    assert quotas_of(store(quotas), 0, 50)["rows"] == [
        {"user": "", "client_id": "app", "ip": None, "values": {"producer_byte_rate": 5.0}},
        {"user": None, "client_id": None, "ip": "10.0.0.1", "values": {"connection_creation_rate": 2.0}},
    ]
    assert quotas_of(store(quotas), 1, 50)["rows"][0]["ip"] == "10.0.0.1"
