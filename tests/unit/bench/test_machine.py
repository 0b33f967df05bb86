"""Work of others is what the processors did beyond the bench's own processes."""

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.machine import Watch, busy_seconds, describe, disk_seconds, fdatasync_seconds
from bench.targets.process import cpu_seconds

BURN = "import time\nwhile time.process_time() < 0.5: pass"


def test_idle_and_waiting_for_the_disk_are_no_work() -> None:
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    stat = f"cpu  {ticks_per_s} 0 {ticks_per_s} 99999 88888 0 0 0 0 0\ncpu0 1 1 1 1"
    assert busy_seconds(stat) == 2.0


def test_the_share_of_others_leaves_out_a_server_of_the_bench() -> None:
    with subprocess.Popen([sys.executable, "-c", BURN]) as server:
        all_of_it, without = Watch(), Watch([server.pid])
        while cpu_seconds(server.pid) < 0.4:
            pass
        # Each is a share of the time up to its own look, and this process may pause between two of them.
        before, of_others, after = all_of_it.others_share(), without.others_share(), all_of_it.others_share()
        assert 0 <= of_others < max(before, after) <= 1


def test_a_sync_gives_the_disk_work(tmp_path: Path) -> None:
    before = disk_seconds(tmp_path)
    deadline = time.monotonic() + 60
    # A system that counts nothing (a file system without a device) has nothing to show.
    while before and disk_seconds(tmp_path) == before:
        assert time.monotonic() < deadline
        fdatasync_seconds(tmp_path / "file")


def test_results_say_which_commit_and_machine_they_are_of(tmp_path: Path) -> None:
    about = describe(tmp_path)
    assert about["commit"]
    assert about["fdatasync_p50_ms"] > 0
    assert list(tmp_path.iterdir()) == []
