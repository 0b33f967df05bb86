"""Connections to brokers: when an address is dialled again, who is asked first, what is closed."""

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest

from tests.ports import free_address
from tests.unit.wire.clusters import Noted, cut, opened
from tests.unit.wire.scripted import ScriptedBroker
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import BrokerUnavailableError, UnexpectedError
from tidelog.protocol.schema import ApiKey
from tidelog.wire.links import Address


class Chance(random.Random):
    """Draws the largest jitter, and remembers between which bounds it was drawn."""

    def __init__(self) -> None:
        super().__init__(1)
        self.drawn: list[tuple[float, float]] = []

    def uniform(self, a: float, b: float) -> float:
        self.drawn.append((a, b))
        return b


class Doorstep:
    """Accepts connections and closes them at once; remembers when each came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def __aenter__(self) -> "Doorstep":
        self._server = await asyncio.start_server(self._refuse, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _refuse(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.times.append(asyncio.get_running_loop().time())
        writer.transport.abort()


async def test_an_address_that_fails_is_dialled_after_waits_that_double_with_jitter() -> None:
    chance = Chance()
    async with (
        Doorstep() as door,
        opened(
            door.address, rng=chance, start=False, reconnect_backoff_ms=20, reconnect_backoff_max_ms=80
        ) as cluster,
    ):
        starting = asyncio.create_task(cluster.start())
        await until(lambda: len(door.times) == 6)
        starting.cancel()
        await asyncio.wait([starting])
    gaps = [later - sooner for sooner, later in pairwise(door.times)]
    for gap, wait_ms in zip(gaps, [20, 40, 80, 80, 80], strict=True):
        assert gap >= 1.2 * wait_ms / 1000
    assert set(chance.drawn) == {(0.8, 1.2)}


@pytest.mark.parametrize(("host", "port"), [("a..b", 9092), ("a" * 64, 9092), ("127.0.0.1", 70_000)])
async def test_an_address_that_cannot_be_used_is_one_that_does_not_answer(host: str, port: int) -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        for _ in range(2):
            with pytest.raises(BrokerUnavailableError, match="cannot be used"):
                await cluster._links.connected(Address(host, port))


async def test_after_a_success_the_waits_begin_anew() -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        noted = cluster._links._backoff = Noted()  # type: ignore[assignment]
        failures = noted.failures
        usual = broker.scripts
        for _ in range(2):
            broker.scripts = {ApiKey.API_VERSIONS: cut}
            broker.cut()
            before = len(failures)
            await until(lambda before=before: len(failures) >= before + 3)  # type: ignore[misc]
            assert failures[before : before + 3] == [1, 2, 3]
            broker.scripts = usual
            await until(lambda: cluster.connection(1) is not None)


async def test_an_error_that_nobody_expects_has_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        noted = cluster._links._backoff = Noted()  # type: ignore[assignment]

        async def fail(*_: object, **__: object) -> None:
            raise MemoryError

        monkeypatch.setattr("tidelog.wire.links.open_connection", fail)
        for _ in range(3):
            with pytest.raises(MemoryError):
                await cluster.connected(1, "other")
        assert noted.failures == [1, 2, 3]
        with pytest.raises(UnexpectedError):
            cluster.raise_failure()


async def test_who_failed_just_now_is_asked_last() -> None:
    host, _, port = free_address().rpartition(":")
    async with (
        ScriptedBroker() as broker,
        opened(broker.address, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000) as cluster,
        asyncio.timeout(DEADLINE_SECONDS),
    ):
        answer: dict[str, Any] = broker.metadata([])
        answer["brokers"].append({"node_id": 2, "host": host, "port": int(port), "rack": None})
        broker.scripts[ApiKey.METADATA] = lambda _: answer
        await cluster.refresh()
        with pytest.raises(BrokerUnavailableError):
            await cluster.connected(2)
        for _ in range(20):
            connection = await cluster.connected(1)
            broker.cut()
            await until(lambda connection=connection: not connection.is_open)  # type: ignore[misc]
            await cluster.refresh()


async def test_a_leader_that_cannot_be_reached_is_a_reason_to_ask_again() -> None:
    host, _, port = free_address().rpartition(":")
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        answer = broker.metadata([])
        answer["brokers"] = [{"node_id": 1, "host": host, "port": int(port), "rack": None}]
        broker.scripts[ApiKey.METADATA] = lambda _: answer
        await cluster.refresh()
        asked = len(broker.seen(ApiKey.METADATA))
        assert cluster.connection(1) is None
        await until(lambda: len(broker.seen(ApiKey.METADATA)) > asked)
        del broker.scripts[ApiKey.METADATA]
        await until(lambda: cluster.connection(1) is not None)


async def test_an_address_is_not_dialled_more_often_because_many_ask() -> None:
    async with (
        Doorstep() as door,
        ScriptedBroker() as broker,
        opened(broker.address, reconnect_backoff_ms=100, reconnect_backoff_max_ms=100) as cluster,
    ):
        host, _, port = door.address.rpartition(":")
        answer = broker.metadata([])
        answer["brokers"] = [{"node_id": 1, "host": host, "port": int(port), "rack": None}]
        broker.scripts[ApiKey.METADATA] = lambda _: answer
        await cluster.refresh()
        began = asyncio.get_running_loop().time()
        while len(door.times) < 4:
            found = await asyncio.gather(*(cluster.connected(1) for _ in range(20)), return_exceptions=True)
            assert all(isinstance(each, BrokerUnavailableError) for each in found)
            assert cluster.connection(1) is None
    assert door.times[3] - began >= 3 * 0.08


async def test_a_connection_that_breaks_is_made_again_when_it_is_needed_and_all_are_told() -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        before = await cluster.connected(1)
        told = asyncio.Event()
        cluster.add_listener(told.set)
        broker.cut()
        await until(lambda: told.is_set() and not before.is_open)
        after = await cluster.connected(1)
        assert after is not before
        assert after.is_open


async def test_connections_to_addresses_that_no_broker_has_any_more_are_closed() -> None:
    async with ScriptedBroker() as old, ScriptedBroker() as new, opened(old.address) as cluster:
        before = await cluster.connected(1)
        old.scripts[ApiKey.METADATA] = lambda _: new.metadata([])
        await cluster.refresh()
        assert not before.is_open
        assert (await cluster.connected(1)).address == new.address
