"""Connections are accepted some at a time; at the limit of open files nobody is, and the loop rests."""

import asyncio
import itertools
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import pytest
from structlog.testing import capture_logs

from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.net import acceptor as acceptor_module
from tidelog.broker.net.acceptor import ACCEPTED_AT_ONCE, Acceptor
from tidelog.broker.net.endpoints import bind


class Arrivals:
    """What came in, and an acceptor that admits as long as it is told to."""

    def __init__(self) -> None:
        self.admits = True
        self.asked: list[str] = []
        self.made: list[asyncio.BaseTransport] = []
        self.socket = bind("127.0.0.1", 0, "port")
        self.port = self.socket.getsockname()[1]
        self.acceptor = Acceptor(self.socket, self._protocol, self._admits)

    def _admits(self, peer: str) -> bool:
        self.asked.append(peer)
        return self.admits

    def _protocol(self) -> asyncio.Protocol:
        arrivals = self

        class Noted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                arrivals.made.append(transport)

        return Noted()


@pytest.fixture
async def arrivals() -> AsyncIterator[Arrivals]:
    arrivals = Arrivals()
    arrivals.acceptor.start(1024)
    yield arrivals
    arrivals.acceptor.close()
    for transport in arrivals.made:
        transport.close()


@contextmanager
def clients(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connected, whether accepted or not."""
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    try:
        yield sockets
    finally:
        for each in sockets:
            each.close()


@contextmanager
def no_handle_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_crowd_is_taken_in_pieces_and_others_have_their_turns(arrivals: Arrivals) -> None:
    loop, seen = asyncio.get_running_loop(), []

    def look() -> None:
        seen.append(len(arrivals.asked))
        if len(arrivals.made) < 100:
            loop.call_soon(look)

    with clients(arrivals.port, 100):
        look()
        await until(lambda: len(arrivals.made) == 100)
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert max(steps) <= ACCEPTED_AT_ONCE


async def test_who_is_not_admitted_is_closed_and_the_next_one_may_come(arrivals: Arrivals) -> None:
    arrivals.admits = False
    with clients(arrivals.port, 3) as refused:
        await until(lambda: len(arrivals.asked) == 3)
        assert sorted(arrivals.asked) == sorted("{}:{}".format(*one.getsockname()) for one in refused)
        for one in refused:
            one.settimeout(DEADLINE_SECONDS)
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
    arrivals.admits = True
    with clients(arrivals.port, 1):
        await until(lambda: arrivals.made)


async def test_without_a_handle_those_who_connect_wait_and_one_event_tells_of_it(
    arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[OSError] = []
    pause = Acceptor._pause

    def counted(self: Acceptor, error: OSError) -> None:
        pauses.append(error)
        pause(self, error)

    monkeypatch.setattr(Acceptor, "_pause", counted)
    monkeypatch.setattr(acceptor_module, "PAUSE_SECONDS", 0.001)
    with capture_logs() as events, clients(arrivals.port, 5):
        with no_handle_left():
            await until(lambda: len(pauses) > 20)
            assert arrivals.made == []
        await until(lambda: len(arrivals.made) == 5)
    assert [event["event"] for event in events] == ["connections_not_accepted"]
    assert "too many files" in events[0]["advice"]


async def test_while_it_waits_for_a_handle_the_loop_does_not_turn_for_it(
    arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor_module, "PAUSE_SECONDS", 3600.0)
    loop = asyncio.get_running_loop()
    with clients(arrivals.port, 5), no_handle_left():
        await until(lambda: arrivals.acceptor._paused is not None)
        assert not loop.remove_reader(arrivals.socket.fileno())


async def test_once_closed_it_accepts_no_connection_and_its_address_is_free(arrivals: Arrivals) -> None:
    arrivals.acceptor.close()
    arrivals.acceptor.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", arrivals.port))
