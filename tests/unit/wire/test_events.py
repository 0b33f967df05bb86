"""The events of a client in an application that configured no logging."""

import logging

import pytest
import structlog

from tidelog.wire.events import logger


def test_what_python_prints_by_itself_has_the_fields_of_the_event(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: False)
    monkeypatch.setattr(logging.getLogger("tidelog"), "propagate", False)
    logger.warning("topic_not_found", topic="orders")
    assert capsys.readouterr().err == "topic_not_found topic=orders\n"


def test_the_text_for_ordinary_logging_has_the_fields_of_the_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: False)
    logger.warning("topic_not_found", topic="100 %s")
    (record,) = caplog.records
    assert (record.getMessage(), vars(record)["topic"]) == ("topic_not_found topic=100 %s", "100 %s")
