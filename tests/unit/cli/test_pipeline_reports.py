"""A report tells a person what was found, and no more than that."""

import pytest

from tidelog.cli.pipeline_reports import show
from tidelog.pipeline.jobs.audit import KINDS, AuditReport
from tidelog.pipeline.jobs.stats import StatsReport
from tidelog.pipeline.jobs.stats_sketches import METRICS

FINDING = {
    "kind": "gap",
    "topic": "t",
    "partition": 0,
    "offset": 4,
    "producer_id": 7,
    "producer_epoch": 0,
    "sequence": 9,
    "amount": 3,
}


def test_an_audit_names_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    report = AuditReport(1010, 10, 1, dict.fromkeys(KINDS, 0) | {"gap": 2}, (FINDING,))
    show("audit", report)
    assert capsys.readouterr().out.splitlines() == [
        "gap: t-0 offset 4, producer 7 epoch 0 sequence 9, 3 missing before it",
        "... and 1 more",
        "1,000 records of 1 producer: 2 findings; 10 records without a producer cannot be judged",
    ]
    summary = report.summary()
    assert (summary["event"], summary["gap"], report.exit_code) == ("audit_finished", 2, 1)


@pytest.mark.parametrize(
    ("records", "unidentified", "producers", "line"),
    [
        (1, 0, 1, "1 record of 1 producer: each once and in order"),
        (0, 0, 0, "no record that can be judged"),
        (5, 5, 0, "no record that can be judged; 5 records without a producer cannot be judged"),
    ],
)
def test_an_audit_vouches_for_no_record_that_it_cannot_judge(
    records: int, unidentified: int, producers: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show("audit", AuditReport(records, unidentified, producers, dict.fromkeys(KINDS, 0), ()))
    assert capsys.readouterr().out == f"{line}\n"


def test_stats_have_durations_sizes_and_numbers_that_people_read(capsys: pytest.CaptureFixture[str]) -> None:
    row = dict.fromkeys(METRICS, 2) | {"topic": "t", "partition": 0, "records": 1_234_567}
    row |= {"records_per_second": 0.0123, "bytes_per_second": 26_300_000.0, "lag_max_ms": 27_237_600_000}
    show("stats", StatsReport(False, 1, {}, (row, row | {"partition": 1, "lag_max_ms": None})))
    columns, *rows = capsys.readouterr().out.splitlines()
    assert columns.split()[:5] == ["TOPIC", "PARTITION", "RECORDS", "RECORDS/S", "BYTES/S"]
    assert rows[0].split("  ")[-1] == "315 days 6 h"
    assert [*rows[0].split()[:5]] == ["t", "0", "1,234,567", "0.012", "26.3"]
    assert len(rows[0]) == len(rows[1])
    assert rows[1].endswith(" -")
