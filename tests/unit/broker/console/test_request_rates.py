"""The rates of connections between two looks at them."""

from types import SimpleNamespace
from typing import Any

from tidelog.broker.console.request_rates import MOST_REMEMBERED, RequestRates


def connection(number: int, requests: int) -> Any:
    return SimpleNamespace(connection_id=number, opened=0.0, requests=requests)


def test_a_rate_is_that_since_the_look_before_and_at_first_that_since_the_connection_began() -> None:
    rates = RequestRates()
    assert rates.of(connection(1, requests=100), now=10.0) == 10
    assert rates.of(connection(1, requests=160), now=12.0) == 30
    assert rates.of(connection(1, requests=999), now=12.5) == 30, "looks that are close together share one"
    assert rates.of(connection(1, requests=160), now=15.0) == 0


def test_rates_of_a_bounded_number_of_connections_are_remembered() -> None:
    rates = RequestRates()
    for number in range(MOST_REMEMBERED + 1):
        rates.of(connection(number, requests=100), now=10.0)
    assert rates.of(connection(0, requests=100), now=20.0) == 5, "since it began: it was forgotten"
    assert rates.of(connection(MOST_REMEMBERED, requests=100), now=20.0) == 0
