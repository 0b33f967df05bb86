"""Indexes of aborted transactions, and open transactions in snapshots, that the log contradicts are found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.broker.storage.support import (
    NOW_MS,
    append_own,
    append_transactional,
    flush,
    marker,
    open_log,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.snapshot import snapshot_path, snapshots, write_snapshot
from tidelog.broker.storage.verification.findings import Finding, Findings
from tidelog.broker.storage.verification.partition import EVERYTHING, PartitionCheck, PartitionFacts

CONFIG = LogConfig(segment_bytes=600)


def found_in(folder: Path, *, is_clean: bool = True, recovery_point: int = EVERYTHING) -> list[str]:
    found: list[Finding] = []
    facts = PartitionFacts(is_clean, None if is_clean else recovery_point, None, 0, None, 4096, True)
    PartitionCheck(Disk(), folder, facts, Findings(found.append), lambda size: None).run()
    return [f"{finding.severity.value} {finding}" for finding in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Aborted transactions 1 (from offset 0) and 2 (from 1) in two segments, and transaction 3 open."""
    partition = tmp_path / "t-0"
    log = open_log(partition, config=CONFIG)
    append_transactional(log, 1, 0)
    append_transactional(log, 2, 0)
    append_own(log, marker(1, commits=False))
    append_transactional(log, 3, 0)
    for sequence in range(1, 5):
        append_transactional(log, 2, sequence)
    append_own(log, marker(2, commits=False))
    flush(log)
    log.close(clean=True)
    assert len(list(partition.glob("*.txnindex"))) == 2
    return partition


def first(folder: Path) -> Path:
    return min(folder.glob("*.txnindex"))


def patched(position: int, value: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[position : position + 8] = value.to_bytes(8, "big")
        path.write_bytes(data)

    return damage


def test_a_sound_log_has_no_finding(folder: Path) -> None:
    assert found_in(folder) == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (Path.unlink, "damage {}: an aborted transaction is missing"),
        (patched(2, 9), "damage {}: an aborted transaction differs from the log"),
        (patched(10, 1), "damage {}: an aborted transaction differs from the log"),
        (patched(18, 3), "damage {}: the log has no such aborted transaction"),
        (patched(26, 9), "damage {}: an aborted transaction differs from the log"),
        (patched(10, 2), "damage {}: entry 0 is invalid"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "damage {}: 33 bytes are left over"),
        (lambda path: path.write_bytes(path.read_bytes() * 2), "damage {}: entry 1 is invalid"),
    ],
    ids=["gone", "producer", "first", "marker", "stable", "none", "cut", "twice"],
)
def test_an_index_that_the_log_contradicts_is_damage(
    folder: Path, damage: Callable[[Path], object], words: str
) -> None:
    path = first(folder)
    damage(path)
    lines = found_in(folder)
    assert any(line.startswith(words.format(f"t-0/{path.name}")) for line in lines), lines


def test_what_was_not_durable_yet_may_be_missing_or_left_over(folder: Path) -> None:
    first(folder).unlink()
    assert found_in(folder, is_clean=False, recovery_point=0) == []
    last = max(folder.glob("*.txnindex"))
    more = (1).to_bytes(8, "big") + (20).to_bytes(8, "big") + (21).to_bytes(8, "big") * 2
    last.write_bytes(last.read_bytes() + b"\0\0" + more)
    lines = found_in(folder, is_clean=False, recovery_point=0)
    assert len(lines) == 1
    assert lines[0].startswith(f"warning t-0/{last.name}: the log has no such aborted transaction"), lines


def test_a_snapshot_with_another_open_transaction_is_found(folder: Path) -> None:
    log = open_log(folder, config=CONFIG, clean=True)
    assert log.transactions.first_unstable == 3
    producers = log.producers
    slot = producers._table.find(3)
    producers._table.set_current_txn_start_offset(slot, -1)
    for name in snapshots(Disk(), folder):
        snapshot_path(folder, *name).unlink()
    write_snapshot(Disk(), folder, log.end_offset, producers.view())
    lines = found_in(folder)
    assert any("producer 3 has another open transaction than in the log" in line for line in lines), lines


def test_a_producer_whose_batches_were_deleted_is_known_by_its_marker_alone(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    log = open_log(partition, config=CONFIG)
    append_transactional(log, 1, 0, 3)
    log.roll(NOW_MS)
    append_own(log, marker(1))
    append_transactional(log, 1, 3)
    flush(log)
    for _ in range(2):
        log.take_snapshot()
    log.delete_records_before(3)
    assert log.segment_count == 1
    log.close(clean=True)
    assert found_in(partition) == []
