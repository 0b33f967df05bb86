"""The cleaner takes the dirtiest log, beside appends and reads, and leaves alone what it must not touch."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.storage.support import keyed
from tidelog.broker.clock import clock_ms
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.services import Services
from tidelog.broker.storage import swap
from tidelog.broker.storage.compaction.cleaner import LogClean
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_types import Read
from tidelog.broker.storage.snapshot import snapshots
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import decode_batch, iter_batches

NEVER_MS = 2**62
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"}


class BrokenDisk(Disk):
    """Fails when a path with this suffix is opened or is the new name in a rename."""

    suffix = "none"
    error = errno.EIO

    def _check(self, path: Path) -> None:
        if path.suffix == self.suffix:
            raise OSError(self.error, os.strerror(self.error))

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        self._check(path)
        return super().open(path, flags)

    def rename(self, old: Path, new: Path) -> None:
        self._check(new)
        super().rename(old, new)


@pytest.fixture
def disk() -> BrokenDisk:
    return BrokenDisk()


@pytest.fixture
async def services(tmp_path: Path, disk: BrokenDisk) -> AsyncIterator[Services]:
    config = BrokerConfig(data_dir=tmp_path, log_cleaner_backoff_ms=NEVER_MS)
    services = await open_services(config, Metrics(), clock_ms, disk=disk)
    yield services
    await services.close()


async def topic(services: Services, name: str, **configs: str) -> Replica:
    await services.topics.create(name, NewTopic(configs={**COMPACT, **configs}))
    return services.replicas[name, 0]


async def fill(services: Services, replica: Replica, segments: int = 2) -> None:
    """Closed segments of two records each, of which only the last one of each key counts."""
    for number in range(segments):
        pairs = [(b"a", b"%d" % number), (b"b", b"%d" % number)]
        replica.append_as_leader(keyed(pairs, timestamp=clock_ms(), step_ms=0), clock_ms())
        replica.log.roll(clock_ms())
    await replica.committed(replica.log.end_offset)


def values(replica: Replica) -> list[tuple[bytes | None, bytes | None]]:
    found, offset = [], replica.log.start_offset
    while offset < replica.high_watermark:
        result = replica.read(Read(offset, 1 << 20, replica.high_watermark))
        for view in result.records:
            for position, _ in iter_batches(view):
                found += [(record.key, record.value) for record in decode_batch(view, position)]
        offset = result.next_offset
    return found


async def test_the_dirtiest_log_is_cleaned_first_and_one_that_is_clean_enough_not_at_all(
    services: Services,
) -> None:
    dirty, dirtier, lenient, plain = [
        await topic(services, "dirty"),
        await topic(services, "dirtier"),
        await topic(services, "lenient", **{"min.cleanable.dirty.ratio": "1"}),
        await topic(services, "plain", **{"cleanup.policy": "delete"}),
    ]
    await fill(services, dirty)
    assert await services.cleaner.clean_dirtiest()
    for replica, segments in ((dirty, 2), (dirtier, 2), (lenient, 2), (plain, 2)):
        await fill(services, replica, segments)
    order = []
    while await services.cleaner.clean_dirtiest():
        order.append([len(values(each)) for each in (dirty, dirtier, lenient, plain)])
    assert order == [[6, 2, 4, 4], [2, 2, 4, 4]]
    metrics = services.metrics.render().decode()
    assert "tidelog_log_cleaner_cleans_total 3.0" in metrics
    assert "kafka_log_logcleanermanager_max_dirty_percent 100.0" in metrics  # That of `lenient`.


async def test_a_clean_waits_for_no_checkpoint_and_writes_the_snapshots_that_it_needs(
    services: Services, disk: BrokenDisk
) -> None:
    """Files of a producer's batches change only after two snapshots know it."""
    replica, producer_id = await topic(services, "t"), await services.producer_ids.next()
    for number in range(2):
        replica.append_as_leader(keyed([(b"k", b"%d" % number)], producer_id, 0, number), clock_ms())
    replica.log.roll(clock_ms())
    await replica.committed(replica.log.end_offset)
    disk.error, disk.suffix = errno.EIO, ".tmp"
    assert not await services.cleaner.clean_dirtiest()
    assert len(values(replica)) == 2
    disk.suffix = "none"
    assert await services.cleaner.clean_dirtiest()
    assert len(values(replica)) == 1
    found = [each.offset for each in snapshots(disk, replica.log.folder)]
    assert found == [2, 2]


