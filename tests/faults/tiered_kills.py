"""kill -9 of a broker while it copies segments to remote storage: nothing is lost, doubled or left over.

Run by its path, with KILLS and SEED in the environment; `make test` leaves it out.
"""

import asyncio
import os
import random
from pathlib import Path

from faults.process import BrokerProcess
from tests.waiting import until
from tidelog.client import Admin, Consumer, NewTopic, Producer
from tidelog.remote_log.manifest import Manifest, decode

KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("SEED", "1"))
QUICK = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "20",
    "log.retention.check.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
}
TIERED = {"segment.bytes": "20000", "remote.storage.enable": "true", "local.retention.bytes": "40000"}


def manifest_in(remote: Path) -> Manifest:
    return decode(max(remote.rglob("manifest-*.json")).read_bytes())


def left_over(remote: Path) -> set[str]:
    """Names that are in the manifest or in the folder, and not in both."""
    named = {each.name + suffix for each in manifest_in(remote).segments for suffix in (".log", ".indexes")}
    return named ^ {
        path.name for path in remote.rglob("*") if path.is_file() and not path.name.startswith("manifest-")
    }


async def test_kills_while_segments_are_copied(tmp_path: Path) -> None:
    moments, remote = random.Random(SEED), tmp_path / "remote"
    broker = BrokerProcess(tmp_path / "data", settings={**QUICK, "remote.storage.url": f"file://{remote}"})
    await broker.start()
    address = f"127.0.0.1:{broker.port}"
    sent: list[bytes] = []
    is_over = asyncio.Event()

    async def write() -> None:
        async with Producer(bootstrap_servers=address, delivery_timeout_ms=600_000) as producer:
            while not is_over.is_set():
                value = b"%08d" % len(sent) + b"x" * 200
                await producer.send_and_wait("t", value, partition=0)
                sent.append(value)

    try:
        async with Admin(bootstrap_servers=address) as admin:
            await admin.create_topics([NewTopic("t", 1, topic_configs=TIERED)])
        writer = asyncio.create_task(write())
        for _ in range(KILLS):
            await asyncio.sleep(moments.uniform(0.3, 1.5))
            await broker.kill_9()
            await broker.start()
        written = len(sent) + 200
        await until(lambda: len(sent) > written)
        is_over.set()
        await writer
        async with Consumer("t", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            assert [(await consumer.getone()).value for _ in sent] == sent
        await until(lambda: list(remote.rglob("manifest-*.json")) and not left_over(remote))
        print(f"{KILLS} kills, {len(sent)} records, {len(manifest_in(remote).segments)} remote segments")
    finally:
        await broker.kill_9()
