"""Damage in the batches and segments of a log is found, named by file and byte, and nothing else is."""

import asyncio
import errno
import os
import re
from pathlib import Path

from tests.conformance.raw import batch, connected
from tests.unit.broker.storage.verification.damaged import BATCHES, Folder, has, only
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.file_reader import CHUNK_BYTES
from tidelog.broker.storage.integrity import RESERVED_BYTES


def test_a_sound_folder_gives_no_finding(folder: Folder) -> None:
    assert folder.lines() == []
    totals = folder.totals
    assert (totals.partitions, totals.batches, totals.records) == (2, BATCHES + 1, 2 * BATCHES + 1)
    assert (totals.segments, totals.damage, totals.warnings) == (len(folder.logs) + 1, 0, 0)
    assert len(folder.logs) >= 3
    assert totals.snapshots >= 2


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


def test_a_flipped_bit_is_found_and_the_batches_behind_it_are_checked_all_the_same(folder: Folder) -> None:
    log = folder.logs[1]
    position, header = folder.places(log)[3]
    folder.flip(log, position + header.size_bytes - 2)
    offsets = rf"{header.base_offset}\.\.{header.last_offset}"
    lines = has(
        folder,
        rf"damage t-0/{log.name} at byte {position}: the CRC of the batch of offsets {offsets} is wrong:"
        rf" expected {header.crc:08x}, got [0-9a-f]{{8}}",
    )
    # What depends on the batch is not told as further damage.
    assert all("not compared with the log, which has lost batches" in line for line in lines[1:])
    assert folder.totals.batches == BATCHES + 1
    assert folder.totals.records == 2 * BATCHES + 1 - 2


def test_a_broken_length_is_found_and_the_index_tells_where_to_go_on(folder: Folder) -> None:
    log = folder.logs[0]
    position, _ = folder.places(log)[2]
    folder.flip(log, position + 8)
    has(
        folder,
        rf"damage t-0/{log.name} at byte {position}: .*; the next batch that can be read begins at byte \d+:"
        r" expected the batch of offset 4",
    )
    assert BATCHES // 2 < folder.totals.batches < BATCHES


def test_without_an_index_what_cannot_be_reached_is_said_to_be_lost(folder: Folder) -> None:
    log = folder.logs[0]
    position, _ = folder.places(log)[2]
    folder.flip(log, position + 16)
    log.with_suffix(".index").unlink()
    lost = log.stat().st_size - position
    has(
        folder,
        rf"damage t-0/{log.name} at byte {position}: no batch begins here \(expected magic 2, got 3\);"
        rf" nothing says where the next batch begins, {lost} bytes are lost: expected the batch of offset 4",
    )


def test_a_base_offset_that_does_not_follow_is_found(folder: Folder) -> None:
    log = folder.logs[0]
    position = folder.change(log, 5, base_offset=1000)
    has(
        folder,
        rf"damage t-0/{log.name} at byte {position}: the base offset does not follow:"
        " expected 10, got 1000",
    )


def test_a_batch_that_is_missing_is_found(folder: Folder) -> None:
    log = folder.logs[0]
    position, header = folder.places(log)[4]
    data = log.read_bytes()
    log.write_bytes(data[:position] + data[position + header.size_bytes :])
    lines = has(
        folder,
        rf"damage t-0/{log.name} at byte {position}: the base offset does not follow: expected 8, got 10",
    )
    assert not any("had to be refused" in line for line in lines)
    assert any(".index at byte" in line and "no batch begins" in line for line in lines)


def test_a_wrong_number_of_records_is_found(folder: Folder) -> None:
    log = folder.logs[0]
    position = folder.change(log, 1, record_count=3)
    only(
        folder,
        rf"damage t-0/{log.name} at byte {position}: the number of records is not that of the offsets:"
        " expected 2, got 3",
    )


def test_a_leader_epoch_that_goes_back_is_found(folder: Folder) -> None:
    position = folder.change(folder.logs[0], 1, partition_leader_epoch=-2)
    only(
        folder,
        rf"damage t-0/0{{20}}\.log at byte {position}: the leader epoch went back:"
        " expected 0 or more, got -2",
    )


