"""Closed segments go to remote storage, leave the disk, and are read from there."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from tests.conformance.commands import typist
from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.handlers.conftest import make_batch
from tests.unit.broker.storage.support import batch
from tests.unit.broker.tiering.conftest import (
    TIERED,
    OpenTiered,
    delete_before,
    fetched,
    fill,
    filled,
    listed,
    manifest_of,
    named_in,
    objects_in,
    read_all,
    reopened,
    settle,
)
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.console.api.topics import partition_row
from tidelog.broker.console.records import stepwise_reading
from tidelog.broker.console.records.reading import Place, Reading, Records
from tidelog.broker.storage.checkpoints import LOG_START_OFFSETS
from tidelog.broker.storage.manager import DataFolderError
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import TransactionMarker
from tidelog.protocol.schema import ApiKey
from tidelog.remote_log.manifest import encode, manifest_name, segment_name
from tidelog.remote_log.object_store import ObjectStore, open_store
from tidelog.remote_log.partition_objects import PartitionObjects


class Killed(Exception):
    """What a killed process would not have done."""


class KilledStore:
    """A store whose process is killed at one of its changes: before it, or after it before its answer."""

    def __init__(self, store: ObjectStore, at: int, *, after: bool) -> None:
        self._store = store
        self._left = at
        self._after = after
        self.was_killed = False

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if self.was_killed:
                raise Killed
            if name not in ("put", "put_new", "delete"):
                return getattr(self._store, name)(*arguments)
            self._left -= 1
            self.was_killed = self._left == 0
            if self.was_killed and not self._after:
                raise Killed
            result = getattr(self._store, name)(*arguments)
            if self.was_killed:
                raise Killed
            return result

        return call


async def test_what_was_copied_leaves_the_disk_and_is_read_from_remote_storage(
    open_tiered: OpenTiered, tmp_path: Path
) -> None:
    asker = await filled(open_tiered, 20)
    log, manifest = asker.replica("t").log, manifest_of(asker)
    assert log.start_offset > 10
    assert manifest.end_offset >= log.start_offset
    assert len(objects_in(tmp_path / "remote")) == 2 * len(manifest.segments)
    assert await read_all(asker, 0) == list(range(20))
    assert await read_all(asker, 7, partition_max_bytes=1) == list(range(7, 20))
    assert (await fetched(asker, 3)).log_start_offset == 0
    assert (await fetched(asker, 21)).code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await asker.produce("t", make_batch(b"x"))).log_start_offset == 0


async def test_what_left_the_disk_before_a_kill_is_not_lost_once_remote_storage_has_it(
    open_tiered: OpenTiered,
) -> None:
    asker = await open_tiered()
    await asker.create("t", **TIERED)
    producer_id = (await asker.ask(ApiKey.INIT_PRODUCER_ID, 2, transactional_id=None)).producer_id
    batches = [make_batch(b"x" * 30, producer_id=producer_id, epoch=0, sequence=each) for each in range(20)]
    for each in batches:
        assert (await asker.produce("t", each)).error_code == 0
    await asker.services.maintenance.checkpoint()
    starts = asker.replica("t").log.folder.parent / LOG_START_OFFSETS
    before = starts.read_bytes()
    await settle(asker)
    await asker.services.close(clean=False)
    starts.write_bytes(before)  # As a kill leaves it between the deletion and the checkpoint.
    is_down = True
    asker = await open_tiered(lambda store: Switched(store, lambda: is_down))
    with capture_logs() as events:
        assert (await asker.produce("t", batches[0])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not {event["event"] for event in events} & {"append_refused", "duplicate_refused"}
    is_down = False
    await asker.services.tiering.look()
    assert (await asker.produce("t", batches[0])).error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert asker.replica("t").log.end_offset == 20


async def test_the_console_reads_remote_records_and_shows_their_size(open_tiered: OpenTiered) -> None:
    asker = await filled(open_tiered, 20)
    page = await Records(asker.services).page("t", {0: None}, Place(0), 20, Reading())
    assert [row["offset"] for row in page["rows"]] == list(range(20))
    assert page["positions"] == [{"partition": 0, "offset": 20, "start_offset": 0, "end_offset": 20}]
    newest = await Records(asker.services).page("t", {0: None}, Place(), 20, Reading())
    assert newest["rows"] == page["rows"][::-1]
    batches = await Records(asker.services).batches("t", 0, 3, 100)
    assert [row["base_offset"] for row in batches["rows"]] == list(range(3, 20))
    topic = asker.services.catalog.topic("t")
    row, log = partition_row(asker.services, topic, 0), asker.replica("t").log
    assert (row["size_bytes"], row["remote_size_bytes"]) == (log.size_bytes, manifest_of(asker).size_bytes)


async def test_places_and_times_are_found_in_remote_storage(open_tiered: OpenTiered) -> None:
    asker = await open_tiered()
    await asker.create("t", **TIERED)
    for number in range(20):
        await fill(asker, 1, first=number, timestamp_ms=NOW_MS + (100 if number == 4 else number))
    await settle(asker)
    log, manifest = asker.replica("t").log, manifest_of(asker)
    assert (await listed(asker, -2)).offset == 0
    assert (await listed(asker, -4)).offset == log.start_offset
    assert (await listed(asker, -5)).offset == manifest.end_offset - 1
    assert (await listed(asker, -6, version=11)).offset == manifest.end_offset
    assert (await listed(asker, -3)).offset == 4
    assert (await listed(asker, NOW_MS + 3)).offset == 3
    assert (await listed(asker, NOW_MS + 19)).offset == 4
    assert (await listed(asker, NOW_MS + 101)).offset == -1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_kill_at_any_change_of_the_store_loses_nothing_and_leaves_nothing(
    open_tiered: OpenTiered, tmp_path: Path, after: bool
) -> None:
    """Also a second kill, in what the start after the first does."""
    asker = await open_tiered()
    await asker.create("t", **TIERED)
    await asker.services.close()
    stores: list[KilledStore] = []

    def killed(store: ObjectStore) -> KilledStore:
        stores.append(KilledStore(store, len(stores), after=after))
        return stores[-1]

    count = 0
    while not stores or stores[-1].was_killed or count < 12:
        asker = await open_tiered(killed)
        await fill(asker, 6, first=count)
        count += 6
        with suppress(Killed):
            await settle(asker)
        await asker.services.close(clean=False)
    asker = await reopened(open_tiered)
    assert await read_all(asker, 0) == list(range(count))
    assert objects_in(tmp_path / "remote") == named_in(manifest_of(asker))


async def test_nothing_leaves_the_disk_while_the_store_fails_and_all_else_works(
    open_tiered: OpenTiered,
) -> None:
    is_failing = True
    asker = await filled(open_tiered, 10, lambda store: Switched(store, lambda: is_failing))
    assert asker.replica("t").log.start_offset == 0
    assert await read_all(asker, 0) == list(range(10))
    assert asker.services.metrics.remote.copy_errors
    is_failing = False
    await settle(asker)
    assert asker.replica("t").log.start_offset > 5
    is_failing = True
    with capture_logs() as events:
        for _ in range(3):
            assert (await fetched(asker, 0)).code == ErrorCode.KAFKA_STORAGE_ERROR
    (told,) = [each for each in events if each["event"] == "remote_read_failed"]
    assert (told["topic"], told["offset"]) == ("t", 0)
    assert "the store does not answer" in told["error"]
    assert (await fetched(asker, 9)).offsets == [9]
    await fill(asker, 1, first=10)
    is_failing = False
    assert await read_all(asker, 0) == list(range(11))


@pytest.mark.parametrize("forgotten", [".log", ".indexes", ".json"])
async def test_nothing_leaves_the_disk_while_the_store_forgets_what_it_accepts(
    open_tiered: OpenTiered, forgotten: str
) -> None:
    with capture_logs() as events:
        asker = await filled(open_tiered, 10, lambda store: Forgetful(store, forgotten))
    (told,) = [each for each in events if each["event"] == "remote_storage_failed"]
    assert "the store does not have what it accepted" in told["error"]
    assert asker.replica("t").log.start_offset == 0
    assert await read_all(asker, 0) == list(range(10))


async def test_bytes_that_were_damaged_on_their_way_are_read_again(open_tiered: OpenTiered) -> None:
    damaged: list[str] = []

    class Damaging(Switched):
        def get_range(self, name: str, position: int, size: int) -> Any:
            data = bytearray(self._store.get_range(name, position, size))
            if size > 1 and not damaged:
                damaged.append(name)
                data[60] ^= 1
            return memoryview(data)

    asker = await filled(open_tiered, 10, lambda store: Damaging(store, lambda: False))
    assert (await fetched(asker, 0)).code == ErrorCode.CORRUPT_MESSAGE
    assert damaged
    assert await read_all(asker, 0) == list(range(10))


async def test_a_store_that_hangs_costs_a_fetch_its_patience_only(open_tiered: OpenTiered) -> None:
    may_answer = Event()
    hangs = False
    asker = await filled(
        open_tiered,
        10,
        lambda store: Switched(store, lambda: hangs and not may_answer.wait(DEADLINE_SECONDS)),
        remote_fetch_max_wait_ms=1,
    )
    hangs = True
    assert await fetched(asker, 0) == (0, [], 0, [])
    assert (await fetched(asker, 9)).offsets == [9]
    may_answer.set()
    found: list[int] = []
    while not found:
        found = (await fetched(asker, 0)).offsets
    assert found[0] == 0


async def test_a_store_that_hangs_ends_a_visit_of_old_records_only(
    open_tiered: OpenTiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = Event()
    hangs = False
    asker = await filled(
        open_tiered,
        20,
        lambda store: Switched(store, lambda: hangs and not may_answer.wait(DEADLINE_SECONDS)),
    )
    console = Records(asker.services)
    hangs = True
    old = asyncio.ensure_future(console.page("t", {0: None}, Place(0), 20, Reading()))
    await until(lambda: asker.services.metrics.remote.fetch_requests)
    assert [
        row["offset"] for row in (await console.page("t", {0: None}, Place(19), 20, Reading()))["rows"]
    ] == [19]
    assert not old.done()
    monkeypatch.setattr(stepwise_reading, "REMOTE_SECONDS", 0.001)
    for place in (Place(1), Place(timestamp_ms=NOW_MS)):
        with pytest.raises(ApiError, match="remote storage gave no answer within"):
            await console.page("t", {0: None}, place, 20, Reading())
    with pytest.raises(ApiError, match="remote storage gave no answer within"):
        await console.batches("t", 0, 2, 100)
    may_answer.set()
    with suppress(ApiError):
        await old


async def test_what_delete_records_deletes_leaves_remote_storage_first(
    open_tiered: OpenTiered, tmp_path: Path
) -> None:
    asker = await filled(open_tiered, 20)
    for offset in (5, 17):
        assert await delete_before(asker, offset) == (0, offset)
        asker = await reopened(open_tiered, asker)
        assert (await listed(asker, -2)).offset == offset
        assert (await fetched(asker, offset - 1)).code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await read_all(asker, offset) == list(range(offset, 20))
    assert objects_in(tmp_path / "remote") == named_in(manifest_of(asker))


async def test_a_forged_manifest_deletes_nothing_outside_the_store_and_nothing_local(
    open_tiered: OpenTiered, tmp_path: Path
) -> None:
    asker = await filled(open_tiered, 20)
    manifest = manifest_of(asker)
    objects = PartitionObjects(open_store(f"file://{tmp_path}/remote"), manifest.topic_id, 0)
    await asker.services.close()
    victims = [tmp_path / "victim" / f"x{suffix}" for suffix in (".log", ".indexes")]
    victims[0].parent.mkdir()
    for victim in victims:
        victim.write_bytes(b"kept")
    first = replace(manifest.segments[0], name="../../../victim/x")
    # The CRC is of the forger's own making.
    forged = manifest.next(segments=(first, *manifest.segments[1:]))
    objects.store.put(objects.path(manifest_name(forged.number)), [encode(forged)])
    with capture_logs() as events:
        asker = await reopened(open_tiered)
        await delete_before(asker, 5)
    assert [victim.read_bytes() for victim in victims] == [b"kept"] * 2
    (told, *_) = [each for each in events if each["event"] == "remote_storage_failed"]
    assert "manifest-" in told["error"]
    await asker.services.close()
    objects.store.delete([objects.path(manifest_name(forged.number))])
    asker = await reopened(open_tiered)
    assert await read_all(asker, 0) == list(range(20))


async def test_a_manifest_without_segments_beyond_the_local_log_deletes_no_local_record(
    open_tiered: OpenTiered, tmp_path: Path
) -> None:
    asker = await filled(open_tiered, 10, is_settled=False)
    topic_id = asker.replica("t").topic_id
    await asker.services.close()
    objects = PartitionObjects(open_store(f"file://{tmp_path}/remote"), topic_id, 0)
    found = objects.load()
    assert found is not None
    objects.commit(found.next(start_offset=1_000, end_offset=1_000, epochs=((0, 0),)))
    asker = await reopened(open_tiered)
    assert await read_all(asker, 0) == list(range(10))


async def test_retention_deletes_in_remote_storage(open_tiered: OpenTiered, tmp_path: Path) -> None:
    asker = await open_tiered()
    await asker.create("t", **TIERED, retention_ms="1000")
    await fill(asker, 10)
    await settle(asker)
    asker.clock.now_ms += 500
    await fill(asker, 10, first=10, timestamp_ms=asker.clock.now_ms)
    asker.clock.now_ms += 600
    await settle(asker)
    start = (await listed(asker, -2)).offset
    assert 8 <= start <= 10
    assert await read_all(asker, start) == list(range(start, 20))
    assert objects_in(tmp_path / "remote") == named_in(manifest_of(asker))


async def test_a_deleted_topic_leaves_remote_storage_also_after_a_kill(
    open_tiered: OpenTiered, tmp_path: Path
) -> None:
    deletes = True
    asker = await open_tiered(lambda store: Switched(store, lambda: not deletes))
    for topic in ("t", "u"):
        await asker.create(topic, **TIERED)
        await fill(asker, 10, topic)
        await settle(asker)
    deletes = False
    await asker.ask(ApiKey.DELETE_TOPICS, 3, topic_names=["t"])
    await settle(asker)
    await asker.services.close(clean=False)
    asker = await open_tiered()
    await asker.services.tiering.look()
    assert len(list((tmp_path / "remote").iterdir())) == 1
    await asker.ask(ApiKey.DELETE_TOPICS, 3, topic_names=["u"])
    await until(lambda: not list((tmp_path / "remote").iterdir()))


async def test_a_compacted_topic_is_refused_and_a_tiered_one_is_not_simply_disabled(
    open_tiered: OpenTiered, tmp_path: Path
) -> None:
    asker = await open_tiered()
    with pytest.raises(AssertionError, match="compacted topics"):
        await asker.create("c", cleanup_policy="compact", remote_storage_enable="true")
    with pytest.raises(AssertionError, match=r"must not exceed retention\.ms"):
        await asker.create("c", remote_storage_enable="true", retention_ms="5", local_retention_ms="6")
    await asker.create("t", **TIERED)
    await fill(asker, 10)
    await settle(asker)
    topics = asker.services.topics
    with pytest.raises(ApiError, match="disable remote storage without deleting"):
        await topics.change_configs("t", lambda _: {"remote.storage.enable": "false"})
    await topics.change_configs(
        "t", lambda _: {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    )
    await asker.services.tiering.look()
    assert not objects_in(tmp_path / "remote")
    start = asker.replica("t").log.start_offset
    assert (await listed(asker, -2)).offset == start > 0
    assert await read_all(asker, start) == list(range(start, 10))
    await topics.change_configs("t", lambda _: {"remote.storage.enable": "true"})
    await settle(asker)
    assert manifest_of(asker).start_offset == start


async def test_a_leader_that_followed_while_the_remote_records_were_given_up_copies_again(
    open_tiered: OpenTiered, tmp_path: Path
) -> None:
    asker = await filled(open_tiered, 10)
    replica, topics = asker.replica("t"), asker.services.topics
    assigned = asker.services.catalog.topic("t").partitions[0]
    replica.follow(assigned.leader_epoch + 1, 2)
    disabled = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    await topics.change_configs("t", lambda _: disabled)
    kept = objects_in(tmp_path / "remote")
    await asker.services.tiering.look()
    assert objects_in(tmp_path / "remote") == kept, "only the leader deletes"
    rmtree(tmp_path / "remote")
    await topics.change_configs("t", lambda _: {"remote.storage.enable": "true"})
    replica.lead(assigned._replace(leader_epoch=assigned.leader_epoch + 2))
    await settle(asker)
    assert manifest_of(asker).start_offset == replica.log.start_offset


async def test_a_broker_without_remote_storage_refuses_topics_that_have_it(
    open_tiered: OpenTiered, open_asker: Callable[..., Any]
) -> None:
    asker = await open_tiered()
    await asker.create("t", **TIERED)
    await asker.services.close()
    with pytest.raises(DataFolderError, match=r"set remote\.log\.storage\.system\.enable"):
        await open_asker()


async def test_aborted_transactions_are_known_of_remote_segments(open_tiered: OpenTiered) -> None:
    asker = await open_tiered()
    await asker.create("t", **TIERED)
    asked = {"transactional_id": None, "transaction_timeout_ms": 1_000}
    one, other = [(await asker.ask(ApiKey.INIT_PRODUCER_ID, 2, **asked)).producer_id for _ in range(2)]
    for producer_id, sequence in ((one, 0), (other, 0), (one, 3), (one, 6), (other, 3)):
        records = batch(producer_id, sequence=sequence, count=3, is_transactional=True)
        asker.replica("t").append_as_leader(records, NOW_MS, permit=lambda _: None)
    for producer_id in (one, other):
        await asker.replica("t").append_marker(TransactionMarker(producer_id, 0, 0, False), NOW_MS)
    await fill(asker, 10)
    await settle(asker)
    assert asker.replica("t").log.start_offset > 17
    answer = await fetched(asker, 0, isolation_level=1, partition_max_bytes=1)
    assert answer.aborted == [(one, 0)]
    answer = await fetched(asker, 3, isolation_level=1, partition_max_bytes=1)
    assert answer.aborted == [(one, 0), (other, 3)]


async def test_log_verify_finds_what_is_wrong_in_remote_storage(
    open_tiered: OpenTiered, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asker = await filled(open_tiered, 20)
    manifest = manifest_of(asker)
    count = len(manifest.segments)
    await asker.services.close()
    tidelog, remote = typist(capfd), tmp_path / "remote"

    async def verified() -> tuple[int, str]:
        command = ["log", "verify", str(tmp_path / "data"), "--remote-storage-url", f"file://{remote}"]
        code, shown, _ = await asyncio.to_thread(tidelog, *command)
        return code, shown

    code, shown = await verified()
    assert code == 0
    assert f"{count} remote segments" in shown
    logs = sorted(remote.rglob("*.log"))
    (logs[0].parent / "left.log").write_bytes(b"")
    code, shown = await verified()
    assert (code, shown.count("no manifest names this object")) == (0, 1)
    whole = logs[0].read_bytes()
    logs[0].write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    logs[1].unlink()
    logs[2].with_suffix(".indexes").write_bytes(b"")
    code, shown = await verified()
    assert code == 1
    for problem in ("is damaged: the CRC is wrong", "is missing", "its checksum is wrong"):
        assert shown.count(problem) == 1, shown
    objects = PartitionObjects(open_store(f"file://{remote}"), manifest.topic_id, 0)
    objects.commit(manifest.ending_at(5))
    code, shown = await verified()
    assert (code, shown.count("between remote and local segments are missing")) == (1, 1)
    newest = max(remote.rglob("manifest-*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    code, shown = await verified()
    assert (code, shown.count("checksum")) == (1, 1), shown


@pytest.mark.parametrize("is_failing", [False, True], ids=["deleted", "claimed again"])
async def test_a_copy_counts_only_if_its_objects_and_records_are_still_there(
    open_tiered: OpenTiered, tmp_path: Path, is_failing: bool
) -> None:
    """DeleteRecords during a copy deletes its records; after one that failed, the next claims, and sweeps."""
    held, fails = HeldStore(), is_failing
    asker = await open_tiered(
        lambda store: Switched(held.around(store), lambda: fails and held.is_reached.is_set())
    )
    await asker.create("t", **TIERED)
    await fill(asker, 10)
    look = asyncio.ensure_future(asker.services.tiering.look())
    await until(held.is_reached.is_set)

    if is_failing:
        assert (await delete_before(asker, 0))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        fails = False
    start = 0 if is_failing else 9
    assert (await delete_before(asker, start))[0] == 0
    held.may_go_on.set()
    await look
    await settle(asker)
    assert await read_all(asker, start) == list(range(start, 10))
    asker = await reopened(open_tiered, asker)
    assert (await listed(asker, -2)).offset == start
    assert await read_all(asker, start) == list(range(start, 10))
    assert objects_in(tmp_path / "remote") == named_in(manifest_of(asker))


async def test_a_manifest_that_arrives_late_names_nothing_that_was_deleted(open_tiered: OpenTiered) -> None:
    """Its request got no answer; the store carries it out after the next claim."""
    late: list[tuple[Any, ...]] = []
    arrived: list[bool] = []

    class LateStore(Switched):
        def put_new(self, name: str, data: bytes) -> Any:
            if not (late or arrived) and b'"segments":[{' in data:
                late.append((name, data))
                raise OSError("no answer")
            return self._store.put_new(name, data)

        def delete(self, names: Any) -> None:
            self._store.delete(names)
            if late and any(name.endswith(".log") for name in names):
                arrived.append(self._store.put_new(*late.pop()))

    asker = await filled(open_tiered, 10, lambda store: LateStore(store, lambda: False), is_settled=False)
    for _ in range(3):
        await settle(asker)
    assert len(arrived) == 1
    assert asker.replica("t").log.start_offset > 5
    assert await read_all(asker, 0) == list(range(10))


async def test_where_nothing_more_is_copied_retention_deletes_local_segments(open_tiered: OpenTiered) -> None:
    asker = await open_tiered()
    await asker.create("t", **TIERED, retention_ms="1000")
    await fill(asker, 10)
    await settle(asker)
    topics = asker.services.topics
    await topics.change_configs("t", lambda configs: {**configs, "remote.log.copy.disable": "true"})
    await fill(asker, 10, first=10)
    await settle(asker)
    assert await read_all(asker, 0) == list(range(20))
    asker.clock.now_ms += 2_000
    await fill(asker, 2, first=20, timestamp_ms=asker.clock.now_ms)
    await settle(asker)
    start = (await listed(asker, -2)).offset
    assert start == asker.replica("t").log.start_offset >= 18
    await topics.change_configs("t", lambda configs: {**configs, "remote.log.copy.disable": "false"})
    await fill(asker, 10, first=22, timestamp_ms=asker.clock.now_ms)
    await settle(asker)
    asker = await reopened(open_tiered, asker)
    assert asker.replica("t").log.start_offset > 25
    assert await read_all(asker, start) == list(range(start, 32))


async def test_a_store_is_left_as_it_is_where_the_folder_of_the_partition_was_lost(
    open_tiered: OpenTiered, tmp_path: Path
) -> None:
    asker = await filled(open_tiered, 10)
    await asker.services.close()
    objects = objects_in(tmp_path / "remote")
    rmtree(tmp_path / "data" / "t-0")
    asker = await reopened(open_tiered)
    await fill(asker, 10, first=20, timestamp_ms=NOW_MS + 5)
    await settle(asker)
    assert asker.services.metrics.remote.copy_errors
    assert objects_in(tmp_path / "remote") == objects
    for timestamp in (-2, -5):
        assert (await listed(asker, timestamp)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_another_url_is_refused_for_the_partitions_whose_records_were_copied(
    open_tiered: OpenTiered, tmp_path: Path
) -> None:
    asker = await open_tiered()
    for topic in ("t", "u"):
        await asker.create(topic, **TIERED)
    await fill(asker, 10)
    await settle(asker)
    await asker.services.close()
    with capture_logs() as events:
        asker = await open_tiered(remote_storage_url=f"file://{tmp_path}/other")
        await settle(asker)
    told = [each for each in events if each["event"] == "remote_storage_failed"]
    assert "set remote.storage.url to the store of before" in told[0]["error"]
    assert (await listed(asker, -2)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await fetched(asker, 0)).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await fetched(asker, 9)).offsets == [9]
    await fill(asker, 10, first=10)
    await fill(asker, 10, "u")
    await settle(asker)
    assert asker.replica("u").log.start_offset > 5
    assert not list((tmp_path / "other").glob(f"{asker.replica('t').topic_id}/*"))
    await asker.services.close()
    asker = await reopened(open_tiered)
    assert await read_all(asker, 0) == list(range(20))


async def test_a_new_leader_claims_before_another_segment_is_copied(open_tiered: OpenTiered) -> None:
    held = HeldStore()
    asker = await filled(open_tiered, 10, held.around, is_settled=False)
    look = asyncio.ensure_future(asker.services.tiering.look())
    await until(held.is_reached.is_set)
    await asker.create("u", **TIERED)
    topic_id = str(asker.replica("u").topic_id)
    held.may_go_on.set()
    await look
    await until(lambda: sum(name.endswith(".log") for name in held.put) > 1)
    claim = next(at for at, name in enumerate(held.put) if name.startswith(topic_id))
    assert sum(name.endswith(".log") for name in held.put[:claim]) == 1


async def test_a_stop_ends_a_copy(open_tiered: OpenTiered, tmp_path: Path) -> None:
    held = HeldStore()
    asker = await filled(open_tiered, 10, held.around, is_settled=False)
    look = asyncio.ensure_future(asker.services.tiering.look())
    await until(held.is_reached.is_set)
    close = asyncio.ensure_future(asker.services.close())
    await until(lambda: asker.services.tiering._is_stopping)
    held.may_go_on.set()
    await look
    await close
    assert not [name for name in objects_in(tmp_path / "remote") if name.endswith(".log")]
    asker = await reopened(open_tiered)
    assert asker.replica("t").log.start_offset > 5
    assert await read_all(asker, 0) == list(range(10))


async def test_after_an_unclean_election_what_the_leader_lacks_is_given_up(open_tiered: OpenTiered) -> None:
    asker = await open_tiered()
    await asker.create("t", **{**TIERED, "local_retention_bytes": "-2"})
    await fill(asker, 10)
    await settle(asker)
    manifest, replica = manifest_of(asker), asker.replica("t")
    end = manifest.end_offset
    lost = replace(
        manifest.segments[-1],
        name=segment_name(end, 0, UUID(int=1)),
        base_offset=end,
        end_offset=20,
        max_timestamp_offset=end,
    )
    longer = manifest.with_copied(lost, manifest.epochs)
    objects = replica.log.remote.objects
    objects.commit(longer)
    await asker.services.close()
    asker = await open_tiered()
    asker.replica("t").may_lose_committed = True
    await settle(asker)
    assert manifest_of(asker).segments == manifest.segments
    assert await read_all(asker, 0) == list(range(10))


class HeldStore:
    """A store in which the copy of a segment waits until it may go on."""

    def __init__(self) -> None:
        self.is_reached, self.may_go_on = Event(), Event()
        self.put: list[str] = []

    def around(self, store: ObjectStore) -> Any:
        held = self

        class Held(Switched):
            def put(self, name: str, pieces: Any) -> None:
                if name.endswith(".log"):
                    held.is_reached.set()
                    assert held.may_go_on.wait(DEADLINE_SECONDS)
                held.put.append(name)
                self._store.put(name, pieces)

            def put_new(self, name: str, data: bytes) -> Any:
                held.put.append(name)
                return self._store.put_new(name, data)

        return Held(store, lambda: False)


class Switched:
    """A store that fails while `fails` says so."""

    def __init__(self, store: ObjectStore, fails: Callable[[], bool]) -> None:
        self._store = store
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if self._fails():
                raise OSError("the store does not answer")
            return getattr(self._store, name)(*arguments)

        return call


class Forgetful:
    """A store that accepts objects with this suffix, and has none of them."""

    def __init__(self, store: ObjectStore, forgotten: str) -> None:
        self._store = store
        self._forgotten = forgotten

    def put(self, name: str, pieces: Any) -> None:
        if name.endswith(self._forgotten):
            assert all(map(len, pieces))
        else:
            self._store.put(name, pieces)

    def put_new(self, name: str, data: bytes) -> bool:
        return name.endswith(self._forgotten) or self._store.put_new(name, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
