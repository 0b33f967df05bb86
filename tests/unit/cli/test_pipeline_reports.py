"""A report tells a person what was found, and no more than that."""

import pytest

from tidelog.cli.pipeline_reports import show
from tidelog.pipeline.jobs.audit import KINDS, AuditReport

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
