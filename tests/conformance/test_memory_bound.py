"""What all connections together make a broker process hold, measured from outside, while somebody works."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from faults.process import BrokerProcess
from faults.wire import Wire
from tests.conformance.raw import RawClient, batch, connected
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import FetchPartition, FetchRequest, encode_fetch_request
from tidelog.protocol.schema import ApiKey

MIB = 1 << 20
BOUND_BYTES = 64 * MIB
MARGIN_BYTES = 64 * MIB
"""For what the account does not know: objects around the bytes, and what the allocator keeps."""
SETTINGS = {"queued.max.bytes": BOUND_BYTES, "socket.request.max.bytes": 8 * MIB}
LARGE_TOPIC_BATCHES = 24
PARTITIONS = 100
BATCHES_BESIDE = 60


class Crowd:
    """Connections that send and never read."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._sockets: list[socket.socket] = []

    async def send(self, connections: int, data: bytes) -> None:
        """From each of so many new connections, as much of `data` as the broker takes."""
        loop = asyncio.get_running_loop()
        opened = []
        for _ in range(connections):
            one = socket.socket()
            one.setblocking(False)
            self._sockets.append(one)
            opened.append(one)
            await loop.sock_connect(one, ("127.0.0.1", self.port))
        sending = [asyncio.create_task(_send_all(loop, one, data)) for one in opened]
        _, unfinished = await asyncio.wait(sending, timeout=3)
        for task in unfinished:
            task.cancel()

    def close(self) -> None:
        for one in self._sockets:
            one.close()


async def _send_all(loop: asyncio.AbstractEventLoop, one: socket.socket, data: bytes) -> None:
    try:
        await loop.sock_sendall(one, data)
    except ConnectionError:
        return  # It was cut off.


def fetch_frame(topic: str, partitions: int, max_bytes: int, max_wait_ms: int) -> bytes:
    wanted = [FetchPartition(index, -1, 0, -1, -1, max_bytes) for index in range(partitions)]
    request = FetchRequest(-1, max_wait_ms, 1, max_bytes, 0, 0, -1, [(topic, wanted)])
    return b"".join(encode_request_frame(ApiKey.FETCH, 11, 1, "crowd", encode_fetch_request(11, request)))


async def announce_and_send_a_byte(crowd: Crowd) -> None:
    await crowd.send(600, (2 * MIB).to_bytes(4, "big") + b"x")


async def send_a_part_of_a_large_request(crowd: Crowd) -> None:
    await crowd.send(100, (8 * MIB).to_bytes(4, "big") + bytes(3 * MIB))


async def never_read_large_answers(crowd: Crowd) -> None:
    await crowd.send(40, fetch_frame("large", 1, 50 * MIB, 0) * 4)


async def park_fetches_of_many_partitions(crowd: Crowd) -> None:
    await crowd.send(30, fetch_frame("many", PARTITIONS, 1, 60_000) * 100)


@asynccontextmanager
async def prepared(data_dir: Path) -> AsyncIterator[BrokerProcess]:
    broker = BrokerProcess(data_dir, settings=SETTINGS)
    await broker.start()
    try:
        async with connected(broker.port) as client:
            await client.create("t")
            await client.create("large")
            wanted = {"name": "many", "num_partitions": PARTITIONS, "replication_factor": 1}
            await client.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [wanted]})
            for _ in range(LARGE_TOPIC_BATCHES):
                assert (await client.produce(batch("x" * (MIB - 100), -1, -1, epoch=-1), topic="large"))[
                    0
                ] == 0
        yield broker
    finally:
        await broker.kill_9()


def resident_bytes(broker: BrokerProcess) -> int:
    """Without pages of files, which are mapped and stay the page cache's."""
    fields = Path(f"/proc/{broker.pid}/status").read_text().split()
    return int(fields[fields.index("RssAnon:") + 1]) * 1024


class Worker:
    """A client that behaves: it produces and reads on one connection, and notes how large the broker is."""

    def __init__(self, client: RawClient, broker: BrokerProcess) -> None:
        self._client = client
        self._broker = broker
        self.sent: list[bytes] = []
        self.largest_bytes = 0

    async def work(self, batches: int) -> None:
        producer_id = await self._client.producer_id()
        for sequence in range(batches):
            value = f"{len(self.sent)}-" + "v" * 10_000
            assert await self._client.produce(batch(value, producer_id, sequence)) == (0, len(self.sent))
            self.sent.append(value.encode())
            found = await self._client.fetch(len(self.sent) - 1)
            assert found.error_code == 0
            assert value.encode() in bytes(found.records)  # type: ignore[arg-type]
            self.largest_bytes = max(self.largest_bytes, resident_bytes(self._broker))


@pytest.mark.parametrize(
    "attack",
    [
        announce_and_send_a_byte,
        send_a_part_of_a_large_request,
        never_read_large_answers,
        park_fetches_of_many_partitions,
    ],
)
async def test_memory_stays_bounded_and_who_behaves_works_on_and_loses_nothing(
    tmp_path: Path, attack: Callable[[Crowd], Awaitable[None]]
) -> None:
    async with prepared(tmp_path) as broker, connected(broker.port) as client:
        worker = Worker(client, broker)
        await worker.work(20)
        before = worker.largest_bytes
        crowd = Crowd(broker.port)
        try:
            attacking = asyncio.ensure_future(attack(crowd))
            while not attacking.done():
                await worker.work(5)
            await attacking
            await worker.work(BATCHES_BESIDE)
        finally:
            crowd.close()
        await worker.work(5)
        cut = broker.events("connection_cut_for_memory")
    grown = worker.largest_bytes - before
    print(f"{attack.__name__}: {grown / MIB:.0f} MiB more, {len(cut)} events of connections cut off")
    for event in cut[:3]:
        print(event)
    assert grown < BOUND_BYTES + MARGIN_BYTES
    assert all(event["held_bytes"] > MIB // 4 for event in cut)


async def test_answers_take_the_memory_of_earlier_ones_again(tmp_path: Path) -> None:
    """New pages for each answer would cost more than the rest of a Fetch."""
    answers, answer_bytes = 50, 3 * MIB
    async with prepared(tmp_path) as broker, AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(Wire.connected(broker.port)) for _ in range(4)]

        async def read(count: int) -> None:
            for _ in range(count):
                await asyncio.gather(*(each.read("large", 0, 0, answer_bytes) for each in readers))

        await read(5)
        before = minor_faults(broker)
        await read(answers)
        pages = len(readers) * answers * answer_bytes // os.sysconf("SC_PAGE_SIZE")
        assert minor_faults(broker) - before < pages / 10


def minor_faults(broker: BrokerProcess) -> int:
    """How many pages the process took that were not read from a disk."""
    return int(Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()[7])
