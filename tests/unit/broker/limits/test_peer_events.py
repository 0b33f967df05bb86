"""Events that peers cause, as a log shows them."""

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.net.peers import Peer, serving
from tests.waiting import until
from tidelog.broker.limits.peer_events import EVENTS_PER_PEER, MAX_PEERS, OTHER_PEERS, PeerEvents


async def test_the_number_of_suppressed_events_is_logged_when_their_window_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.broker.limits.peer_events.WINDOW_SECONDS", 0.01)
    peers = PeerEvents()
    with capture_logs() as events:
        for _ in range(EVENTS_PER_PEER + 7):
            peers.warning("bad", "host", peer="host:1")
        await until(lambda: len(events) > EVENTS_PER_PEER)
    assert events[-1] == {
        "event": "events_held_back",
        "log_level": "warning",
        "of": "bad",
        "peer": "host",
        "events": 7,
        "window_seconds": 0.01,
    }


async def test_an_end_tells_what_was_held_back_so_far_and_once() -> None:
    peers = PeerEvents()
    with capture_logs() as events:
        for _ in range(EVENTS_PER_PEER + 1):
            peers.info("bad", "host")
        peers.close()
        peers.close()
    assert [event["event"] for event in events] == ["bad"] * EVENTS_PER_PEER + ["events_held_back"]


async def test_events_are_logged_by_kind_and_peer_and_a_new_window_begins_with_nothing_held_back() -> None:
    peers = PeerEvents()
    for _ in range(2):
        with capture_logs() as events:
            for event, peer, times in (("bad", "a", 1000), ("bad", "b", 3), ("worse", "a", EVENTS_PER_PEER)):
                for _ in range(times):
                    peers.info(event, peer)
            peers.close()
        (held,) = (each for each in events if each["event"] == "events_held_back")
        assert (held["of"], held["peer"], held["events"]) == ("bad", "a", 1000 - EVENTS_PER_PEER)
        assert len(events) == 1 + EVENTS_PER_PEER + 3 + EVENTS_PER_PEER


async def test_however_many_peers_come_the_log_is_bounded_and_every_event_is_logged_or_counted() -> None:
    peers, times = PeerEvents(), EVENTS_PER_PEER + 2
    with capture_logs() as events:
        for number in range(1_000):
            for _ in range(times):
                peers.info("bad", f"peer {number}")
        peers.close()
    held = [each for each in events if each["event"] == "events_held_back"]
    logged = len(events) - len(held)
    assert logged <= (MAX_PEERS + 1) * EVENTS_PER_PEER
    assert len(held) <= MAX_PEERS + 1
    assert held[-1]["peer"] == OTHER_PEERS
    assert logged + sum(each["events"] for each in held) == 1_000 * times


async def test_the_words_of_a_peer_are_logged_in_part_where_they_are_long() -> None:
    with capture_logs() as events:
        PeerEvents().error("bad", "host", client_id="x" * 32_767, error=RuntimeError("why"), number=1)
    (event,) = events
    assert len(event["client_id"]) < 400
    assert event["client_id"].endswith("(32767 characters)")
    assert (str(event["error"]), event["number"]) == ("why", 1)


async def test_garbage_on_many_connections_is_a_few_lines_and_a_count() -> None:
    async with serving({}) as server:
        with capture_logs() as events:
            for _ in range(30):
                async with await Peer.connect(server.port) as peer:
                    peer.send(b"GET / HTTP/1.1\r\n\r\n")
                    assert await peer.closed() == b""
            server.events.close()
    assert [event["event"] for event in events] == [
        *["connection_closed_bad_request"] * EVENTS_PER_PEER,
        "events_held_back",
    ]
    assert events[-1]["events"] == 30 - EVENTS_PER_PEER
