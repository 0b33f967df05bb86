"""What the documents say of speed is what was measured."""

from pathlib import Path

import pytest

from bench.publish import END, PAGES, Page, published_table, table


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.published.stem} in {page.document.stem}")
def test_the_table_of_a_document_is_made_from_its_published_results(page: Page) -> None:
    _, begin, rest = page.document.read_text().partition(page.begin)
    shown, end, _ = rest.partition(END)
    assert (begin, shown.strip(), end) == (page.begin, published_table(page).strip(), END)


def test_what_another_does_better_is_named_and_a_column_with_nothing_is_left_out() -> None:
    rows = [
        {
            "scenario": "reads",
            "measure": "rate",
            "unit": "records/s",
            "values": {"tidelog": [4], "kafka": [5]},
        },
        {"scenario": "waits", "measure": "p50", "unit": "ms", "values": {"tidelog": [3], "kafka": [2]}},
        {"scenario": "waits", "measure": "p99", "unit": "ms", "values": {"tidelog": [9], "kafka": [8]}},
        {"scenario": "memory", "measure": "used", "unit": "MB", "values": {"tidelog": [6], "kafka": [5]}},
    ]
    machine = dict.fromkeys(("commit", "processors", "processor", "memory_gb", "kernel"), "")
    about = {"machine": machine | {"fdatasync_p50_ms": 1}, "rounds": 1, "measured_at": "2026-11-29"}
    page = Page(Path("document"), Path("published"), (), (("kafka", "tidelog"),))
    assert table(page, about | {"rows": rows}).splitlines()[:7] == [
        "| | Tidelog | × Kafka | p99, ms: Tidelog, Kafka, Kafka that flushes |",
        "|---|---:|---:|---:|",
        "| reads (records/s) | 4 | 0.80 |  |",
        "| waits (ms) | 3 | 1.50 | 9, 8, – |",
        "| memory (MB) | 6 | 1.20 |  |",
        "",
        "Less than 1 × Kafka: reads (0.80). More than 1 × Kafka: waits (1.50); memory (1.20).",
    ]


def test_a_page_may_show_each_measure_of_a_scenario() -> None:
    rows = [
        {
            "scenario": "consume",
            "measure": measure,
            "unit": unit,
            "values": {"tidelog": [4], "aiokafka": [other]},
        }
        for measure, unit, other in (("getmany", "records/s", 5), ("time", "us/record", 2))
    ]
    machine = dict.fromkeys(("commit", "processors", "processor", "memory_gb", "kernel"), "")
    about = {"machine": machine | {"fdatasync_p50_ms": 1}, "rounds": 1, "measured_at": "2026-11-29"}
    page = Page(Path("document"), Path("published"), (), (("aiokafka", "tidelog"),), is_by_measure=True)
    assert table(page, about | {"rows": rows}).splitlines()[:6] == [
        "| | Tidelog | × aiokafka |",
        "|---|---:|---:|",
        "| consume: getmany (records/s) | 4 | 0.80 |",
        "| consume: time (us/record) | 4 | 2.00 |",
        "",
        "Less than 1 × aiokafka: consume: getmany (0.80). More than 1 × aiokafka: consume: time (2.00).",
    ]
