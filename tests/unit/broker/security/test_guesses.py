"""The rule for wrong passwords, with times of the test's own."""

import sys

import pytest

from tidelog.broker.security.guesses import (
    MOST,
    OF_ADDRESS,
    OF_USER,
    SECONDS_OF_ADDRESS,
    SECONDS_OF_USER,
    Guesses,
)

HOST, ELSEWHERE = "192.0.2.1", "192.0.2.2"


def fail(guesses: Guesses, count: int, host: str = HOST, user: str = "alice", now: float = 0.0) -> None:
    for _ in range(count):
        assert guesses.wait_seconds(host, user, now) == 0
        guesses.failed(host, user, now)


def test_a_user_fails_a_few_times_and_then_slowly_at_one_address_only() -> None:
    guesses = Guesses()
    fail(guesses, OF_USER)
    assert guesses.wait_seconds(HOST, "alice", 0.0) == SECONDS_OF_USER
    assert guesses.wait_seconds(HOST, "bob", 0.0) == 0
    assert guesses.wait_seconds(ELSEWHERE, "alice", 0.0) == 0
    fail(guesses, 1, now=SECONDS_OF_USER)
    assert guesses.wait_seconds(HOST, "alice", SECONDS_OF_USER) == SECONDS_OF_USER
    fail(guesses, OF_USER, now=100 * SECONDS_OF_USER)
    assert guesses.wait_seconds(HOST, "alice", 100 * SECONDS_OF_USER) > 0


def test_an_address_fails_as_many_users_and_then_slowly_but_for_those_who_signed_in_there() -> None:
    guesses = Guesses()
    guesses.succeeded(HOST, "alice")
    for number in range(OF_ADDRESS):
        fail(guesses, 1, user=str(number))
    assert guesses.wait_seconds(HOST, "one more", 0.0) == SECONDS_OF_ADDRESS
    assert guesses.wait_seconds(HOST, "alice", 0.0) == 0
    assert guesses.wait_seconds(ELSEWHERE, "one more", 0.0) == 0
    fail(guesses, OF_USER)
    assert guesses.wait_seconds(HOST, "alice", 0.0) > 0


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:0:0:2", True),
        ("2001:db8::1", "2001:DB8:0:0:0:0:0:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("", "192.0.2.1", False),
    ],
)
def test_what_one_customer_has_is_one_address(one: str, other: str, is_same: bool) -> None:
    guesses = Guesses()
    fail(guesses, OF_USER, one)
    assert bool(guesses.wait_seconds(other, "alice", 0.0)) is is_same


def test_pairs_are_not_mixed_up_and_any_name_is_taken() -> None:
    guesses = Guesses()
    fail(guesses, OF_USER, user="a\0b")
    fail(guesses, 1, user="a")
    fail(guesses, 1, user="\ud800")
    fail(guesses, 1, host="\0a", user="b")


def test_memory_is_bounded_however_many_ask_and_however_long_their_names_are() -> None:
    guesses = Guesses()
    for number in range(MOST + 100):
        host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        guesses.failed(host, "x" * 10_000, 0.0)
        guesses.succeeded(host, "x" * 10_000)
    kept = (guesses._of_users, guesses._of_addresses, guesses._known)
    assert [len(each) for each in kept] == [MOST] * 3
    assert max(sys.getsizeof(key) for each in kept for key in each) < 120