async def test_a_log_is_cleaned_once_max_compaction_lag_has_passed(services: Services) -> None:
    late = await topic(
        services, "late", **{"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "86400000"}
    )
    await fill(services, late)
    assert not await services.cleaner.clean_dirtiest()
    services.cleaner._clock_ms = lambda: clock_ms() + 86_400_001
    assert await services.cleaner.clean_dirtiest()
    assert values(late) == [(b"a", b"1"), (b"b", b"1")]


async def test_a_damaged_log_keeps_no_other_from_being_cleaned(services: Services) -> None:
    lag = {"max.compaction.lag.ms": "86400000"}
    damaged, sound = await topic(services, "damaged", **lag), await topic(services, "sound", **lag)
    for replica in (damaged, sound):
        await fill(services, replica)
    (first, *_) = sorted(damaged.log.folder.glob("*.log"))
    first.write_bytes(bytes(first.stat().st_size))
    assert await services.cleaner.clean_dirtiest()
    assert values(sound) == [(b"a", b"1"), (b"b", b"1")]
    assert not await services.cleaner.clean_dirtiest()


async def test_records_younger_than_min_compaction_lag_stay(services: Services) -> None:
    young = await topic(services, "young", **{"min.compaction.lag.ms": "60000"})
    await fill(services, young)
    assert not await services.cleaner.clean_dirtiest()
    services.cleaner._clock_ms = lambda: clock_ms() + 60_001
    assert await services.cleaner.clean_dirtiest()


async def test_a_clock_that_is_set_forward_removes_no_tombstone(tmp_path: Path) -> None:
    day_ms, ahead_ms = 86_400_000, {"wall": 0, "steady": 0}
    config = BrokerConfig(data_dir=tmp_path, log_cleaner_backoff_ms=NEVER_MS)
    services = await open_services(
        config,
        Metrics(),
        lambda: clock_ms() + ahead_ms["wall"],
        steady_ms=lambda: clock_ms() + ahead_ms["steady"],
    )
    replica = await topic(services, "t")
    replica.append_as_leader(keyed([(b"gone", None)]), clock_ms())
    for clock, is_kept in (("none", True), ("wall", True), ("steady", False)):
        ahead_ms[clock] = 2 * day_ms
        await fill(services, replica)
        assert await services.cleaner.clean_dirtiest()
        assert ((b"gone", None) in values(replica)) is is_kept
    await services.close()


async def test_appends_reads_and_deletions_go_on_while_a_log_is_cleaned(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean whose segments are deleted meanwhile gives up, and the next one does its work."""
    replica = await topic(services, "t")
    await fill(services, replica, 4)
    loop = asyncio.get_running_loop()

    def between(change: Callable[[], Any]) -> None:
        write = LogClean.write

        def changed(self: LogClean, group: Any) -> Any:
            asyncio.run_coroutine_threadsafe(called(), loop).result()
            return write(self, group)

        async def called() -> None:
            change()

        monkeypatch.setattr(LogClean, "write", changed)

    def append() -> None:
        replica.append_as_leader(keyed([(b"a", b"new")]), clock_ms())

    between(append)
    assert await services.cleaner.clean_dirtiest()
    await replica.committed(replica.log.end_offset)
    assert values(replica) == [(b"a", b"3"), (b"b", b"3"), (b"a", b"new")]
    await fill(services, replica, 4)
    monkeypatch.undo()
    between(lambda: replica.delete_records_before(replica.log.end_offset - 1))
    assert not await services.cleaner.clean_dirtiest()
    assert services.replicas["t", 0].stopped is None
    assert not list(replica.log.folder.glob("*.cleaned"))
    await fill(services, replica, 2)
    monkeypatch.undo()
    assert await services.cleaner.clean_dirtiest()


async def test_a_clean_goes_on_without_segments_that_are_deleted_before_it_writes(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that takes longer than retention needs for the next segment would never end."""
    replica = await topic(services, "t")
    await fill(services, replica, 4)
    build_map, loop = LogClean.build_map, asyncio.get_running_loop()

    async def delete() -> None:
        replica.delete_records_before(2)

    def shortened(self: LogClean) -> None:
        build_map(self)
        asyncio.run_coroutine_threadsafe(delete(), loop).result()

    monkeypatch.setattr(LogClean, "build_map", shortened)
    assert await services.cleaner.clean_dirtiest()
    assert values(replica) == [(b"a", b"3"), (b"b", b"3")]


async def test_a_log_that_loses_segments_again_and_again_keeps_no_other_from_being_cleaned(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, shrinking = await topic(services, "other"), await topic(services, "shrinking")
    await fill(services, other)
    assert await services.cleaner.clean_dirtiest()
    await fill(services, other, 3)
    await fill(services, shrinking)
    write, loop = LogClean.write, asyncio.get_running_loop()

    async def delete() -> None:
        shrinking.delete_records_before(shrinking.log.end_offset)

    def interrupted(self: LogClean, group: Any) -> Any:
        if self._task.folder == shrinking.log.folder:
            asyncio.run_coroutine_threadsafe(delete(), loop).result()
        return write(self, group)

    monkeypatch.setattr(LogClean, "write", interrupted)
    assert not await services.cleaner.clean_dirtiest()
    await fill(services, shrinking)
    assert await services.cleaner.clean_dirtiest()
    assert len(values(other)) == 2


async def test_segments_may_be_deleted_at_each_step_of_a_clean(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that it reads are gone then; the log is cleaned as before afterwards."""
    replica = await topic(services, "t")
    loop, steps = asyncio.get_running_loop(), iter([0])

    async def delete() -> None:
        replica.delete_records_before(replica.log.end_offset)

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            if threading.current_thread() is not threading.main_thread() and next(steps, 0) == 1:
                asyncio.run_coroutine_threadsafe(delete(), loop).result()
            return call(*args, **options)

        return wrapped

    for name in ("open", "exists", "read", "read_file", "modified_ms", "fdatasync", "unlink", "rename"):
        monkeypatch.setattr(Disk, name, before(getattr(Disk, name)))
    left = 0
    for step in count(1):
        await fill(services, replica, 3)
        steps = iter(range(step, 0, -1))
        await services.cleaner.clean_dirtiest()
        left = next(steps, 0)
        if left:
            break
        await fill(services, replica, 3)
        assert await services.cleaner.clean_dirtiest(), f"after a deletion at step {step}"
        assert replica.stopped is None
    assert step > 10


@pytest.mark.parametrize(
    ("error", "is_retried"), [(errno.ENOSPC, True), (errno.EMFILE, True), (errno.EIO, False)]
)
async def test_a_clean_that_fails_leaves_the_log_as_it_was(
    services: Services, disk: BrokenDisk, error: int, is_retried: bool
) -> None:
    replica = await topic(services, "t")
    await fill(services, replica)
    disk.error, disk.suffix = error, ".cleaned"
    assert not await services.cleaner.clean_dirtiest()
    assert len(values(replica)) == 4
    disk.suffix = "none"
    assert await services.cleaner.clean_dirtiest() is is_retried
    await services.cleaner.clean_dirtiest()
    uncleanable = services.metrics.cleaner.uncleanable_partitions
    assert uncleanable == (0 if is_retried else 1)
    replica.append_as_leader(keyed([(b"a", b"1")]), clock_ms())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
async def test_a_swap_without_space_or_handles_costs_no_partition(
    services: Services, disk: BrokenDisk, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names find no space, so the old segments stay; handles are waited for."""
    replica = await topic(services, "t")
    await fill(services, replica)
    sync, lacking = Disk.fsync_directory, [number] * 9

    def fsync_directory(self: Disk, path: Path) -> None:
        if number == errno.EMFILE and lacking and list(path.glob("*.swap")):
            raise OSError(lacking.pop(), "Too many open files")
        sync(self, path)

    monkeypatch.setattr(swap, "_HANDLES_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(Disk, "fsync_directory", fsync_directory)
    disk.error, disk.suffix = errno.ENOSPC, ".deleted" if number == errno.ENOSPC else "none"
    assert await services.cleaner.clean_dirtiest() is (number == errno.EMFILE)
    assert replica.stopped is None
    assert len(values(replica)) == (4 if number == errno.ENOSPC else 2)
    disk.suffix = "none"
    assert await services.cleaner.clean_dirtiest() is (number == errno.ENOSPC)
    assert len(values(replica)) == 2
    assert not [path for path in replica.log.folder.iterdir() if path.suffix in (".swap", ".deleted")]


async def test_half_a_swap_takes_the_partition_offline(services: Services, disk: BrokenDisk) -> None:
    replica = await topic(services, "t")
    await fill(services, replica)
    disk.suffix = ".deleted"
    assert not await services.cleaner.clean_dirtiest()
    assert replica.stopped is ErrorCode.KAFKA_STORAGE_ERROR
    disk.suffix = "none"


async def test_a_stop_ends_a_clean_and_leaves_nothing_behind(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await topic(services, "t")
    await fill(services, replica)
    write = LogClean.write

    def stopped(self: LogClean, group: Any) -> Any:
        services.cleaner._stopping.set()
        return write(self, group)

    monkeypatch.setattr(LogClean, "write", stopped)
    assert not await services.cleaner.clean_dirtiest()
    assert not list(replica.log.folder.glob("*.cleaned"))
    assert len(values(replica)) == 4
