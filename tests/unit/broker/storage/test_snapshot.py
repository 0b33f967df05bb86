"""Producer snapshots: complete or not there, all five batches, damage told from data."""

import errno
from dataclasses import replace
from pathlib import Path
from struct import Struct

import pytest
from crc32c import crc32c

from tests.unit.broker.storage.support import NEVER_ISSUED, NOW_MS, FaultyDisk, header
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import APPEND, Append, ProducerRules, Refusal
from tidelog.broker.storage.snapshot import (
    decode_snapshot,
    load_newest,
    snapshot_path,
    snapshots,
    write_snapshot,
)
from tidelog.protocol.errors import ErrorCode


def states(producers: int, batches: int = 5) -> ProducerStates:
    machine = ProducerStates(ProducerRules(), lambda: NEVER_ISSUED)
    for number in range(batches):
        for producer_id in range(producers):
            machine.apply(
                header(producer_id, 3, number * 2, 2), (number * producers + producer_id) * 2, NOW_MS
            )
    return machine


def restored(folder: Path, at_or_before: int = 1 << 60) -> ProducerStates:
    loaded = load_newest(Disk(), folder, at_or_before)
    assert loaded.frozen is not None
    return ProducerStates(ProducerRules(), lambda: NEVER_ISSUED, loaded.frozen, NOW_MS)


@pytest.mark.parametrize("producers", [0, 1, 63, 64, 65, 1000])
def test_everything_comes_back_in_the_order_of_the_last_append(tmp_path: Path, producers: int) -> None:
    machine = states(producers)
    write_snapshot(Disk(), tmp_path, 7, machine.view())
    assert list(restored(tmp_path).entries()) == list(machine.entries())


def test_open_transactions_and_what_is_known_of_aborted_ones_come_back(tmp_path: Path) -> None:
    machine = states(70)
    for producer_id in (3, 64):
        machine.apply(header(producer_id, 3, 10, attributes=0x10), 1000 + producer_id, NOW_MS)
    aborted = {0: (2, 0xFFFFFFFF), 1 << 40: (1, 7)}
    write_snapshot(Disk(), tmp_path, 7, replace(machine.view(), aborted=aborted))
    again = restored(tmp_path)
    assert (again.transactions.first_unstable, len(again.transactions)) == (1003, 2)
    assert again.check(header(64, 3, 11)) != APPEND
    assert again.check(header(64, 3, 11, attributes=0x10)) == APPEND
    assert list(again.entries()) == list(machine.entries())
    found = load_newest(Disk(), tmp_path, 7).frozen
    assert found is not None
    assert found.aborted == aborted


@pytest.mark.parametrize(
    ("at", "fields", "what"),
    [
        (4, (3,), "version 4, got"),
        (4, (5,), "version 4, got"),
        (40, (4, 152), "5 batches"),
        (42, (176,), "in 152"),
    ],
)
def test_a_snapshot_of_another_version_or_window_is_refused(
    tmp_path: Path, at: int, fields: tuple[int, ...], what: str
) -> None:
    write_snapshot(Disk(), tmp_path, 7, states(3).view())
    data = bytearray(snapshot_path(tmp_path, 7).read_bytes()[:-4])
    Struct(f"<{len(fields)}H").pack_into(data, at, *fields)
    with pytest.raises(ValueError, match=what):
        decode_snapshot(data + Struct("<I").pack(crc32c(data)))


def test_who_was_evicted_is_remembered_over_a_restart(tmp_path: Path) -> None:
    machine = ProducerStates(ProducerRules(max_producers=2), lambda: NEVER_ISSUED)
    for producer_id in range(4):
        machine.apply(header(producer_id, 3, 0), producer_id, NOW_MS)
    write_snapshot(Disk(), tmp_path, 4, machine.view())
    loaded = restored(tmp_path)
    for producer_id in (0, 1):
        verdict = loaded.check(header(producer_id, 3, 0))
        assert isinstance(verdict, Refusal)
        assert verdict.code == ErrorCode.UNKNOWN_PRODUCER_ID
        assert loaded.check(header(producer_id, 4, 0)) == Append()
    assert loaded.view().evicted == machine.freeze().evicted == {0: 3, 1: 3}
    data = snapshot_path(tmp_path, 4).read_bytes()
    for wrong in (data[:-14] + data[-4:], data[:4] + b"\1" + data[5:], data + data[-14:-4]):
        with pytest.raises(ValueError, match=r"CRC|expected"):
            decode_snapshot(wrong)


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    for offset in (3, 9, 27, 81):
        write_snapshot(Disk(), tmp_path, offset, states(1).view())
    assert [name.offset for name in snapshots(Disk(), tmp_path)] == [27, 81]


