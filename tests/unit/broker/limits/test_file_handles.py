"""Out of file handles is not damage: whatever cannot be opened is asked for again, and nothing is lost.

A run of all that takes handles is repeated, and each time a few handles in a row are refused, from another
place on: from the first, the fourth, and so on, so that each is refused in one of the runs.
"""

import errno
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.test_services import batch, opened, stored
from tests.waiting import until
from tidelog.broker.replicas import replica_log
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.services import Services
from tidelog.broker.storage.disk import HANDLES_ADVICE, Disk, is_out_of_handles
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import decode_batch, iter_batches

REFUSALS = 3
NEVER = -REFUSALS


class Handles(Disk):
    """Finds no handle when it is asked as often as it was told, nor the next times, `REFUSALS` in all."""

    def __init__(self) -> None:
        self.asked = 0
        self.refused = 0
        self._first = NEVER

    def lack_from(self, first: int) -> None:
        self.asked, self._first = 0, first

    def _take(self) -> None:
        self.asked += 1
        if self._first <= self.asked < self._first + REFUSALS:
            self.refused += 1
            number = errno.EMFILE if self.refused % 2 else errno.ENFILE
            raise OSError(number, os.strerror(number))

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        self._take()
        return super().open(path, flags)

    def list_directory(self, path: Path) -> list[str]:
        self._take()
        return super().list_directory(path)

    def fsync_directory(self, path: Path) -> None:
        self._take()
        super().fsync_directory(path)


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


async def refusal(step: Callable[[], Awaitable[object]]) -> Exception | None:
    try:
        await step()
    except (ApiError, OSError) as error:
        return error
    return None


