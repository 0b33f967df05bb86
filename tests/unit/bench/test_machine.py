"""Work of others is what the processors did beyond the bench's own processes."""

import os

from bench.machine import Machine, busy_seconds


def test_idle_and_waiting_for_the_disk_are_no_work() -> None:
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    stat = f"cpu  {ticks_per_s} 0 {ticks_per_s} 99999 88888 0 0 0 0 0\ncpu0 1 1 1 1"
    assert busy_seconds(stat) == 2.0


def test_the_share_of_others_is_a_share() -> None:
    assert 0 <= Machine().others_share() <= 1
