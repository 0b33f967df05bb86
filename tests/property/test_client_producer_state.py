"""Whatever the network and the broker do, what the producer reports is true.

Hypothesis draws how often each mishap happens; the schedule itself comes from the seed that it draws too.
"""

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.network import Faults
from tests.simulation.test_exactly_once import check, play

chance = st.sampled_from([0.0, 0.0, 0.02, 0.1, 0.4])
faults = st.builds(
    Faults,
    cut_before=chance,
    cut_after=chance,
    swallow_answer=chance,
    repeat_request=chance,
    refuse_retriable=chance,
    append_then_refuse=chance,
    crash=st.sampled_from([0.0, 0.0, 0.02]),
    max_delay_ms=st.sampled_from([0, 3, 50]),
    max_ghost_delay_ms=st.sampled_from([0, 500, 5_000]),
)


@given(st.integers(0, 2**32), faults, st.sampled_from([30, 300, 3_000, 10**9]))
def test_every_outcome_is_true(seed: int, faults: Faults, delivery_timeout_ms: int) -> None:
    check(play(seed, faults, delivery_timeout_ms=delivery_timeout_ms, records=60))


@given(st.integers(0, 2**32), faults)
def test_an_expired_producer_recovers_without_a_false_report(seed: int, faults: Faults) -> None:
    check(
        play(
            seed,
            faults._replace(max_ghost_delay_ms=500),
            records=60,
            delivery_timeout_ms=3_000,
            expiration_ms=10_000,
            pauses_ms=(0, 0, 0, 1, 5, 30, 11_000),
        )
    )
