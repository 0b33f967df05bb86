"""What a person sees of the events of a client."""

import logging

import pytest

from tidelog.cli.client_events import ClientEvents, shown_client_events


def test_a_warning_is_one_line_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("tidelog.client")
    with shown_client_events():
        logger.warning("offset_out_of_range", extra={"partition": "t-0", "offset": 9})
        logger.debug("fetch_session_lost", extra={"node_id": 1})
    assert capsys.readouterr().err == "warning: offset_out_of_range partition=t-0 offset=9\n"
    assert not logger.handlers


def test_repeated_requests_are_reported_after_five_seconds_then_every_ten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    events = ClientEvents(lambda: now)
    reported = []
    for second in range(40):
        # The broker is away for 20 s, then for 5 s.
        if second <= 20 or second >= 35:
            now = second
            events.emit(logging.makeLogRecord({"msg": "batch_retried", "cause": "no answer", "levelno": 10}))
        if shown := capsys.readouterr().err:
            reported.append((second, shown))
    assert reported == [
        (5, "still trying after 5 s: no answer\n"),
        (15, "still trying after 15 s: no answer\n"),
    ]
