"""A real broker at the real limit of open files: connections are refused before logs, and nothing is lost."""

import asyncio
import resource
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from faults.process import BrokerProcess, BrokerProcessError
from tests.conformance.raw import batch, connected
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

LIMIT = 256
CROWD = 400
_BROKER = (sys.executable, "-m", "tidelog.broker")


def limited(folder: Path, soft: int = LIMIT) -> BrokerProcess:
    """A broker that may have LIMIT files open; the shell leaves it `soft` of them."""
    script = f'ulimit -Sn {soft} && ulimit -Hn {LIMIT} && exec "$0" "$@"'
    settings = {"log.segment.bytes": 4096, "log.flush.offset.checkpoint.interval.ms": 100}
    return BrokerProcess(folder, settings=settings, command=("bash", "-c", script, *_BROKER))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    async with limited(tmp_path / "data", soft=64) as broker:
        yield broker


def crowd(port: int) -> list[socket.socket]:
    """Connections that ask for nothing."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(CROWD)]


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def segments(broker: BrokerProcess) -> int:
    return len(list(broker.data_dir.glob("t-0/*.log")))


async def test_a_crowd_of_idle_connections_takes_no_handle_from_producers(broker: BrokerProcess) -> None:
    assert broker.pid is not None
    assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (LIMIT, LIMIT)
    async with connected(broker.port) as client:
        await client.create()
        producer_id = await client.producer_id()
        assert await client.produce(batch("r0", producer_id, 0)) == (0, 0)
        idle = crowd(broker.port)
        try:
            await until(lambda: broker.events("connection_refused"))
            # Each record of this size begins a segment, which takes three handles.
            for sequence in range(1, 9):
                sent = batch(f"r{sequence}".ljust(3000), producer_id, sequence)
                assert await client.produce(sent) == (0, sequence)
            assert segments(broker) > 5
            await client.create("another")
            assert await client.produce(batch("v", producer_id, 0), topic="another") == (0, 0)
            served = sum(map(is_open, idle))
            assert 50 < served < LIMIT
        finally:
            for one in idle:
                one.close()
        await until_served(broker, 100)
    assert len(broker.events("connection_refused")) <= CROWD / 10
    assert broker.events("connections_not_accepted") == []
    assert await broker.terminate() == 0


async def until_served(broker: BrokerProcess, count: int) -> None:
    """That many clients at a time are answered."""
    async with asyncio.timeout(DEADLINE_SECONDS), AsyncExitStack() as clients:
        while count:
            client = await clients.enter_async_context(connected(broker.port))
            try:
                await client.ask(ApiKey.API_VERSIONS, 3)
            except (asyncio.IncompleteReadError, ConnectionError):
                continue  # The broker has not seen yet that the crowd has gone.
            count -= 1


async def test_a_start_without_enough_handles_says_what_to_raise(tmp_path: Path) -> None:
    async with limited(tmp_path / "data") as broker, connected(broker.port) as client:
        wanted = {"name": "t", "num_partitions": 50, "replication_factor": 1}
        answer = await client.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [wanted]})
        assert answer.topics[0].error_code == ErrorCode.NONE
        too_many = {"name": "u", "num_partitions": LIMIT, "replication_factor": 1}
        answer = await client.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [too_many]})
        assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION
        assert "ulimit -n" in answer.topics[0].error_message
    few = BrokerProcess(tmp_path / "data", command=("bash", "-c", 'ulimit -n 48 && exec "$0" "$@"', *_BROKER))
    with pytest.raises(BrokerProcessError, match=r"(?s)exit code 1.*too many files are open.*ulimit -n"):
        await few.start()
    async with limited(tmp_path / "data") as broker, connected(broker.port) as client:
        assert broker.events("log_damage_found") == []
        assert await client.produce(batch("v", await client.producer_id(), 0)) == (0, 0)
