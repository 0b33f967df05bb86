"""A store in another process: what its clients see, also when it ends and when they break the protocol."""

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.cluster import remote_store
from tidelog.broker.cluster.catalog import Catalog, PartitionAssignment, ProducerIdsReserved, TopicCreated
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.remote_store import RemoteStore
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import BrokerSession
from tidelog.broker.cluster.store_frames import MOST_FRAME_BYTES
from tidelog.broker.cluster.store_server import StoreServer
from tidelog.broker.cluster.store_sharing import StoreSharing
from tidelog.broker.cluster.unix_sockets import bind_at, connect_to


class Served:
    """A SQLite store that is served; it can end like a process and begin again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Longer than an address of a Unix socket may be.
        self.path = folder / ("deep" * 20) / "store.sock"
        self.path.parent.mkdir()

    async def begin(self) -> None:
        store = SqliteStore(self._folder / "cluster.db", node_id=1, is_shared=True)
        await store.load()
        self.sharing = StoreSharing(store)
        self.server = StoreServer(self.sharing)
        await self.server.start(bind_at(self.path))

    async def end(self) -> None:
        await self.server.close()
        await self.sharing.close()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    one = Served(folder)
    await one.begin()
    try:
        yield one
    finally:
        await one.end()


def topic(name: str) -> TopicCreated:
    return Catalog("c").plan_topic(name, uuid.uuid4(), (PartitionAssignment(1, 0, (1,), (1,)),), {})


async def test_a_commit_whose_store_ended_before_its_answer_is_settled_by_its_nonce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as there:
        client = RemoteStore(there.path)
        stored, lost = uuid.uuid4(), uuid.uuid4()
        await client.commit([ProducerIdsReserved(1000)], 0, nonce=stored)
        await there.end()
        with monkeypatch.context() as patch:
            patch.setattr(remote_store, "PATIENCE_SECONDS", 0.1)
            with pytest.raises(OSError):
                await client.commit([ProducerIdsReserved(2000)], 1, nonce=lost)
        await there.begin()
        assert await client.settle(stored, 0)
        assert not await client.settle(lost, 1)
        await client.close()


async def test_the_cluster_goes_on_when_the_store_was_started_again(tmp_path: Path) -> None:
    async with served(tmp_path) as there:
        store = RemoteStore(there.path)
        cluster = Cluster(await store.load(), store)
        await cluster.change(lambda _: ProducerIdsReserved(1000))
        await there.end()
        await there.begin()
        async with asyncio.timeout(DEADLINE_SECONDS):
            while cluster.catalog.next_producer_id != 3000:
                with suppress(OSError):  # What was sent before the end of the connection was noticed.
                    await cluster.change(lambda _: ProducerIdsReserved(3000))
        other = RemoteStore(there.path)
        assert (await other.load()).next_producer_id == 3000
        await other.close()
        await cluster.close()


async def test_a_session_begins_again_when_the_store_was_started_again(tmp_path: Path) -> None:
    async with served(tmp_path) as there:
        client = RemoteStore(there.path)
        await client.begin_session(BrokerSession(1, uuid.uuid4()))
        await client.commit([ProducerIdsReserved(7)], 0)
        await there.end()
        await there.begin()
        await until(lambda: client.session_revision == 1 and client.session_valid_until_ms > 0)
        await client.end_session()
        await until(lambda: not there.sharing.sessions)  # Perhaps with the connection, before its answer.
        await client.close()


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", MOST_FRAME_BYTES + 1),
        struct.pack(">I", 4) + b"null",
        struct.pack(">I", 13) + b'{"version":1}',
        struct.pack(">I", 2**32 - 1) + b"x" * 100,
        struct.pack(">I", 30) + b'{"version":1,"wants":"calls"  ',
    ],
)
async def test_who_breaks_the_protocol_is_cut_off_and_others_are_served(tmp_path: Path, sent: bytes) -> None:
    async with served(tmp_path) as there:
        client = RemoteStore(there.path)
        await client.load()
        reader, writer = await asyncio.open_unix_connection(sock=connect_to(there.path))
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await client.commit([ProducerIdsReserved(7)], 0)
        await client.close()


async def test_another_version_of_the_protocol_is_refused_with_a_reason(tmp_path: Path) -> None:
    async with served(tmp_path) as there:
        reader, writer = await asyncio.open_unix_connection(sock=connect_to(there.path))
        text = b'{"version":2,"wants":"calls"}'
        writer.write(struct.pack(">I", len(text)) + text)
        assert b"expected version 1" in await reader.read()
        writer.close()
