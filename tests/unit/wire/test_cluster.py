"""The way to the cluster: when metadata is asked for again, which servers are asked, what is raised."""

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.ports import free_address
from tests.unit.wire.clusters import Noted, cut, opened
from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import (
    BrokerUnavailableError,
    Producer,
    UnexpectedError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import ConnectionLostError, TlsError

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Metadata


async def test_metadata_that_is_too_old_is_asked_for_again_by_itself() -> None:
    async with ScriptedBroker() as broker, opened(broker.address, metadata_max_age_ms=30) as cluster:
        cluster.watch_topics([TOPIC])
        broker.partitions = 4
        await until(lambda: TOPIC in cluster.image.topics)
        assert len(cluster.image.topics[TOPIC].partitions) == 4
        count = len(broker.seen(ApiKey.METADATA))
        await until(lambda: len(broker.seen(ApiKey.METADATA)) >= count + 3)


async def test_metadata_that_could_not_be_had_is_asked_for_again_when_it_is_too_old() -> None:
    async with ScriptedBroker() as broker, opened(broker.address, metadata_max_age_ms=30) as cluster:
        failed = asyncio.Event()

        def fail(request: Request) -> None:
            failed.set()
            cut(request)

        broker.scripts[ApiKey.METADATA] = fail
        cluster.request_refresh()
        await failed.wait()
        del broker.scripts[ApiKey.METADATA]
        cluster.watch_topics([TOPIC])
        await until(lambda: TOPIC in cluster.image.topics)


async def test_a_refresh_asked_for_while_another_fails_is_made_after_it() -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        asked_again = asyncio.Event()

        async def fail(request: Request) -> None:
            cluster.request_refresh()
            asked_again.set()
            del broker.scripts[ApiKey.METADATA]
            cut(request)

        cluster._links._on_trouble = lambda: None
        broker.scripts[ApiKey.METADATA] = fail
        cluster.watch_topics([TOPIC])
        cluster.request_refresh()
        await asked_again.wait()
        await until(lambda: TOPIC in cluster.image.topics)


async def test_a_listener_that_raises_keeps_no_other_from_being_called_and_is_reported_once() -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        left, calls = [KeyError("a")], 0

        def fail() -> None:
            if left:
                raise left.pop()

        def count() -> None:
            nonlocal calls
            calls += 1

        cluster.add_listener(fail)
        cluster.add_listener(count)
        cluster.on_failure = count
        await cluster.refresh()
        assert calls == 2
        with pytest.raises(UnexpectedError, match="KeyError"):
            cluster.raise_failure()
        cluster.raise_failure()


async def test_whoever_asks_while_metadata_is_under_way_shares_the_next_request() -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        count = len(broker.seen(ApiKey.METADATA))
        release = broker.hold(ApiKey.METADATA)
        first = asyncio.create_task(cluster.refresh())
        await until(lambda: len(broker.seen(ApiKey.METADATA)) == count + 1)
        others = [asyncio.create_task(cluster.refresh()) for _ in range(20)]
        cluster.request_refresh()
        release.set()
        await asyncio.gather(first, *others)
        assert len(broker.seen(ApiKey.METADATA)) == count + 2


async def test_refreshes_that_tell_nothing_new_come_more_and_more_slowly() -> None:
    loop = asyncio.get_running_loop()
    async with (
        ScriptedBroker() as broker,
        opened(broker.address, retry_backoff_ms=20, retry_backoff_max_ms=80) as cluster,
    ):
        await cluster.refresh()
        cluster.add_listener(cluster.request_refresh)
        times: list[float] = []

        def note(request: Request) -> dict[str, object]:
            times.append(loop.time())
            return broker.metadata([each.name for each in request.values.topics])

        broker.scripts[ApiKey.METADATA] = note
        cluster.request_refresh()
        await until(lambda: len(times) == 5)
        gaps = [later - sooner for sooner, later in pairwise(times)]
        assert gaps[1] >= 0.8 * 0.040
        assert min(gaps[2:]) >= 0.8 * 0.080


async def test_a_leader_that_is_no_broker_is_a_reason_to_ask_again() -> None:
    key = TopicPartition(TOPIC, 0)
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        broker.scripts[ApiKey.METADATA] = lambda _: broker.metadata([TOPIC], leader=2)
        cluster.watch_topics([TOPIC])
        await cluster.refresh()
        assert cluster.image.leader(key) == 2
        del broker.scripts[ApiKey.METADATA]
        assert cluster.connection(2) is None
        await until(lambda: cluster.image.leader(key) == 1)
        with pytest.raises(BrokerUnavailableError, match="names no broker with id 7"):
            await cluster.connected(7)


async def test_a_topic_that_appears_is_found() -> None:
    async with ScriptedBroker() as broker, opened(broker.address, allow_auto_create_topics=True) as cluster:
        asked = 0

        def later(_: Request) -> dict[str, object]:
            nonlocal asked
            asked += 1
            return broker.metadata([TOPIC], error_code=0 if asked > 6 else UNKNOWN)

        broker.scripts[ApiKey.METADATA] = later
        assert len((await cluster.topic(TOPIC)).partitions) == 1


async def test_a_broker_is_asked_to_create_only_the_topic_that_a_caller_wants() -> None:
    async with ScriptedBroker() as broker, opened(broker.address, allow_auto_create_topics=True) as cluster:
        broker.scripts[ApiKey.METADATA] = lambda request: broker.metadata(
            [each.name for each in request.values.topics]
        )
        await cluster.topic("a")
        await cluster.topic("b")
        await cluster.refresh()
        cluster.request_refresh("b")
        await cluster.refresh()
        asked = [request.values for request in broker.seen(ApiKey.METADATA)]
        assert [(*(each.name for each in one.topics), one.allow_auto_topic_creation) for one in asked] == [
            (False,),
            ("a", True),
            ("b", True),
            ("a", False),
            ("a", "b", False),
            ("b", True),
            ("a", False),
            ("a", "b", False),
        ]


@pytest.mark.parametrize("name", ["x" * 32_768, "\udcff", None, 5, b"t"])
async def test_what_is_no_name_is_refused_and_spoils_no_request_for_other_topics(name: Any) -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        with pytest.raises((TypeError, ValueError), match="expected"):
            await cluster.topic(name)
        with pytest.raises((TypeError, ValueError), match="expected"):
            cluster.watch_topics([name])
        assert (await cluster.topic(TOPIC)).name == TOPIC


async def test_a_topic_that_nobody_creates_is_unknown_soon_and_not_asked_for_any_more() -> None:
    async with ScriptedBroker() as broker, opened(broker.address, request_timeout_ms=3_600_000) as cluster:
        broker.scripts[ApiKey.METADATA] = lambda request: broker.metadata(
            [each.name for each in request.values.topics], error_code=UNKNOWN
        )
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(UnknownTopicError, match="nowhere"):
                await cluster.topic("nowhere")
        await cluster.refresh()
        assert broker.seen(ApiKey.METADATA)[-1].values.topics == []


async def test_a_watched_topic_that_stays_unknown_is_reported_once() -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        broker.scripts[ApiKey.METADATA] = lambda _: broker.metadata(["later"], error_code=UNKNOWN)
        cluster.watch_topics(["later"])
        with capture_logs() as events:
            for _ in range(4):
                await cluster.refresh()
            assert "topic_not_found" not in [each["event"] for each in events]
            for _ in range(4):
                await cluster.refresh()
        assert [each["topic"] for each in events if each["event"] == "topic_not_found"] == ["later"]


async def test_a_topic_that_could_not_be_asked_for_is_not_called_unknown() -> None:
    async with ScriptedBroker() as broker, opened(broker.address, request_timeout_ms=1_000) as cluster:
        broker.scripts[ApiKey.METADATA] = lambda _: None
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises((BrokerUnavailableError, ConnectionLostError), match=broker.address):
                await cluster.topic(TOPIC)


async def test_after_a_quiet_time_a_refresh_is_not_slowed_by_what_was_before() -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        noted = cluster._retry = Noted()  # type: ignore[assignment]
        for useless in range(1, 5):
            await cluster.refresh()
            assert cluster._useless_refreshes == useless
        cluster.request_refresh()
        await until(lambda: cluster._refresh_task is None)
        assert noted.failures == [4]
        cluster._refreshed_at -= 1
        cluster.request_refresh()
        assert noted.failures == [4, 0]


async def test_a_topic_that_a_broker_does_not_know_is_unknown_also_if_the_broker_then_falls_silent() -> None:
    async with (
        ScriptedBroker() as broker,
        opened(broker.address, request_timeout_ms=300, allow_auto_create_topics=True) as cluster,
    ):
        asked = 0

        def once(_: Request) -> dict[str, object] | None:
            nonlocal asked
            asked += 1
            return broker.metadata([TOPIC], error_code=UNKNOWN) if asked == 1 else None

        broker.scripts[ApiKey.METADATA] = once
        with pytest.raises(UnknownTopicError):
            await cluster.topic(TOPIC)


# Servers to begin with


async def test_a_server_that_is_dead_does_not_keep_from_the_next(broker: ScriptedBroker) -> None:
    dead = [free_address() for _ in range(3)]
    for seed in range(5):
        async with opened(*dead, broker.address, rng=random.Random(seed)) as cluster:
            assert set(cluster.image.nodes) == {1}


async def test_when_all_servers_are_dead_the_error_names_them_after_the_time_given() -> None:
    dead = [free_address(), free_address()]
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(BrokerUnavailableError) as raised:
        async with opened(*dead, request_timeout_ms=200):
            pass
    assert loop.time() - began >= 0.15
    assert all(address in str(raised.value) for address in dead)
    assert "200 ms" in str(raised.value)
    assert raised.value.retriable


async def test_servers_that_all_refuse_end_a_start_after_a_short_time() -> None:
    dead = [free_address(), free_address()]
    with pytest.raises(BrokerUnavailableError, match="Connection refused") as raised:
        async with opened(*dead, request_timeout_ms=3_600_000, bootstrap_refused_timeout_ms=20):
            pass
    assert all(address in str(raised.value) for address in dead)


async def test_a_start_waits_for_a_server_that_does_not_answer_though_another_one_refuses(
    broker: ScriptedBroker,
) -> None:
    broker.scripts[ApiKey.API_VERSIONS] = lambda _: None
    with pytest.raises(BrokerUnavailableError, match="within 300 ms"):
        async with opened(
            free_address(), broker.address, request_timeout_ms=300, connect_timeout_ms=20,
            bootstrap_refused_timeout_ms=0,
        ):  # fmt: skip
            pass


async def test_a_server_that_breaks_off_the_handshake_has_no_tls() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(TlsError, match="closes the connection"):
            async with opened(address, security_protocol="SSL", bootstrap_refused_timeout_ms=20):
                pass


async def test_a_start_that_goes_on_trying_says_why_it_waits() -> None:
    long_ms = 3_600_000
    async with opened(
        free_address(), start=False, request_timeout_ms=long_ms, bootstrap_refused_timeout_ms=long_ms
    ) as cluster:
        with capture_logs() as events:
            start = asyncio.create_task(cluster.start())
            await until(lambda: "broker_not_reached" in [each["event"] for each in events])
            start.cancel()
            await asyncio.wait([start])
    [event] = [each for each in events if each["event"] == "broker_not_reached"]
    assert (event["log_level"], event["request_timeout_ms"]) == ("warning", 3_600_000)
    assert "Connection refused" in event["error"]


async def test_servers_that_accept_and_say_nothing_hold_nobody_longer_than_the_time_given() -> None:
    async with ScriptedBroker() as first, ScriptedBroker() as second:
        for broker in (first, second):
            broker.scripts[ApiKey.API_VERSIONS] = lambda _: None
        with pytest.raises(BrokerUnavailableError, match=first.address) as raised:
            async with opened(first.address, second.address, request_timeout_ms=200):
                pass
        assert "200 ms" in str(raised.value)


async def test_a_silent_server_is_named_with_the_time_it_was_given(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.API_VERSIONS] = lambda _: None
    with pytest.raises(BrokerUnavailableError, match="no answer within 50 ms"):
        async with opened(broker.address, connect_timeout_ms=50, request_timeout_ms=300):
            pass


async def test_a_server_that_comes_up_while_a_client_starts_is_found() -> None:
    broker = ScriptedBroker()
    broker.port = int(free_address().rpartition(":")[2])
    async with opened(broker.address, start=False, reconnect_backoff_max_ms=50) as cluster:
        starting = asyncio.create_task(cluster.start())
        await until(lambda: bool(cluster._links._links) and cluster._useless_refreshes > 1)
        async with broker:
            await starting
            assert set(cluster.image.nodes) == {1}


async def test_when_every_node_is_gone_the_servers_of_the_beginning_are_asked_again() -> None:
    new = ScriptedBroker()
    new.port = int(free_address().rpartition(":")[2])
    async with ScriptedBroker() as old, opened(old.address, new.address) as cluster:
        assert cluster.image.nodes[1].port == old.port
        old.scripts[ApiKey.API_VERSIONS] = lambda _: None
        old._server.close()  # type: ignore[union-attr]
        old.cut()
        async with new:
            await until(lambda: cluster.image.nodes[1].port == new.port)
            assert (await cluster.connected(1)).address == new.address


async def test_a_broker_may_ask_its_clients_to_begin_anew() -> None:
    async with ScriptedBroker() as known, ScriptedBroker() as server:
        # The server of the beginning names another node than itself.
        server.scripts[ApiKey.METADATA] = lambda _: known.metadata([])
        async with opened(server.address) as cluster:
            await until(lambda: cluster.image.nodes[1].port == known.port)
            await cluster.connected(1)
            known.scripts[ApiKey.METADATA] = lambda _: {
                **known.metadata([]),
                "error_code": ErrorCode.REBOOTSTRAP_REQUIRED,
            }
            server.scripts[ApiKey.METADATA] = lambda _: server.metadata([])
            await cluster.refresh()
            assert cluster.image.nodes[1].port == server.port


async def test_a_client_that_may_not_bootstrap_again_waits_for_the_brokers_that_it_knows() -> None:
    async with ScriptedBroker() as known, ScriptedBroker() as server:
        server.scripts[ApiKey.METADATA] = lambda _: known.metadata([])
        async with opened(
            server.address, metadata_recovery_strategy="none", reconnect_backoff_max_ms=50
        ) as cluster:
            asked = len(server.seen(ApiKey.METADATA))
            await cluster.refresh()
            known.scripts[ApiKey.METADATA] = cut
            with pytest.raises(ConnectionLostError):
                await cluster.refresh()
            assert len(server.seen(ApiKey.METADATA)) == asked


async def test_a_broker_that_hangs_does_not_hold_up_who_asks_for_metadata() -> None:
    async with (
        ScriptedBroker() as first,
        ScriptedBroker() as second,
        opened(first.address, second.address, request_timeout_ms=3_600_000) as cluster,
    ):
        for hanging, other in ((first, second), (second, first)):
            hanging.scripts[ApiKey.METADATA] = lambda _: None
            other.scripts.pop(ApiKey.METADATA, None)
            await cluster.refresh()


# What brokers lack


async def test_an_api_that_a_broker_lacks_says_more_than_that_another_is_dead() -> None:
    async with ScriptedBroker(InitProducerId=(90, 99)) as broker:
        for seed in range(4):
            rng = random.Random(seed)
            async with opened(free_address(), broker.address, rng=rng) as cluster:
                with pytest.raises(UnsupportedVersionError, match="InitProducerId"):
                    await cluster.call_any(ApiKey.INIT_PRODUCER_ID, {})


async def test_an_idempotent_producer_at_a_broker_without_producer_ids_says_what_is_missing() -> None:
    dead = free_address()
    async with ScriptedBroker(InitProducerId=(90, 99)) as broker:
        async with Producer(bootstrap_servers=[dead, broker.address]) as producer:
            delivery = await producer.send(TOPIC, b"x")
            with pytest.raises(UnsupportedVersionError, match=f"{broker.address} does not serve InitProd"):
                await delivery
        assert broker.seen(ApiKey.PRODUCE) == []
        async with Producer(bootstrap_servers=broker.address, enable_idempotence=False) as producer:
            assert (await producer.send_and_wait(TOPIC, b"x")).offset == 0
