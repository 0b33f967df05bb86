"""Where log events go and how their lines look; in processes of their own, as the set-up is a process's."""

import json
import os
import pty
import subprocess
import sys
from functools import cache

PROGRAM = """
import sys
from tidelog.broker.observability import log_events
log_events.import_structlog_without_rich()
log_events.configure()
import structlog
logger = structlog.get_logger("test")
logger.warning("log_recovered", partition=1)
logger.debug("not_shown")
logger.info("broker_started", port=9092)
try:
    1 / 0
except ZeroDivisionError as error:
    path = __import__("pathlib").Path("/x")
    logger.error("request_failed", exc_info=error, principal="svc\\ud800", path=path)
"""


@cache
def run(program: str) -> tuple[list[str], list[str]]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_standard_output_begins_with_broker_started_and_what_comes_before_goes_to_standard_error() -> None:
    out, errors = run(PROGRAM)
    assert [json.loads(line)["event"] for line in out] == ["broker_started", "request_failed"]
    assert [json.loads(line)["event"] for line in errors] == ["log_recovered"]


def test_a_line_is_json_with_the_event_first_then_its_fields() -> None:
    out, _ = run(PROGRAM)
    assert out[0].startswith('{"event": "broker_started", "port": 9092, "level": "info", "timestamp": "')


def test_an_exception_is_part_of_its_event_and_unknown_types_are_text() -> None:
    out, _ = run(PROGRAM)
    event = json.loads(out[1])
    assert "ZeroDivisionError" in event["exception"]
    assert event["path"] == "/x"


def test_a_name_that_cannot_be_encoded_is_escaped_and_its_event_is_not_lost() -> None:
    out, _ = run(PROGRAM)
    assert '"principal": "svc\\ud800"' in out[1]


def test_on_a_terminal_a_refused_start_is_one_sentence_whatever_standard_output_is() -> None:
    program = """
from tidelog.broker.observability import log_events
log_events.import_structlog_without_rich()
log_events.configure()
import structlog
logger = structlog.get_logger("test")
logger.error("broker_not_started", error="the port is in use")
logger.info("broker_started", port=1)
"""
    reads, terminal = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=terminal, check=True
    )
    os.close(terminal)
    assert os.read(reads, 1000) == b"error: the port is in use\r\n"
    os.close(reads)
    assert json.loads(done.stdout)["event"] == "broker_started"


def test_structlog_comes_without_rich_which_stays_importable() -> None:
    out, _ = run(
        "import sys\nfrom tidelog.broker.observability import log_events\n"
        "log_events.import_structlog_without_rich()\n"
        "print('structlog' in sys.modules, 'rich' in sys.modules)\nimport rich\nprint(rich.__name__)"
    )
    assert out == ["True False", "rich"]


def test_an_embedded_broker_leaves_the_programs_logging_alone() -> None:
    out, _ = run("import structlog, broker.app\nprint(structlog.is_configured())")
    assert out == ["False"]


RECENT = """
import sys
from tidelog.broker.observability import log_events
log_events.configure(sys.stderr)
import structlog
logger = structlog.get_logger("test")
for number in range(log_events.RECENT_EVENTS):
    logger.info("counted", number=number)
log_events.set_level("ERROR")
logger.info("not_shown")
try:
    1 / 0
except ZeroDivisionError as error:
    many = {f"field{number}": number for number in range(99)}
    logger.error("request_failed", exc_info=error, name="x" * 100_000, ports=[1, 2], **many)
print(log_events.to_json(log_events.recent()))
"""


LEVELS_OF_LOGGERS = """
import sys
from tidelog.broker.observability import log_events
log_events.configure(sys.stdout)
import structlog
log_events.set_level("ERROR", "tidelog.broker.net")
log_events.set_level("INFO", "tidelog.broker.net.http")
for name in ("tidelog.broker.app", "tidelog.broker.net.server", "tidelog.broker.net.http"):
    structlog.get_logger(name).warning("warned", by=name)
log_events.unset_level("tidelog.broker.net")
structlog.get_logger("tidelog.broker.net.server").warning("warned", by="again")
"""


def test_a_logger_has_its_own_level_or_that_of_the_nearest_above_it() -> None:
    _, errors = run(LEVELS_OF_LOGGERS)
    shown = [json.loads(line)["by"] for line in errors]
    assert shown == ["tidelog.broker.app", "tidelog.broker.net.http", "again"]


def test_the_last_events_are_kept_as_bounded_text() -> None:
    out, _ = run(RECENT)
    events = json.loads(out[-1])
    assert len(events) == 100
    assert (events[0][0], events[0][1]["number"]) == (2, "1")
    number, last = events[-1]
    assert number == 101
    assert (last["event"], last["level"], last["ports"]) == ("request_failed", "error", "[1, 2]")
    assert last["exc_info"] == "division by zero"
    assert max(map(len, last.values())) == 500
    assert len(last) < 40
