"""When a client may ask and push, and how much of all clients is kept."""

from uuid import UUID

import pytest

from tidelog.broker.telemetry import client_instances
from tidelog.broker.telemetry.client_instances import ClientInstances, Instance
from tidelog.broker.telemetry.metrics_data import Series, Value
from tidelog.broker.telemetry.subscriptions import Client, Subscription
from tidelog.protocol.errors import ApiError, ErrorCode

CLIENT = Client("", "orders", "", "", "", "")
INTERVAL_MS = 1_000
ID = 5


def made() -> Instance:
    return Instance(CLIENT, Subscription(ID, ("*",), INTERVAL_MS))


def refused(call: object, *arguments: object, **more: object) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        call(*arguments, **more)  # type: ignore[operator]
    return error.value.code


def series(count: int, *labels: tuple[str, str]) -> dict[Series, Value]:
    return {Series(f"m{number}", labels): Value(float(number), False) for number in range(count)}


def test_a_client_may_ask_and_push_once_in_its_interval() -> None:
    client = made()
    client.check_get(10_000)
    client.check_push(10_001, ID, is_terminating=False)
    assert refused(client.check_push, 11_000, ID, is_terminating=False) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused(client.check_get, 11_000) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    client.check_push(11_001, ID, is_terminating=False)
    client.check_get(12_001)
    client.check_push(12_001, ID, is_terminating=False)


def test_a_clock_that_was_set_back_stops_no_client() -> None:
    client = made()
    client.check_get(10_000_000)
    client.check_push(10_000_001, ID, is_terminating=False)
    client.check_push(5_000, ID, is_terminating=False)


def test_a_client_with_an_old_subscription_is_told_and_may_ask_at_once() -> None:
    client = made()
    client.check_get(10_000)
    assert (
        refused(client.check_push, 10_500, ID + 1, is_terminating=False) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    )
    client.last_error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    client.check_get(10_501)


def test_the_last_push_of_a_client_comes_at_any_time_and_is_the_last() -> None:
    client = made()
    client.check_push(10_000, ID, is_terminating=False)
    client.check_push(10_001, ID, is_terminating=True)
    assert refused(client.check_push, 20_000, ID, is_terminating=True) == ErrorCode.INVALID_REQUEST


def test_of_too_many_clients_the_one_that_was_silent_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_instances, "MOST_INSTANCES", 2)
    clients = ClientInstances()
    first, second, third = (UUID(int=number) for number in (1, 2, 3))
    clients.add(first, made(), 0)
    clients.add(second, made(), 1)
    assert clients.get(first, 2) is not None
    clients.add(third, made(), 3)
    assert [clients.get(each, 4) is not None for each in (first, second, third)] == [True, False, True]


def test_series_above_the_limit_are_counted_and_those_of_the_whole_client_come_first() -> None:
    clients = ClientInstances()
    first, second = UUID(int=1), UUID(int=2)
    one, other = clients.add(first, made(), 0), clients.add(second, made(), 0)
    clients.take(first, one, {**series(3, ("topic", "t")), **series(2)}, 4)
    assert (len(one.series), one.left_out) == (4, 1)
    assert set(series(2)) <= set(one.series)
    clients.take(second, other, series(2), 4)
    assert (len(other.series), other.left_out) == (0, 2)
    clients.take(first, one, series(1), 4)
    clients.take(second, other, series(2), 4)
    assert (len(one.series), len(other.series), other.left_out) == (1, 2, 0)
    clients.remove(first)
    clients.take(second, other, series(5), 4)
    assert len(other.series) == 4


def test_what_a_client_pushed_that_was_forgotten_meanwhile_is_not_kept() -> None:
    clients = ClientInstances()
    forgotten = clients.add(UUID(int=1), made(), 0)
    again = clients.add(UUID(int=1), made(), 0)
    clients.take(UUID(int=1), forgotten, series(2), 2)
    clients.take(UUID(int=1), again, series(2), 2)
    assert (len(forgotten.series), len(again.series)) == (0, 2)


def test_a_client_that_is_silent_for_three_intervals_and_a_minute_is_not_shown() -> None:
    clients = ClientInstances()
    clients.add(UUID(int=1), made(), 0)
    assert len(clients.living(60_000)) == 1
    assert clients.living(60_001) == []
    slow = Instance(CLIENT, Subscription(ID, (), 300_000))
    clients.add(UUID(int=2), slow, 0)
    assert clients.living(900_000) == [slow]
    assert clients.living(900_001) == []
