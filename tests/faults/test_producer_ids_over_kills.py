"""Producer ids over kill -9 at any instant: the ids of all lives are different."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from tidelog.broker.coordinator.producer_ids import BLOCK_SIZE

SEED = 20_240_607
LIVES = 12


def ids_of_a_life(folder: Path, kill_after: int) -> list[int]:
    """Start a process, kill it once it has handed out `kill_after` ids, and take all that it said.

    The kill falls while the process goes on, so where exactly it falls is the machine's choice. With
    `kill_after` 0 it falls as soon as the store's log has changed: a block may be reserved by then or not.
    """
    command = [sys.executable, "-m", "tests.faults.producer_id_life", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as life:
        assert life.stdout is not None
        try:
            if not kill_after:
                wait_for_change(folder / "cluster.db-wal", life)
            said = [life.stdout.readline() for _ in range(kill_after)]
        finally:
            life.kill()
        said += life.stdout.readlines()
    # A line without its end was cut off by the kill: nobody got that id.
    return [int(line) for line in said if line.endswith(b"\n")]


def wait_for_change(path: Path, life: subprocess.Popen[bytes]) -> None:
    before = state_of(path)
    deadline = time.monotonic() + 10
    while state_of(path) == before and life.poll() is None and time.monotonic() < deadline:
        pass


def state_of(path: Path) -> tuple[int, int]:
    if not path.exists():
        return (-1, 0)
    status = path.stat()
    return (status.st_size, status.st_mtime_ns)


def test_no_id_is_handed_out_twice_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    seen: list[int] = []
    for life in range(LIVES):
        # Around the first id, where a block was just reserved, around the prefetch, around the next block.
        kill_after = max(0, chance.choice([0, 0, BLOCK_SIZE * 9 // 10, BLOCK_SIZE]) + chance.randint(-3, 3))
        ids = ids_of_a_life(tmp_path, kill_after)
        assert len(ids) >= kill_after, f"seed {SEED}: life {life} ended by itself"
        assert ids == sorted(ids)
        assert not (ids and seen) or ids[0] > seen[-1], f"seed {SEED}: life {life}: {ids[0]} after {seen[-1]}"
        seen += ids
    assert len(set(seen)) == len(seen) > BLOCK_SIZE
