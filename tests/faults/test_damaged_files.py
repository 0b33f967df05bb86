"""Damaged files of every kind: what was acknowledged is served unchanged, or its loss is told."""

import random
from pathlib import Path

import pytest
from crc32c import crc32c

from faults.checker import Kind
from faults.damage import trial
from faults.damage.files import Damage, Done, FileKind, damages_of, is_of_a_partition
from faults.damage.sample import batch_of
from tidelog.protocol.records import read_batch_header

SEED = 21
ROUNDS = 2
CRC_AT, CHECKED_FROM = 17, 21


async def test_a_damaged_folder_serves_what_was_acknowledged_or_says_what_is_lost(tmp_path: Path) -> None:
    outcome = await trial.run(SEED, 0, tmp_path, lambda text: None, rounds=ROUNDS)
    assert outcome.findings == [], f"seed {SEED}"
    assert outcome.tried.total() > ROUNDS


def test_every_damage_of_every_kind_of_file_has_its_turn() -> None:
    wanted = {
        trial.Todo(kind, damage)
        for kind in FileKind
        if kind is not FileKind.SCRATCH
        for damage in damages_of(kind)
    }
    turns = {flag: trial._in_turn(flag, SEED) for flag in (True, False)}
    counts = {flag: sum(is_of_a_partition(todo.kind) is flag for todo in wanted) for flag in turns}
    planned = [next(turns[flag]) for flag, count in counts.items() for _ in range(count)]
    assert (set(planned), len(planned)) == (wanted, len(wanted))


def test_no_file_is_damaged_twice(tmp_path: Path) -> None:
    for partition in range(2):
        log = tmp_path / f"t-{partition}" / f"{partition:020d}.log"
        log.parent.mkdir()
        log.write_bytes(batch_of(5, 0, partition, 0, 2, 1_000).data)
    plan = {"t-0": [trial.Todo(FileKind.LOG, Damage.EMPTY)], "t-1": [trial.Todo(FileKind.LOG, Damage.SWAP)]}
    done = trial._damage(tmp_path, plan, random.Random(SEED))
    assert [each.damage for each in done] == [Damage.EMPTY]


async def test_a_record_that_comes_back_changed_is_found_whatever_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forge(data_dir: Path, plan: object, rng: random.Random) -> list[Done]:
        """Another content for the first batch of a partition, with the CRC that fits."""
        path = data_dir / "steady-0" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        end = read_batch_header(data).size_bytes
        data[end - 2] ^= 1
        data[CRC_AT:CHECKED_FROM] = crc32c(bytes(data[CHECKED_FROM:end])).to_bytes(4, "big")
        path.write_bytes(data)
        return [Done(FileKind.LOG, Damage.FLIP, (path,), "forged")]

    monkeypatch.setattr(trial, "_damage", forge)
    outcome = await trial.run(SEED, 0, tmp_path, lambda text: None, rounds=1)
    assert Kind.INVENTED in {finding.kind for finding in outcome.findings}
    assert (tmp_path / "round-0" / "steady-0").exists(), "the damaged folder was not kept"
