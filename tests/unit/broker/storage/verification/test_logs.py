"""Damage in the batches and segments of a log is found, named by file and byte, and nothing else is."""

import asyncio
import errno
import os
from pathlib import Path

from tests.conformance.raw import batch, connected
from tests.unit.broker.storage.verification.damaged import Folder, has
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.file_reader import CHUNK_BYTES


def test_nothing_is_changed(folder: Folder) -> None:
    def image() -> dict[str, tuple[bytes, int]]:
        return {
            str(path): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in folder.path.rglob("*")
            if path.is_file()
        }

    before = image()
    folder.flip(folder.logs[0], 200)
    damaged = image()
    folder.verify()
    assert image() == damaged
    assert before.keys() == damaged.keys()


def test_a_batch_whose_bytes_never_arrived_is_what_a_crash_leaves_if_nothing_follows(folder: Folder) -> None:
    folder.crash()
    position, header = folder.places(folder.last_log)[-1]
    data = bytearray(folder.last_log.read_bytes())
    data[position + 61 :] = bytes(header.size_bytes - 61)
    folder.last_log.write_bytes(data)
    has(folder, rf"warning t-0/.* at byte {position}: the CRC of the batch .* is wrong: .*")
    folder.flip(folder.last_log, folder.places(folder.last_log)[-2][0] + 70)
    has(folder, r"damage t-0/.*: the CRC of the batch .* is wrong: .*")


def test_a_file_that_cannot_be_read_is_named_and_the_rest_goes_on(folder: Folder) -> None:
    class Failing(Disk):
        def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
            if path.suffix == ".log" and path.parent.name == "t-0":
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return super().open(path, flags)

    folder.disk = Failing()
    lines = has(folder, r"damage t-0/0{20}\.log: cannot be read: Input/output error")
    assert not any("u-0" in line for line in lines)
    assert folder.totals.batches == 1


def test_a_large_batch_is_read_in_pieces(tmp_path: Path) -> None:
    class Measured(Disk):
        largest = 0

        def read(self, fd: int, size: int, position: int, *, nowait: bool = False) -> memoryview:
            self.largest = max(self.largest, size)
            return super().read(fd, size, position, nowait=nowait)

    async def write() -> None:
        config = BrokerConfig(data_dir=tmp_path / "data", port=0, http_port=-1, message_max_bytes=1 << 24)
        async with await Broker.start(config) as broker, connected(broker.port) as client:
            await client.create()
            assert await client.produce(batch("v" * (3 * CHUNK_BYTES), -1, -1)) == (0, 0)

    asyncio.run(write())
    folder = Folder(tmp_path / "data", Measured())
    assert folder.lines() == []
    assert isinstance(folder.disk, Measured)
    assert folder.disk.largest == CHUNK_BYTES
    assert folder.totals.log_bytes > 3 * CHUNK_BYTES
