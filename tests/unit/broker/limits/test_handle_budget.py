"""Connections take no file handle that the logs need, and counting handles costs little."""

from tidelog.broker.limits.handle_budget import ALWAYS_SERVED, HandleBudget
from tidelog.broker.storage.disk import Disk

LIMIT = 1000


class CountedDisk(Disk):
    """Has as many handles free as the test says, and counts how often it was asked."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.looks = 0

    def free_handles(self) -> int:
        self.looks += 1
        return self.free

    def handle_limit(self) -> int:
        return LIMIT


def admitted(disk: CountedDisk, budget: HandleBudget, before: int = ALWAYS_SERVED) -> int:
    """How many connections come in until one is refused."""
    count = 0
    while True:
        disk.free -= 1
        if not budget.admits(before + count):
            disk.free += 1
            return count
        count += 1


def test_what_the_logs_may_need_is_left_free() -> None:
    disk = CountedDisk(LIMIT - 20)
    few, many = HandleBudget(disk, lambda: 10), HandleBudget(disk, lambda: 10_000)
    assert admitted(disk, few) == LIMIT - 20 - (96 + 2 * 10)
    assert disk.free == 96 + 2 * 10
    disk.free = LIMIT - 20
    admitted(disk, many)
    assert disk.free == LIMIT // 4


def test_a_handle_that_comes_free_is_given_to_the_next_connection() -> None:
    disk = CountedDisk(200)
    now = 0.0
    budget = HandleBudget(disk, lambda: 0, lambda: now)
    assert admitted(disk, budget) == 104
    disk.free += 1
    assert not budget.admits(ALWAYS_SERVED)
    now += 1
    assert admitted(disk, budget) == 1


def test_handles_are_counted_now_and_then_and_not_for_each_connection() -> None:
    disk = CountedDisk(LIMIT)
    budget = HandleBudget(disk, lambda: 0, lambda: 0.0)
    assert admitted(disk, budget) > 900 - ALWAYS_SERVED
    assert disk.looks < 30
    looks = disk.looks
    for _ in range(1000):
        assert not budget.admits(ALWAYS_SERVED)
    assert disk.looks == looks


def test_some_connections_are_always_served() -> None:
    budget = HandleBudget(CountedDisk(0), lambda: 10)
    assert all(budget.admits(count) for count in range(ALWAYS_SERVED))
    assert not budget.admits(ALWAYS_SERVED)
