"""How fast a broker copies segments to a folder and reads them from there, beside local reads.

`python -m bench.tiered [MEGABYTES]` prints the rate and the processor time of the broker for each. Reads are
Fetches of 1 MB, one after the other, of records of 1 kB; nothing decodes them. The store is a folder on the
same disk, and all is in the page cache, so the figures are those of the broker and not of a network.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

from bench.targets.process import cpu_seconds
from faults.process import BrokerProcess
from faults.wire import Wire
from tidelog.client import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from tidelog.protocol.records import iter_batches

LOG = TopicPartition("t", 0)
SEGMENT_BYTES = 32 << 20
FETCH_BYTES = 1 << 20
RECORD = b"x" * 1000
CONFIGS = {
    "segment.bytes": str(SEGMENT_BYTES),
    "remote.storage.enable": "true",
    "remote.log.copy.disable": "true",
    "local.retention.bytes": "1",
}


async def fill(address: str, megabytes: int) -> None:
    async with Producer(bootstrap_servers=address, max_batch_size=FETCH_BYTES // 4, linger_ms=5) as producer:
        for _ in range(megabytes * 1000):
            _ = await producer.send(LOG.topic, RECORD, partition=LOG.partition)


async def read(port: int, end_offset: int) -> int:
    """Bytes of the batches before `end_offset`."""
    offset = size_bytes = 0
    async with Wire.connected(port) as wire:
        while offset < end_offset:
            found = await wire.read(LOG.topic, LOG.partition, offset, FETCH_BYTES)
            records = bytes(cast("memoryview", found.records))
            size_bytes += len(records)
            offset = max(header.last_offset + 1 for _, header in iter_batches(records))
    return size_bytes


async def measured(what: str, pid: int, work: Callable[[], Awaitable[int]]) -> None:
    began, used = time.monotonic(), cpu_seconds(pid)
    megabytes = await work() / 1e6
    seconds, processor = time.monotonic() - began, cpu_seconds(pid) - used
    each_ms = processor / megabytes * 1e3
    print(f"{what}: {megabytes:.0f} MB, {megabytes / seconds:.0f} MB/s, {each_ms:.2f} ms of CPU a MB")


async def main(megabytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "remote.log.storage.system.enable": "true",
            "remote.storage.url": f"file://{folder}/remote",
            "remote.log.manager.task.interval.ms": 50,
            "log.retention.check.interval.ms": 1000,
            "log.flush.offset.checkpoint.interval.ms": 1000,
        }
        async with BrokerProcess(Path(folder, "data"), settings=settings) as broker:
            await _measure(broker, megabytes)


async def _measure(broker: BrokerProcess, megabytes: int) -> None:
    address, port, pid = f"127.0.0.1:{broker.port}", broker.port, broker.pid or 0
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(LOG.topic, 1, topic_configs=CONFIGS)])
    await fill(address, megabytes)
    async with Admin(bootstrap_servers=address) as admin, Consumer(bootstrap_servers=address) as consumer:
        # What is compared is what all segments but the newest hold.
        end = (await consumer.end_offsets([LOG]))[LOG] - SEGMENT_BYTES // len(RECORD)
        for _ in range(2):
            await measured("local read", pid, lambda: read(port, end))

        async def copy() -> int:
            resource = ConfigResource(ConfigResourceType.TOPIC, LOG.topic)
            await admin.alter_configs({resource: {"remote.log.copy.disable": "false"}})
            while ((await consumer.tiered_offsets([LOG]))[LOG][1] or 0) < end - 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            return end * len(RECORD)

        await measured("copy", pid, copy)
        while (await consumer.tiered_offsets([LOG]))[LOG][0] < end:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    for _ in range(2):
        await measured("remote read", pid, lambda: read(port, end))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 512))