async def repeated(step: Callable[[], Awaitable[object]]) -> None:
    """As clients and timers do: a step that is refused for now is asked for again."""
    for _ in range(REFUSALS):
        error = await refusal(step)
        if error is None:
            return
        is_retriable = isinstance(error, ApiError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert is_retriable or is_out_of_handles(error)
    await step()


async def produce(services: Services, sequence: int) -> None:
    replica = services.replicas["t", 0]
    replica.append_as_leader(
        batch(b"%060d" % sequence, producer_id=0, sequence=sequence), services.clock_ms()
    )
    await replica.committed(replica.log.end_offset)


async def grow(services: Services) -> None:
    if ("t", 1) not in services.replicas:
        await services.topics.add_partitions("t", 2)


async def delete(services: Services) -> None:
    topic = services.catalog.topic("other")
    if topic is not None:
        await services.topics.delete(topic.topic_id)


async def create(services: Services, name: str) -> None:
    if services.catalog.topic(name) is None:
        await services.topics.create(name, NewTopic(configs={"segment.bytes": "300"}))


async def life(services: Services) -> None:
    """Topics made and deleted, segments begun, snapshots, checkpoints, deletions."""
    maintenance = services.maintenance
    await repeated(lambda: create(services, "t"))
    await repeated(lambda: create(services, "other"))
    assert await services.producer_ids.next() == 0
    for sequence in range(7):
        await repeated(lambda: produce(services, sequence))  # noqa: B023 (awaited in this turn)
        if sequence in (2, 5):
            await repeated(maintenance.checkpoint)
    await repeated(lambda: stored(services, b"v", topic="other"))
    await repeated(lambda: grow(services))
    await repeated(lambda: delete(services))
    services.replicas["t", 0].log.delete_records_before(2)
    for _ in range(2):
        await repeated(maintenance.checkpoint)
        await repeated(maintenance.apply_retention)


def values(services: Services) -> list[bytes | None]:
    replica = services.replicas["t", 0]
    found: list[bytes | None] = []
    offset = replica.log.start_offset
    while offset < replica.high_watermark:
        result = replica.read(Read(offset, 1 << 20, replica.ends.high_watermark))
        for data in map(bytes, result.records):
            for position, header in iter_batches(data):
                found += [
                    record.value for record in decode_batch(data[position : position + header.size_bytes])
                ]
        offset = result.next_offset
    return found


RECORDS = [b"%060d" % sequence for sequence in range(2, 7)]
"""What `life` leaves in partition 0 of topic `t`."""


def check_whole(services: Services) -> None:
    """Everything is served, and all that was acknowledged is there once."""
    assert sorted(services.replicas) == [("t", 0), ("t", 1)]
    assert not [replica for replica in services.replicas.values() if replica.stopped is not None]
    assert values(services)[: len(RECORDS)] == RECORDS


async def test_wherever_handles_are_gone_the_work_goes_on_when_they_are_back(tmp_path: Path) -> None:
    first, was_refused = 1 - REFUSALS, True
    while was_refused:
        first += REFUSALS
        folder, disk = tmp_path / str(first), Handles()
        before = open_files()
        services = await opened(folder, disk=disk)
        disk.lack_from(first)
        with capture_logs() as events:
            await life(services)
        was_refused = disk.refused > 0
        disk.lack_from(NEVER)
        assert {event["advice"] for event in events if event["log_level"] == "error"} <= {HANDLES_ADVICE}
        check_whole(services)
        await stored(services, b"goes on")
        await services.close()
        services = await opened(folder)
        assert services.partitions.logs.was_clean
        assert values(services) == [*RECORDS, b"goes on"]
        await services.close()
        assert open_files() <= before
    assert first > 50


@pytest.mark.parametrize("clean", [True, False])
async def test_a_start_without_handles_fails_whole_and_the_next_one_finds_everything(
    tmp_path: Path, clean: bool
) -> None:
    services = await opened(tmp_path / "data")
    await life(services)
    await services.close(clean=clean)
    before = open_files()
    first, was_refused = 1 - REFUSALS, True
    while was_refused:
        first += REFUSALS
        folder, disk = tmp_path / str(first), Handles()
        shutil.copytree(tmp_path / "data", folder)
        disk.lack_from(first)
        with suppress(OSError):
            services = await opened(folder, disk=disk)
            assert not disk.refused
            await services.close(clean=False)
        was_refused = disk.refused > 0
        assert open_files() <= before
        disk.lack_from(NEVER)
        services = await opened(folder, disk=disk)
        check_whole(services)
        await services.close()
    assert first > 10


async def test_a_stop_without_handles_loses_nothing_and_is_not_called_clean(tmp_path: Path) -> None:
    before = open_files()
    first, was_refused = 0, True
    while was_refused:
        first += 1
        folder, disk = tmp_path / str(first), Handles()
        services = await opened(folder, disk=disk)
        await life(services)
        await stored(services, b"not checkpointed")
        disk.lack_from(first)
        await services.close()
        was_refused = disk.refused > 0
        assert open_files() <= before
        services = await opened(folder)
        assert services.partitions.logs.was_clean or was_refused
        check_whole(services)
        await services.close()
    assert first > 5


async def test_a_flush_waits_for_handles_as_long_as_it_takes_and_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_log, "HANDLES_RETRY_MS", 0)

    class NoDirectory(Disk):
        refused = 0
        lacks = True

        def fsync_directory(self, path: Path) -> None:
            if self.lacks and path.name == "t-0":
                self.refused += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            super().fsync_directory(path)

    disk = NoDirectory()
    services = await opened(tmp_path, disk=disk)
    await services.topics.create("t")
    await services.topics.create("other")
    replica = services.replicas["t", 0]
    replica.append_as_leader(batch(b"a"), services.clock_ms())
    waiting = replica.committed(1)
    await until(lambda: disk.refused > 500)
    await stored(services, b"v", topic="other")
    assert not waiting.done()
    assert (replica.stopped, replica.high_watermark) == (None, 0)
    disk.lacks = False
    await waiting
    await stored(services, b"b")
    assert replica.high_watermark == 2
    await services.close()
