"""Upkeep leaves the loop to the clients: what is slow runs in threads, what is long in steps."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.unit.broker import test_services
from tests.unit.broker.storage.support import batch, header
from tidelog.broker.clock import clock_ms
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.services import Services
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.protocol.types import NO_OFFSET, Buffer

PRODUCERS = 5_000
MOST_EXPIRED_PER_STEP = 1_000


class WatchedDisk(Disk):
    """Notes which files were replaced and which unlinked on the thread that made it, and which elsewhere."""

    def __init__(self) -> None:
        self._home = threading.get_ident()
        self.here: list[Path] = []
        self.elsewhere: list[Path] = []

    def _note(self, path: Path) -> None:
        (self.here if threading.get_ident() == self._home else self.elsewhere).append(path)

    def replace_file(self, path: Path, buffers: Iterable[Buffer], **how: bool) -> None:
        self._note(path)
        super().replace_file(path, buffers, **how)

    def unlink(self, path: Path) -> None:
        self._note(path)
        super().unlink(path)


async def opened(folder: Path, disk: Disk | None = None) -> tuple[Services, PartitionLog]:
    services = await open_services(BrokerConfig(data_dir=folder), Metrics(), clock_ms, disk=disk)
    await services.topics.create("t")
    log = services.replicas["t", 0].log
    for producer_id in range(PRODUCERS):
        log.producers.apply(header(producer_id, 0, 0), NO_OFFSET, clock_ms())
    return services, log


async def test_the_snapshot_of_a_roll_and_deleted_files_are_no_work_of_the_loop(tmp_path: Path) -> None:
    disk = WatchedDisk()
    services, log = await opened(tmp_path, disk)
    for _ in range(3):
        log.append(batch(), leader_epoch=0, now_ms=clock_ms())
        log.roll(clock_ms())
        await services.replicas["t", 0].committed(log.end_offset)
        await services.maintenance.checkpoint()
    log.delete_records_before(log.end_offset)
    await services.maintenance.checkpoint()
    assert {path.suffix for path in disk.elsewhere} >= {".snapshot", ".deleted"}
    assert not [path for path in disk.here if path.suffix in (".snapshot", ".deleted")]
    await services.close()


class FullDisk(Disk):
    """Lets no file begin until one has gone."""

    is_full = False

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        if self.is_full and flags & os.O_CREAT and not path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, flags)

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.is_full = False


@pytest.mark.parametrize("job", ["apply_retention", "checkpoint"])
async def test_on_a_full_disk_expired_segments_are_deleted_first(tmp_path: Path, job: str) -> None:
    disk = FullDisk()
    services, log = await opened(tmp_path, disk)
    old_ms = clock_ms() - 8 * 86_400_000
    for _ in range(4):
        log.append(batch(timestamp=old_ms), leader_epoch=0, now_ms=old_ms)
        log.roll(old_ms)
        await services.replicas["t", 0].committed(log.end_offset)
        await services.maintenance.checkpoint()
    log.append(batch(timestamp=old_ms), leader_epoch=0, now_ms=old_ms)
    await services.replicas["t", 0].committed(log.end_offset)
    disk.is_full = True
    if job == "apply_retention":
        await services.maintenance.apply_retention()
        assert log.start_offset == 4
    else:
        log.delete_records_before(4)
        await services.maintenance.checkpoint()
    assert not disk.is_full
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 4\n"
    await services.close()


async def test_others_have_their_turns_while_many_producers_expire(tmp_path: Path) -> None:
    services, log = await opened(tmp_path)
    log.producers.rules = log.producers.rules._replace(expiration_ms=0)
    left: list[int] = []
    loop = asyncio.get_running_loop()

    def look() -> None:
        left.append(len(log.producers))
        if left[-1]:
            loop.call_soon(look)

    look()
    await services.maintenance.expire_producers()
    assert max(before - after for before, after in pairwise(left)) <= MOST_EXPIRED_PER_STEP
    assert len(log.producers) == 0
    await services.close()


async def test_retention_names_the_topics_whose_records_were_old_when_they_were_written(
    tmp_path: Path,
) -> None:
    services, _ = await opened(tmp_path)
    await services.topics.create("flights", NewTopic(num_partitions=3))
    written = {("flights", 0): 2013, ("flights", 1): 2014, ("flights", 2): None, ("t", 0): None}
    for key, year in written.items():
        timestamp = clock_ms() if year is None else int(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000)
        replica = services.replicas[key]
        replica.append_as_leader(batch(count=2, timestamp=timestamp), clock_ms())
        await replica.flushed()
    with capture_logs() as events:
        await services.maintenance.apply_retention()
        await services.maintenance.apply_retention()
    (event,) = [each for each in events if each["event"] == "old_records_expired"]
    assert (event["log_level"], event["topic"], event["records"]) == ("warning", "flights", 4)
    assert event["latest_timestamp_ms"] == 1 + 1000 * datetime(2014, 1, 1, tzinfo=UTC).timestamp()
    assert event["retention_ms"] == services.config.log_retention_ms
    assert "retention.ms=-1" in event["advice"]
    await services.close()


async def test_an_idle_log_settles_after_each_kill(tmp_path: Path) -> None:
    services = await test_services.opened(tmp_path)
    await services.topics.create("t")
    await test_services.stored(services, b"v")
    for _ in range(3):
        await services.close(clean=False)
        services = await test_services.opened(tmp_path)
        for _ in range(3):
            await services.maintenance.checkpoint()
        assert services.replicas["t", 0].log.is_settled
    await services.close()
