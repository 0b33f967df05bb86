"""Bad disks for a running broker, and requests for many partitions at once."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from faults.wire import FETCH_VERSION
from tests.conformance.raw import RawClient
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.storage.disk import Disk
from tidelog.protocol.hot import (
    FetchPartition,
    FetchRequest,
    encode_fetch_request,
)
from tidelog.protocol.records import batch_crc_is_valid, decode_batch, iter_batches
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import Buffer


class BadDisk(Disk):
    """Does as told in the folder of one partition, and as it should everywhere else.

    `fault` is an errno that every call of `operation` raises, `first_bytes` how much a write leaves behind
    before that; with errno 0 a write just ends there, once.
    """

    def __init__(self, folder: str = "t-0") -> None:
        self.folder = folder
        self.operation = ""
        self.fault = 0
        self.first_bytes = 0
        self.calls: list[str] = []
        self._bad: set[int] = set()

    def fail(self, operation: str, fault: int, first_bytes: int = 0) -> None:
        self.operation, self.fault, self.first_bytes = operation, fault, first_bytes

    def heal(self) -> None:
        self.operation = ""

    def _meets(self, operation: str, fd: int) -> bool:
        if fd not in self._bad:
            return False
        self.calls.append(operation)
        return operation == self.operation

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        fd = super().open(path, flags)
        self._bad.discard(fd)
        if path.parent.name == self.folder and path.suffix == ".log":
            self._bad.add(fd)
        return fd

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if not self._meets("write", fd):
            return super().writev(fd, buffers, position)
        written = os.pwrite(fd, b"".join(buffers)[: self.first_bytes], position)
        if self.fault:
            raise OSError(self.fault, os.strerror(self.fault))
        self.heal()
        return written

    def fdatasync(self, fd: int) -> None:
        if self._meets("fdatasync", fd):
            raise OSError(self.fault, os.strerror(self.fault))
        super().fdatasync(fd)

    def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
        if self._meets("read", fd):
            raise OSError(self.fault, os.strerror(self.fault))
        return super().preadv(fd, buffer, position, flags)


@asynccontextmanager
async def running(data_dir: Path, disk: Disk | None = None) -> AsyncIterator[Broker]:
    config = BrokerConfig(port=0, http_port=-1, data_dir=data_dir)
    async with await Broker.start(config, disk=disk) as broker:
        yield broker


async def fetch_everywhere(
    client: RawClient, topic: str, partitions: Sequence[int], offset: int = 0
) -> list[tuple[int, list[tuple[int, bytes | None]]]]:
    """(error code, (offset, value) of each record) by partition. Every batch served must be right."""
    parts = [FetchPartition(index, -1, offset, -1, -1, 1 << 20) for index in partitions]
    request = FetchRequest(-1, 0, 0, 50 << 20, 0, 0, -1, [(topic, parts)])
    await client.send(ApiKey.FETCH, FETCH_VERSION, encode_fetch_request(FETCH_VERSION, request))
    answer = await client.receive()
    found = {}
    for result in answer.topics[0][1]:
        data = bytes(result.records or b"")
        records = []
        for position, header in iter_batches(data):
            assert batch_crc_is_valid(data, header, position), result.partition_index
            records += [
                (record.offset, record.value)
                for record in decode_batch(data[position : position + header.size_bytes])
            ]
        found[result.partition_index] = (result.error_code, records)
    return [found[index] for index in partitions]
