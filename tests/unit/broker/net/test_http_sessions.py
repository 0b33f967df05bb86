"""A session of the console belongs to one user, and ends in time."""

import pytest

from tidelog.broker.net.http_sessions import (
    IDLE_SECONDS,
    LONGEST_SECONDS,
    MOST,
    MOST_OF_USER,
    Identity,
    Sessions,
)
from tidelog.protocol.scram import ScramCredential, ScramMechanism, credential_of

SHA_256 = ScramMechanism.SCRAM_SHA_256


def credential(salt: bytes = b"salt") -> dict[ScramMechanism, ScramCredential]:
    return {SHA_256: credential_of(SHA_256, bytes(32), salt, 4096)}


class Users:
    def __init__(self) -> None:
        self.held: dict[str, dict[ScramMechanism, ScramCredential]] = {"alice": credential()}

    def get(self, user: str) -> dict[ScramMechanism, ScramCredential] | None:
        return self.held.get(user)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def users() -> Users:
    return Users()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(users: Users, clock: Clock) -> Sessions:
    return Sessions(users, clock)  # type: ignore[arg-type]


def alice(ends_seconds: float = float("inf")) -> Identity:
    return Identity("alice", credential(), ends_seconds)


def user_of(sessions: Sessions, secret: str) -> str | None:
    found = sessions.find(secret)
    return None if found is None else found.user


def test_only_its_secret_opens_a_session_and_each_has_its_own(sessions: Sessions) -> None:
    secrets = {sessions.begin(alice()) for _ in range(5)}
    assert len(secrets) == 5
    assert all(len(secret) >= 43 for secret in secrets)
    assert {user_of(sessions, secret) for secret in secrets} == {"alice"}
    for wrong in ("", "x", next(iter(secrets))[:-1], "\udcff"):
        assert user_of(sessions, wrong) is None
    assert all(secret not in repr(vars(sessions)) for secret in secrets)


def test_it_ends_after_an_hour_without_a_request_and_after_twelve_at_the_latest(
    sessions: Sessions, clock: Clock
) -> None:
    idle, used = sessions.begin(alice()), sessions.begin(alice())
    begin = clock.now
    while clock.now + IDLE_SECONDS - 1 < begin + LONGEST_SECONDS:
        clock.now += IDLE_SECONDS - 1
        assert user_of(sessions, used) == "alice"
    clock.now = begin + LONGEST_SECONDS
    assert user_of(sessions, used) is None
    assert user_of(sessions, idle) is None


def test_a_look_that_is_no_request_does_not_make_it_longer(sessions: Sessions, clock: Clock) -> None:
    secret = sessions.begin(alice())
    clock.now += IDLE_SECONDS - 1
    assert sessions.find(secret, is_used=False) is not None
    clock.now += 1
    assert sessions.find(secret) is None


def test_it_ends_with_the_token_that_began_it(sessions: Sessions, clock: Clock) -> None:
    secret = sessions.begin(alice(clock.now + 10))
    clock.now += 10
    assert user_of(sessions, secret) is None


@pytest.mark.parametrize("change", ["deleted", "another password"])
def test_it_ends_when_its_user_is_changed(sessions: Sessions, users: Users, change: str) -> None:
    secret = sessions.begin(alice())
    if change == "deleted":
        del users.held["alice"]
    else:
        users.held["alice"] = credential(b"more salt")
    assert user_of(sessions, secret) is None
    users.held["alice"] = credential()
    assert user_of(sessions, secret) is None


def test_it_ends_when_its_user_signs_out_and_the_other_sessions_stay(sessions: Sessions) -> None:
    one, other = sessions.begin(alice()), sessions.begin(alice())
    ended = sessions.end(one)
    assert ended is not None
    assert ended.user == "alice"
    assert sessions.end(one) is None
    assert user_of(sessions, one) is None
    assert user_of(sessions, other) == "alice"


def test_there_are_few_of_a_user_and_a_bounded_number_of_all(sessions: Sessions) -> None:
    first = sessions.begin(alice())
    kept = [sessions.begin(alice()) for _ in range(MOST_OF_USER)]
    assert user_of(sessions, first) is None
    assert {user_of(sessions, secret) for secret in kept} == {"alice"}
    others = [sessions.begin(Identity(f"user{number}", None)) for number in range(MOST)]
    assert len(sessions) == MOST
    assert user_of(sessions, others[-1]) == f"user{MOST - 1}"
    assert user_of(sessions, kept[0]) is None
