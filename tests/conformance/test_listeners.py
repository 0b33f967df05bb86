"""Two listeners, one of them behind a proxy: clients are told the address of the one that they came in by."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from faults.proxy import FaultProxy
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.app import Broker, StartError
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.testing.embedded import EmbeddedBroker
from tidelog.client import Admin

TOPIC = "orders"
NAMES = ["OUTSIDE", "INSIDE"]
PLAINTEXT = "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT"


@dataclass
class Served:
    """A broker with two listeners on ports that the system chose; its OUTSIDE is reached by the proxy."""

    broker: Broker
    proxy: FaultProxy

    def address(self, name: str) -> str:
        """Where clients of the listener connect to, first and later."""
        port = self.proxy.port if name == "OUTSIDE" else self.broker.ports[name]
        return f"127.0.0.1:{port}"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with FaultProxy("127.0.0.1", 0) as proxy:
        settings = {
            "listeners": "OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0",
            "advertised.listeners": f"OUTSIDE://127.0.0.1:{proxy.port}",
            "listener.security.protocol.map": PLAINTEXT,
            "http.port": "0",
            "data.dir": str(tmp_path),
        }
        async with await Broker.start(BrokerConfig.load(settings)) as broker:
            proxy.retarget(broker.ports["OUTSIDE"])
            await broker.services.topics.create(TOPIC)
            yield Served(broker, proxy)


@pytest.mark.parametrize("name", NAMES)
async def test_librdkafka_writes_and_reads_by_the_listener_that_it_was_given(
    served: Served, name: str
) -> None:
    address, peer = served.address(name), ConfluentKafka()
    message = Message(0, 1_700_000_000_000, None, name.encode())
    assert [held[1] for held in (await written(peer, address, message))[TOPIC]] == [0]
    read = await asyncio.to_thread(peer.read, address, {(TOPIC, 0): 1})
    assert [stored.message.value for stored in read[TOPIC]] == [name.encode()]
    admin = AdminClient({"bootstrap.servers": address})
    cluster = await asyncio.to_thread(admin.describe_cluster().result, DEADLINE_SECONDS)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [address]
    assert bool(served.proxy.counters.connections_opened) is (name == "OUTSIDE")


async def written(peer: ConfluentKafka, address: str, message: Message) -> Any:
    return await asyncio.to_thread(peer.write, address, {TOPIC: ("none", [message])})


async def test_the_settings_of_the_broker_name_both_listeners_with_the_ports_that_the_system_chose(
    served: Served,
) -> None:
    def described() -> dict[str, str]:
        resource = ConfigResource(ResourceType.BROKER, str(served.broker.config.node_id))
        admin = AdminClient({"bootstrap.servers": served.address("INSIDE")})
        entries = admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)
        return {name: entry.value for name, entry in entries.items()}

    settings = await asyncio.to_thread(described)
    outside, inside = (f"{name}://127.0.0.1:{served.broker.ports[name]}" for name in NAMES)
    assert 0 not in served.broker.ports.values()
    assert settings["listeners"] == f"{outside},{inside}"
    assert settings["advertised.listeners"] == f"OUTSIDE://{served.address('OUTSIDE')},{inside}"
    assert settings["listener.security.protocol.map"] == PLAINTEXT


async def test_a_client_that_wants_sasl_is_told_that_the_listener_has_none(served: Served) -> None:
    errors: list[KafkaError] = []
    admin = AdminClient(
        {
            "bootstrap.servers": served.address("INSIDE"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "error_cb": errors.append,
        }
    )

    def refused() -> bool:
        admin.poll(0)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    await until(refused)
    assert "SASL" in str(errors[0])
    with pytest.raises(KafkaException):
        await asyncio.to_thread(admin.list_topics, timeout=0.1)
    async with Admin(bootstrap_servers=served.address("INSIDE")) as other:
        assert TOPIC in await other.list_topics()


async def test_an_embedded_broker_with_listeners_is_found_again_after_a_restart() -> None:
    settings = {"listeners": "OUTSIDE://:0,INSIDE://127.0.0.1:0", "listener.security.protocol.map": PLAINTEXT}
    async with EmbeddedBroker(settings=settings) as embedded:
        ports = embedded.broker.ports
        assert embedded.bootstrap_servers == f"127.0.0.1:{ports['OUTSIDE']}"
        await embedded.restart()
        assert embedded.broker.ports == ports


async def test_an_address_that_is_taken_is_named_with_the_setting_that_chose_it(
    served: Served, tmp_path: Path
) -> None:
    taken = served.broker.ports["INSIDE"]
    config = BrokerConfig.load(
        {
            "listeners": f"OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:{taken}",
            "listener.security.protocol.map": PLAINTEXT,
            "data.dir": str(tmp_path / "other"),
        }
    )
    named = f"cannot listen on 127.0.0.1 port {taken}: .* another port .setting listeners"
    with pytest.raises(StartError, match=named):
        await Broker.start(config)
