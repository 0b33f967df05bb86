"""A process that ended is started again."""

from tidelog.broker.processes.restarts import Restarts


def test_a_process_that_keeps_ending_is_started_ever_later_and_one_that_was_steady_at_once() -> None:
    restarts = Restarts()
    assert [restarts.seconds_until_next(0.1) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert restarts.seconds_until_next(60.0) == 0
    assert restarts.seconds_until_next(0.1) == 0.5
