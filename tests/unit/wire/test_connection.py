"""One connection: every request ends exactly once, whatever the broker does."""

import asyncio
import struct

import pytest

from tests.ports import free_port
from tests.unit.wire.scripted import Request, ScriptedBroker
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.wire.asked_apis import OWN_APIS, AskedApis, Versions
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import (
    BrokerUnavailableError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    UnexpectedError,
    UnsupportedVersionError,
)
from tidelog.wire.opening import open_connection

NO_TOPICS: dict[str, object] = {"topics": []}


class Opened:
    """A connection to `broker` and why it ended."""

    def __init__(self, broker: ScriptedBroker, *, asked: AskedApis = OWN_APIS, **settings: object) -> None:
        self._broker = broker
        self._asked = asked
        self._settings = {"request_timeout_ms": 10_000, "connect_timeout_ms": 10_000, **settings}
        self.ended: asyncio.Future[ClientError] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> "Opened":
        self.connection = await open_connection(
            "127.0.0.1",
            self._broker.port,
            ClusterConfig(**self._settings),  # type: ignore[arg-type]
            self._asked,
            on_close=lambda _, error: self.ended.done() or self.ended.set_result(error),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.connection.close()


async def test_no_version_is_used_that_its_user_does_not_ask_for_whatever_has_codecs() -> None:
    asked = OWN_APIS | {ApiKey.METADATA: Versions(0, 9)}
    async with ScriptedBroker() as broker, Opened(broker, asked=asked) as opened:
        assert opened.connection.version(ApiKey.METADATA) == 9
        assert not opened.connection.supports(ApiKey.CREATE_TOPICS)


async def test_both_sides_agree_on_the_highest_common_version() -> None:
    asked = OWN_APIS | {ApiKey.PRODUCE: Versions(3, 12)}
    async with (
        ScriptedBroker(Metadata=(0, 9), Produce=(0, 2)) as broker,
        Opened(broker, asked=asked) as opened,
    ):
        assert opened.connection.version(ApiKey.METADATA) == 9
        assert not opened.connection.supports(ApiKey.PRODUCE)
        with pytest.raises(UnsupportedVersionError, match="Produce"):
            opened.connection.version(ApiKey.PRODUCE)
        with pytest.raises(UnsupportedVersionError):
            opened.connection.version(ApiKey.METADATA, at_least=10)


async def test_an_older_broker_names_its_version_and_is_asked_again(broker: ScriptedBroker) -> None:
    def refuse_new(request: Request) -> dict[str, object]:
        if request.version > 2:
            return {
                "_version": 0,
                "error_code": ErrorCode.UNSUPPORTED_VERSION,
                "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 2}],
            }
        return {"api_keys": [{"api_key": 3, "min_version": 0, "max_version": 5}]}

    broker.scripts[ApiKey.API_VERSIONS] = refuse_new
    async with Opened(broker) as opened:
        assert [request.version for request in broker.requests] == [4, 2]
        assert opened.connection.version(ApiKey.METADATA) == 5


async def test_a_broker_that_names_no_version_is_asked_at_0(broker: ScriptedBroker) -> None:
    def refuse_new(request: Request) -> dict[str, object]:
        if request.version > 0:
            return {"_version": 0, "error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": []}
        return {"api_keys": [{"api_key": 3, "min_version": 0, "max_version": 1}]}

    broker.scripts[ApiKey.API_VERSIONS] = refuse_new
    async with Opened(broker):
        assert [request.version for request in broker.requests] == [4, 0]


async def test_nobody_there_is_an_error_that_names_the_address() -> None:
    port = free_port()
    with pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{port}"):
        await open_connection(
            "127.0.0.1",
            port,
            ClusterConfig(request_timeout_ms=1_000, connect_timeout_ms=1_000),
            OWN_APIS,
            on_close=lambda *_: None,
        )


async def test_a_peer_that_accepts_and_says_nothing_is_given_up(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.API_VERSIONS] = lambda _: None
    with pytest.raises(BrokerUnavailableError):
        async with Opened(broker, connect_timeout_ms=50):
            pass


async def test_requests_are_answered_by_correlation_id_and_pipelined() -> None:
    async with ScriptedBroker() as broker, Opened(broker) as opened:
        release = broker.hold(ApiKey.METADATA)
        calls = [
            asyncio.ensure_future(opened.connection.call(ApiKey.METADATA, {"topics": [{"name": name}]}))
            for name in "abc"
        ]
        await asyncio.sleep(0)
        assert opened.connection.in_flight == 3
        release.set()
        answers = await asyncio.gather(*calls)
        assert [answer.topics[0].name for answer in answers] == ["a", "b", "c"]
        assert opened.connection.in_flight == 0


async def test_the_memory_of_a_large_answer_is_freed() -> None:
    async with ScriptedBroker() as broker, Opened(broker) as opened:
        topics = [{"name": "t" * 30_000, "partitions": []}] * 100
        broker.scripts[ApiKey.METADATA] = lambda _: {"brokers": [], "topics": topics}
        answer = await opened.connection.call(ApiKey.METADATA, NO_TOPICS)
        assert len(answer.topics) == 100
        assert opened.connection._reader.capacity_bytes < 100_000


async def test_a_late_answer_closes_the_connection_and_fails_all_that_wait() -> None:
    async with ScriptedBroker() as broker, Opened(broker) as opened:
        broker.scripts[ApiKey.METADATA] = lambda _: None
        slow = asyncio.ensure_future(opened.connection.call(ApiKey.METADATA, NO_TOPICS, timeout_ms=10_000))
        fast = asyncio.ensure_future(opened.connection.call(ApiKey.METADATA, NO_TOPICS, timeout_ms=30))
        for call in (fast, slow):
            with pytest.raises(RequestTimeoutError, match="Metadata"):
                await call
        assert isinstance(await opened.ended, RequestTimeoutError)
        assert not opened.connection.is_open


async def test_a_cut_fails_all_that_wait_at_once_and_says_so_once() -> None:
    async with ScriptedBroker() as broker, Opened(broker) as opened:

        def cut(_: Request) -> None:
            broker.cut()

        broker.scripts[ApiKey.METADATA] = cut
        calls = [asyncio.ensure_future(opened.connection.call(ApiKey.METADATA, NO_TOPICS)) for _ in range(3)]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, ConnectionLostError)
            assert result.retriable
        await opened.ended
        with pytest.raises(ConnectionLostError, match="closed"):
            await opened.connection.call(ApiKey.METADATA, NO_TOPICS)


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">i", -5),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ii", 4, 12345),
        struct.pack(">iib", 5, 1, 0) + b"",
        struct.pack(">i", 2) + b"xx",
    ],
    ids=["negative length", "huge length", "unknown correlation id", "empty body", "no header"],
)
async def test_bytes_that_are_no_answer_close_the_connection(answer: bytes) -> None:
    async with ScriptedBroker() as broker, Opened(broker) as opened:

        def garbage(_: Request) -> None:
            for writer in broker._writers:
                writer.write(answer)

        broker.scripts[ApiKey.METADATA] = garbage
        with pytest.raises(ConnectionLostError, match="malformed"):
            await opened.connection.call(ApiKey.METADATA, NO_TOPICS)
        assert isinstance(await opened.ended, ConnectionLostError)


async def test_an_answer_that_its_receiver_cannot_handle_ends_the_call() -> None:
    async with ScriptedBroker() as broker, Opened(broker) as opened:
        call = opened.connection.call(ApiKey.METADATA, NO_TOPICS, decode=lambda *_: {}["absent"])
        with pytest.raises(UnexpectedError) as raised:
            await call
        assert isinstance(raised.value.__cause__, KeyError)
        assert isinstance(await opened.ended, ConnectionLostError)


async def test_cancelling_a_call_leaves_the_connection_usable() -> None:
    async with ScriptedBroker() as broker, Opened(broker) as opened:
        release = broker.hold(ApiKey.METADATA)
        call = asyncio.ensure_future(opened.connection.call(ApiKey.METADATA, NO_TOPICS))
        await asyncio.sleep(0)
        call.cancel()
        release.set()
        answer = await opened.connection.call(ApiKey.METADATA, NO_TOPICS)
        assert answer.cluster_id == "scripted"
