"""Connections on real sockets while memory is short: what is counted, who is held back, who is cut off."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.net.peers import Peer, Running, produce_frame, request_frame, serving
from tests.unit.broker.net.test_connection import PRODUCED, Held, api_versions, handlers_with
from tests.unit.broker.observability.test_metrics import value
from tests.waiting import until
from tidelog.broker.handlers.context import LateAnswer
from tidelog.broker.limits import queued_memory
from tidelog.protocol.hot import FetchResponse
from tidelog.protocol.schema import ApiKey

KIB = 1024
MIB = 1 << 20
BOUND = 4 * MIB
SETTINGS: dict[str, Any] = {"queued_max_bytes": BOUND, "socket_request_max_bytes": 2 * MIB}
LARGE = {"topics": [{"name": "n" * 32_000} for _ in range(64)]}


@pytest.fixture(autouse=True)
def _patience_is_longer_than_a_busy_machine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queued_memory, "PATIENCE_SECONDS", 1e9)


def queued(server: Running) -> int:
    return int(value(server.metrics, "tidelog_queued_bytes"))


def handlers(held: Held) -> dict[ApiKey, Any]:
    return {**handlers_with(held), ApiKey.METADATA: lambda *_: LARGE}


async def works(peer: Peer, times: int = 20) -> None:
    for _ in range(times):
        await peer.ask(ApiKey.API_VERSIONS, 3)


async def test_the_account_knows_what_arrives_waits_and_leaves_and_ends_where_it_began() -> None:
    held = Held()
    async with serving(handlers(held)) as server, await Peer.connect(server.port, limit=1) as peer:
        await peer.ask(ApiKey.API_VERSIONS, 3)
        idle = queued(server)
        assert idle <= 8 * KIB
        part = produce_frame(9, [("t", [(0, bytes(MIB))])])
        peer.send(part[:-1])
        await until(lambda: queued(server) > MIB)
        peer.send(part[-1:])
        await held.arrived(1)
        for _ in range(3):
            peer.request(ApiKey.METADATA, 1, {})
        await until(lambda: queued(server) > 6 * MIB)  # Behind the produce that waits.
        held.futures[0].set_result(PRODUCED)
        await until(lambda: queued(server) > idle + MIB)
        await peer.frame()
        for _ in range(3):
            await peer.frame()
        for connection in server._connections:
            connection.release_unused()
        assert queued(server) == idle


async def test_a_large_frame_counts_while_it_waits_behind_a_change_and_ends_with_its_connection() -> None:
    held = Held()
    async with (
        serving({**handlers(held), ApiKey.CREATE_TOPICS: held.handle}) as server,
        await Peer.connect(server.port) as peer,
    ):
        peer.request(ApiKey.CREATE_TOPICS, 5, {"topics": []})
        await held.arrived(1)
        (connection,) = server._connections
        peer.send(produce_frame(9, [("t", [(0, bytes(4 * MIB))])]))
        await until(lambda: connection._backlog)
        assert queued(server) > 4 * MIB
        held.futures[0].set_result({"topics": []})
        await held.arrived(2)
        assert queued(server) < MIB
        peer.send(produce_frame(9, [("t", [(0, bytes(4 * MIB))])])[:-1])
        await until(lambda: queued(server) > 4 * MIB)
        await peer.close()
        await until(lambda: server.metrics.connections == 0)
        assert connection._reader.capacity_bytes == 0  # Also if something still refers to it.


async def test_a_long_poll_counts_with_what_waits_for_it() -> None:
    woken = asyncio.Event()

    async def wait() -> FetchResponse:
        await woken.wait()
        return FetchResponse(0, 0, 0, [])

    async with (
        serving({ApiKey.FETCH: lambda *_: LateAnswer.of(wait(), 100_000)}) as server,
        await Peer.connect(server.port) as peer,
    ):
        for correlation_id in range(3):
            peer.request(ApiKey.FETCH, 7, {"max_bytes": 1, "topics": []}, correlation_id)
        await until(lambda: queued(server) > 300_000)
        woken.set()
        for _ in range(3):
            await peer.frame()
        assert queued(server) < 10_000


async def test_who_reads_no_answers_is_cut_off_with_an_event_that_says_how_much_it_held_and_why() -> None:
    with capture_logs() as events:
        async with serving(handlers(Held()), **SETTINGS) as server, await Peer.connect(server.port) as good:
            # The kernel decides how much of each answer is unsent: two of them may fit below the bound.
            silent = [await Peer.connect(server.port, limit=1) for _ in range(4)]
            for peer in silent:
                peer.send(request_frame(ApiKey.METADATA, 1, {}) * 20)
            await until(lambda: value(server.metrics, "tidelog_connections_cut_for_memory_total"))
            await works(good)
            await until(lambda: queued(server) <= BOUND)
            assert server.metrics.connections >= 2, "the last silent connection alone is below the bound"
            for peer in silent:
                await peer.close()
    event = next(one for one in events if one["event"] == "connection_cut_for_memory")
    assert event["peer"].startswith("127.0.0.1:")
    assert event["reason"] == "answers are not read"
    assert event["held_bytes"] > event["unsent_bytes"] > BOUND // 4
    assert event["connections_bytes"] > event["queued_max_bytes"] == BOUND


async def test_a_client_that_behaves_is_served_while_others_hold_most_of_it_and_is_not_cut() -> None:
    held = Held()
    with capture_logs() as events:
        async with serving(handlers(held), **SETTINGS) as server, await Peer.connect(server.port) as good:
            silent = [await Peer.connect(server.port) for _ in range(3)]
            for peer in silent:
                peer.send((2 * MIB).to_bytes(4, "big") + bytes(700 * KIB))
            await until(lambda: server.guard.memory.is_short)
            await works(good)
            for number in range(5):
                good.send(produce_frame(9, [("t", [(0, bytes(900 * KIB))])]))
                await held.arrived(number + 1)
                held.futures[number].set_result(PRODUCED)
                await good.frame()
            assert queued(server) <= BOUND
            for peer in silent:
                await peer.close()
            await until(lambda: not server.guard.memory.is_short)
            await works(good)
    assert [event["event"] for event in events if "cut" in event["event"]] == []


async def test_frames_that_were_held_back_are_served_when_others_are_gone() -> None:
    held = Held()
    async with serving(handlers(held), **SETTINGS) as server:
        peers = [await Peer.connect(server.port) for _ in range(8)]
        frame = produce_frame(9, [("t", [(0, bytes(1500 * KIB))])])
        for peer in peers:
            peer.send(frame)
        for number in range(len(peers)):
            await held.arrived(number + 1)
        for future in held.futures:
            future.set_result(PRODUCED)
        for peer in peers:
            await peer.frame()
            await peer.close()
    assert len(held.futures) == 8


async def test_what_is_above_a_share_waits_while_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    parked = 0

    async def wait() -> FetchResponse:
        return await asyncio.get_running_loop().create_future()

    def park(*_: object) -> LateAnswer:
        nonlocal parked
        parked += 1
        return LateAnswer.of(wait(), 100 * KIB)

    async with (
        serving({ApiKey.FETCH: park, ApiKey.API_VERSIONS: api_versions}, **SETTINGS) as server,
        await Peer.connect(server.port) as good,
    ):
        peers = [await Peer.connect(server.port) for _ in range(10)]
        for peer in peers:
            peer.send(request_frame(ApiKey.FETCH, 7, {"max_bytes": 1, "topics": []}) * 20)
        await until(lambda: parked * 100 * KIB > BOUND // 2)
        await works(good)
        assert queued(server) <= BOUND
        assert server.metrics.connections == 11
        for peer in peers:
            await peer.close()


async def test_what_a_connection_holds_may_be_asked_while_it_is_being_closed() -> None:
    async with (
        serving({ApiKey.API_VERSIONS: api_versions}) as server,
        await Peer.connect(server.port) as peer,
    ):
        await works(peer, 1)
        (connection,) = server._connections
        connection.last_arrival = 0.0
        assert not connection.held().is_sending
        connection.abort()
        assert not connection.held().is_sending
        await until(lambda: not server._connections)
        assert not connection.held().is_sending


async def test_what_waits_to_be_read_is_known_without_reading_it() -> None:
    async with (
        serving({ApiKey.API_VERSIONS: api_versions}) as server,
        await Peer.connect(server.port) as peer,
    ):
        await works(peer, 1)
        (connection,) = server._connections
        connection.hold_back(True)
        peer.request(ApiKey.API_VERSIONS, 3, {})
        connection.last_arrival = 0.0
        await until(lambda: connection.held().is_sending)
        connection.hold_back(False)
        await peer.answer(ApiKey.API_VERSIONS, 3)


async def test_a_frame_whose_client_has_disconnected_is_known_without_reading_it() -> None:
    async with (
        serving({ApiKey.API_VERSIONS: api_versions}) as server,
        await Peer.connect(server.port) as peer,
    ):
        await works(peer, 1)
        (connection,) = server._connections
        peer.send(MIB.to_bytes(4, "big"))
        await until(lambda: connection.held().missing == MIB)
        connection.hold_back(True)
        assert not connection.held().is_left
        peer.send(bytes(KIB))
        peer.writer.write_eof()
        await until(lambda: connection.held().is_left)
        server.guard.memory.share_bytes = 0
        server.guard._relieve(0.0)
        await until(lambda: not server._connections)