def test_a_leader_epoch_that_the_catalog_does_not_know_is_found(folder: Folder) -> None:
    count = len(folder.places(folder.last_log))
    position = folder.change(folder.last_log, count - 1, partition_leader_epoch=7)
    assert position > 0
    lines = folder.lines()
    assert lines[0].startswith("damage t-0: batches carry a leader epoch that the catalog does not know yet")
    assert re.fullmatch(
        r"damage t-0/leader-epoch-checkpoint: leader epoch 7 began elsewhere: expected 178, got none",
        lines[1],
    )


def test_a_missing_segment_is_found(folder: Folder) -> None:
    lost, following = folder.logs[1:3]
    for suffix in (".log", ".index", ".timeindex"):
        lost.with_suffix(suffix).unlink()
    has(
        folder,
        rf"damage t-0/{following.name}: the segment does not begin where the one before it ends:"
        rf" expected {int(lost.stem)}, got {int(following.stem)}",
    )


def test_a_missing_first_segment_is_found(folder: Folder) -> None:
    folder.logs[0].unlink()
    has(
        folder,
        r"damage t-0: the first segment begins after the log start offset: expected 0 or less, got \d+",
    )


def test_a_missing_end_of_the_log_is_found(folder: Folder) -> None:
    position, header = folder.places(folder.last_log)[-1]
    os.truncate(folder.last_log, position)
    lines = has(
        folder,
        r"damage t-0: the log ends before the recovery point: records that were durable are gone:"
        rf" expected 180, got {header.base_offset}",
    )
    assert any("it has more than the log" in line for line in lines)


def test_a_log_without_segments_is_found(folder: Folder) -> None:
    for log in folder.logs:
        log.unlink()
    has(folder, "damage t-0: the log has no segment: expected records up to 180")


def test_a_torn_tail_is_what_a_crash_leaves(folder: Folder) -> None:
    folder.crash()
    position, _ = folder.places(folder.last_log)[-1]
    folder.snapshot.unlink()
    os.truncate(folder.last_log, position + 70)
    lines = has(
        folder,
        rf"warning t-0/{folder.last_log.name} at byte {position}: a batch of \d+ bytes is cut off after 70;"
        " never durable: a broker cuts off these 70 bytes when it starts",
    )
    assert not any(line.startswith("damage") for line in lines)


def test_a_torn_tail_after_a_clean_shutdown_is_damage(folder: Folder) -> None:
    position, _ = folder.places(folder.last_log)[-1]
    os.truncate(folder.last_log, position + 20)
    has(folder, rf"damage t-0/.* at byte {position}: 20 bytes are no batch header; nothing says where .*")


def test_a_batch_whose_bytes_never_arrived_is_what_a_crash_leaves_if_nothing_follows(folder: Folder) -> None:
    folder.crash()
    position, header = folder.places(folder.last_log)[-1]
    data = bytearray(folder.last_log.read_bytes())
    data[position + 61 :] = bytes(header.size_bytes - 61)
    folder.last_log.write_bytes(data)
    has(folder, rf"warning t-0/.* at byte {position}: the CRC of the batch .* is wrong: .*")
    folder.flip(folder.last_log, folder.places(folder.last_log)[-2][0] + 70)
    has(folder, r"damage t-0/.*: the CRC of the batch .* is wrong: .*")


def test_files_that_were_set_aside_are_named(folder: Folder) -> None:
    (folder.partition / "00000000000000000010.log.damaged").write_bytes(b"x")
    only(folder, r"warning t-0/0{18}10\.log\.damaged: an earlier start found damage and kept it in this file")


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


def test_what_a_killed_broker_had_reserved_is_no_damage(folder: Folder) -> None:
    folder.crash(same_boot=True)
    log = folder.last_log
    log.write_bytes(log.read_bytes().ljust(RESERVED_BYTES, b"\0"))
    assert folder.lines() == []
    log.write_bytes(log.read_bytes() + b"\0")
    has(folder, rf"damage t-0/{log.name} at byte \d+: .* nothing says where the next batch begins, .*")


def test_what_was_reserved_in_a_closed_file_is_damage(folder: Folder) -> None:
    log = folder.last_log
    log.write_bytes(log.read_bytes().ljust(RESERVED_BYTES, b"\0"))
    has(folder, rf"damage t-0/{log.name} at byte \d+: .* nothing says where the next batch begins, .*")
