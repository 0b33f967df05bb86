"""What peers can make a broker log is bounded, and nothing is held back in silence."""

from tidelog.broker.limits.event_throttle import (
    EVENTS_PER_PEER,
    MAX_PEERS,
    OTHER_PEERS,
    EventThrottle,
    HeldBack,
)


def admitted(throttle: EventThrottle, event: str, peer: str, times: int) -> int:
    return sum(throttle.admit(event, peer) for _ in range(times))


def test_events_are_admitted_by_kind_and_peer_and_the_rest_is_counted() -> None:
    throttle = EventThrottle()
    assert admitted(throttle, "bad", "a", 1000) == EVENTS_PER_PEER
    assert admitted(throttle, "bad", "b", 3) == 3
    assert admitted(throttle, "worse", "a", EVENTS_PER_PEER) == EVENTS_PER_PEER
    assert throttle.end_window() == [HeldBack("bad", "a", 1000 - EVENTS_PER_PEER)]


def test_a_new_window_begins_with_nothing_held_back() -> None:
    throttle = EventThrottle()
    admitted(throttle, "bad", "a", 1000)
    throttle.end_window()
    assert admitted(throttle, "bad", "a", 1000) == EVENTS_PER_PEER
    throttle.end_window()
    assert throttle.end_window() == []


def test_however_many_peers_come_log_and_memory_are_bounded_and_every_event_is_logged_or_counted() -> None:
    throttle = EventThrottle()
    times = EVENTS_PER_PEER + 2
    logged = sum(admitted(throttle, "bad", f"peer {number}", times) for number in range(10_000))
    assert logged <= (MAX_PEERS + 1) * EVENTS_PER_PEER
    held = throttle.end_window()
    assert len(held) <= MAX_PEERS + 1
    assert held[-1].peer == OTHER_PEERS
    assert logged + sum(one.events for one in held) == 10_000 * times
