"""The broker's clocks: whoever sets the wall clock makes nobody old, and nothing young again.

While a broker runs: `test_services`.
"""

from collections.abc import Callable

from tests.unit.broker.storage.support import header
from tidelog.broker.clock import SteadyClock
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import ProducerRules

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Machine:
    """A machine's two clocks: time passes for both, and one of them can be set."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ms = wall_ms
        self.uptime_ms = 5_000

    def pass_time(self, passed_ms: int) -> None:
        self.wall_ms += passed_ms
        self.uptime_ms += passed_ms

    def boot(self) -> Callable[[], int]:
        return SteadyClock(lambda: self.wall_ms, lambda: self.uptime_ms * 1_000_000).now_ms


def test_the_steady_clock_starts_with_the_wall_clock_and_is_never_set() -> None:
    machine = Machine(1_700_000_000_000)
    steady = machine.boot()
    assert steady() == machine.wall_ms
    machine.pass_time(10)
    machine.wall_ms += DAY_MS
    assert steady() == 1_700_000_000_010
    machine.wall_ms -= 30 * DAY_MS
    machine.pass_time(5)
    assert steady() == 1_700_000_000_015


def test_the_real_clocks_agree_at_the_start_and_go_on() -> None:
    first = SteadyClock().now_ms
    reading = first()
    assert reading > 1_600_000_000_000
    assert first() >= reading


def test_a_clock_set_while_the_broker_was_down_expires_no_producer_and_keeps_none_for_ever() -> None:
    for jump_ms in (400 * DAY_MS, -400 * DAY_MS):
        machine = Machine(1_700_000_000_000)
        before = ProducerStates(ProducerRules(expiration_ms=DAY_MS), lambda: 10)
        steady = machine.boot()
        before.apply(header(1, 0, 0), 0, steady())
        machine.pass_time(23 * HOUR_MS)
        assert before.expire(steady()) == 0
        machine.wall_ms += jump_ms
        steady = machine.boot()
        states = ProducerStates(ProducerRules(expiration_ms=DAY_MS), lambda: 10, before.view(), steady())
        assert states.expire(steady()) == 0
        machine.pass_time(HOUR_MS - 1)
        assert states.expire(steady()) == 0
        machine.pass_time(1)
        assert states.expire(steady()) == 1
