"""Events that peers cause, as a log shows them."""

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.net.peers import Peer, serving
from tests.waiting import until
from tidelog.broker.limits.event_throttle import EVENTS_PER_PEER
from tidelog.broker.limits.peer_events import PeerEvents


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
