"""What the demo prints where there is no terminal: plain lines that say what happened."""

import io

from rich.console import Console

from demo.screen import Screen
from demo.shipment import Tally
from demo.verdict import KeyVerdict
from tidelog.pipeline.jobs.audit import KINDS, AuditReport


def plain_screen() -> tuple[Screen, io.StringIO]:
    text = io.StringIO()
    return Screen(Console(file=text, width=120, highlight=False)), text


def test_without_a_terminal_progress_is_a_line_for_each_tenth() -> None:
    screen, text = plain_screen()
    screen.start(1000)
    for acked in range(0, 1001, 50):
        screen.update(Tally(1000, sent=acked, acked=acked, kills=1))
    screen.stop()
    lines = text.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("sent 1,000 · acknowledged 1,000 ")
    assert lines[-1].endswith("kill -9 1")


def test_faults_are_lines_in_order() -> None:
    screen, text = plain_screen()
    screen.event("first")
    screen.event("second")
    assert text.getvalue().split() == ["first", "second"]


def test_on_a_terminal_the_display_is_live_and_ends_with_the_last_state() -> None:
    text = io.StringIO()
    screen = Screen(Console(file=text, width=120, force_terminal=True))
    screen.start(10)
    screen.event("the broker died")
    screen.update(Tally(10, sent=10, acked=10))
    screen.stop()
    assert "the broker died" in text.getvalue()
    assert "10/10" in text.getvalue()


def test_the_table_has_a_row_for_each_key_and_the_sum() -> None:
    screen, text = plain_screen()
    screen.verdict([KeyVerdict("AA", 10, 10, 0, 0, 0, 0, 0), KeyVerdict("UA", 20, 21, 1, 0, 0, 0, 0)])
    rows = [
        line.split() for line in text.getvalue().splitlines() if line.strip().startswith(("AA", "UA", "all"))
    ]
    assert rows == [
        ["AA", "10", "10", "0", "0", "0", "same"],
        ["UA", "20", "21", "1", "0", "0", "same"],
        ["all", "30", "31", "1", "0", "0", "same"],
    ]


def test_altered_and_invented_records_are_wrong_content() -> None:
    screen, text = plain_screen()
    screen.verdict([KeyVerdict("AA", 10, 12, 0, 0, 2, 3, 0)])
    assert "5 wrong" in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 80


def audited(records: int, unidentified: int, **findings: int) -> str:
    screen, text = plain_screen()
    producers = 1 if records > unidentified else 0
    screen.audit(AuditReport(records, unidentified, producers, dict.fromkeys(KINDS, 0) | findings, ()))
    return text.getvalue()


def test_the_audit_is_one_line_that_names_what_it_found() -> None:
    assert audited(2_000, 0) == (
        "Audit of the segment files: 2,000 records of 1 producer:"
        " every sequence number once, none missing, all in order.\n"
    )
    assert audited(2_000, 0, gap=2, duplicate=1_500).endswith("1 producer: 1,500 duplicate, 2 gap.\n")


def test_without_producer_ids_the_audit_says_that_it_proves_nothing() -> None:
    assert "none with a producer id" in audited(2_000, 2_000)
