"""The connections that the console shows: found by a part of a name, by pages."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.broker.console.asking import answer, stand_in
from tidelog.broker.console.api import clients
from tidelog.broker.console.request_rates import RequestRates
from tidelog.broker.limits.client_quotas import ClientQuotas
from tidelog.broker.telemetry.client_instances import Instance
from tidelog.broker.telemetry.metrics_data import Series, Value
from tidelog.broker.telemetry.subscriptions import Client as ClientFacts
from tidelog.broker.telemetry.subscriptions import Subscription


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


async def shown(
    connections: list[Any], quotas: Any = None, pushing: tuple[Instance, ...] = (), **asked: Any
) -> Any:
    of_clients = ClientQuotas(1.0)
    of_clients.replace(quotas or {})
    held = {"quotas": SimpleNamespace(of_clients=of_clients, all=quotas or {})}
    console = stand_in(
        {"node_id": 1, "telemetry": SimpleNamespace(clients=lambda: pushing), **held},
        server=SimpleNamespace(connections=connections),
        request_rates=RequestRates(),
    )
    return await answer(clients.clients, console, **asked)


async def test_the_oldest_come_first_by_pages() -> None:
    found = await shown([connection(number) for number in (3, 1, 2, 10)], offset=1, limit=2)
    assert [each["connection_id"] for each in found["rows"]] == [2, 3]
    assert (found["total"], found["offset"], found["limit"]) == (4, 1, 2)


@pytest.mark.parametrize("search", ["10.0.0.1:2", "CLIENT-2", "alice", "java"])
async def test_a_part_of_an_address_a_user_an_id_or_a_software_finds(search: str) -> None:
    alice = connection(2, principal=SimpleNamespace(name="alice"), client_software="apache-kafka-java 4.1")
    found = await shown([connection(1), alice], search=search)
    assert [each["connection_id"] for each in found["rows"]] == [2]


async def test_the_quotas_that_hold_for_a_client_are_shown_with_it() -> None:
    quotas = {
        (("client-id", None),): {"producer_byte_rate": 5.0},
        (("client-id", "client-1"),): {"request_percentage": 9.0},
    }
    rows = (await shown([connection(1)], quotas))["rows"]
    assert rows[0]["quotas"] == {"producer_byte_rate": 5.0, "request_percentage": 9.0}


async def test_what_a_client_pushes_is_shown_with_its_connection() -> None:
    instance = Instance(ClientFacts("", "", "", "", "", ""), Subscription(1, ("*",), 100))
    named = {
        "consumer.fetch.manager.records.lag.max": 7.0,
        "producer.node.request.latency.max": 20.0,
        "producer.request.latency.max": 30.00049,
        "producer.record.error.rate": 0.5,
        "producer.io.ratio": 1.0,
    }
    instance.series = {Series(name, ()): Value(number, False) for name, number in named.items()}
    instance.connection_id = 2
    rows = (await shown([connection(1), connection(2)], pushing=(instance,)))["rows"]
    pushed = {"request.latency.max": 30.0, "record.error.rate": 0.5, "records.lag.max": 7.0}
    assert [row["pushed"] for row in rows] == [{}, pushed]


async def test_quotas_name_who_they_are_for() -> None:
    quotas = {
        (("client-id", "app"), ("user", None)): {"producer_byte_rate": 5.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 2.0},
    }
    console = stand_in({"quotas": SimpleNamespace(all=quotas)})
    assert (await answer(clients.quotas, console))["rows"] == [
        {"user": "", "client_id": "app", "ip": None, "values": {"producer_byte_rate": 5.0}},
        {"user": None, "client_id": None, "ip": "10.0.0.1", "values": {"connection_creation_rate": 2.0}},
    ]
    assert (await answer(clients.quotas, console, offset=1))["rows"][0]["ip"] == "10.0.0.1"