def test_a_second_one_at_the_same_offset_leaves_the_first_as_it_is(tmp_path: Path) -> None:
    for producers in (1, 2, 3):
        write_snapshot(Disk(), tmp_path, 12, states(producers).view())
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "00000000000000000012.2.snapshot",
        "00000000000000000012.3.snapshot",
    ]
    assert len(restored(tmp_path)) == 3
    snapshot_path(tmp_path, 12, 3).write_bytes(b"damaged")
    assert len(restored(tmp_path)) == 2
    write_snapshot(Disk(), tmp_path, 12, states(4).view())
    assert len(restored(tmp_path)) == 4


def test_two_that_no_crash_can_overtake_are_kept(tmp_path: Path) -> None:
    for offset, durable_end in ((3, 3), (9, 9), (27, 10), (81, 10), (90, 81)):
        write_snapshot(Disk(), tmp_path, offset, states(1).view(), durable_end)
        kept = [name for name in snapshots(Disk(), tmp_path) if name.offset <= durable_end]
        assert len(kept) == min(2, [3, 9, 27, 81, 90].index(offset) + 1)


def test_one_that_runs_ahead_of_the_log_is_deleted(tmp_path: Path) -> None:
    for offset in (3, 9):
        write_snapshot(Disk(), tmp_path, offset, states(1).view())
    assert load_newest(Disk(), tmp_path, 5).offset == 3
    assert [name.offset for name in snapshots(Disk(), tmp_path)] == [3]


def test_the_snapshot_of_another_partition_is_set_aside(tmp_path: Path) -> None:
    own, other = tmp_path / "topic-0", tmp_path / "topic-1"
    for folder, producers in ((own, 2), (other, 3)):
        folder.mkdir()
        write_snapshot(Disk(), folder, 5, states(producers).view())
        write_snapshot(Disk(), folder, 9, states(producers).view())
    snapshot_path(other, 9).rename(snapshot_path(own, 9))
    loaded = load_newest(Disk(), own, 9)
    assert loaded.offset == 5
    (aside,) = loaded.set_aside
    assert "written for another partition than topic-0" in aside


def test_every_damage_is_noticed_and_set_aside(tmp_path: Path) -> None:
    write_snapshot(Disk(), tmp_path, 5, states(1, 1).view())
    good = snapshot_path(tmp_path, 5).read_bytes()
    write_snapshot(Disk(), tmp_path, 9, states(1, 2).view())
    newest = snapshot_path(tmp_path, 9)
    data = newest.read_bytes()
    damages = [data[:size] for size in range(0, len(data), 97)] + [data + b"x", good]
    for position in range(0, len(data), 53):
        flipped = bytearray(data)
        flipped[position] ^= 0x10
        damages.append(bytes(flipped))
    for damaged in damages:
        newest.write_bytes(damaged)
        loaded = load_newest(Disk(), tmp_path, 100)
        assert loaded.offset == 5
        assert len(loaded.set_aside) == 1
        assert not newest.exists()
        assert newest.with_name(newest.name + ".corrupt").read_bytes() == damaged


def test_a_write_that_fails_leaves_the_older_snapshot(tmp_path: Path) -> None:
    disk = FaultyDisk()
    write_snapshot(disk, tmp_path, 5, states(1).view())
    disk.fail_write(errno.ENOSPC, 10)
    with pytest.raises(OSError, match="No space"):
        write_snapshot(disk, tmp_path, 9, states(2).view())
    assert [name.offset for name in snapshots(disk, tmp_path)] == [5]
    assert not list(tmp_path.glob("*.tmp")), "it takes space of a full disk"


def test_what_it_is_not_is_said(tmp_path: Path) -> None:
    write_snapshot(Disk(), tmp_path, 5, states(1).view())
    data = snapshot_path(tmp_path, 5).read_bytes()
    for wrong, words in (
        (data[:10], "too few"),
        (b"KAFK" + data[4:], "KAFK"),
        (data[:-1], "expected"),
    ):
        with pytest.raises(ValueError, match=words):
            decode_snapshot(wrong)
