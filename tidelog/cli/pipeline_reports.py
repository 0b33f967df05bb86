"""What a job's report looks like to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli.tables import counted, print_table

if TYPE_CHECKING:
    from tidelog.pipeline.jobs.job import Report


def show(job: str, report: Report) -> None:
    shown = {"audit": _show_audit, "stats": _show_stats}
    shown.get(job, _show_summary)(report)


def _show_audit(report: Any) -> None:
    for finding in report.shown:
        print(
            f"{finding['kind']}: {finding['topic']}-{finding['partition']} offset {finding['offset']},"
            f" producer {finding['producer_id']} epoch {finding['producer_epoch']}"
            f" sequence {finding['sequence']}"
            + (f", {finding['amount']} missing before it" if finding["kind"] == "gap" else "")
        )
    found = sum(report.findings.values())
    if found > len(report.shown):
        print(f"... and {found - len(report.shown)} more")
    print(_verdict(report.records - report.unidentified, report.producers, report.unidentified, found))


def _verdict(judged: int, producers: int, unidentified: int, found: int) -> str:
    verdict = counted(found, "finding") if found else "each once and in order"
    said = f"{counted(judged, 'record')} of {counted(producers, 'producer')}: {verdict}"
    parts = [said if judged else "no record that can be judged"]
    if unidentified:
        parts.append(f"{counted(unidentified, 'record')} without a producer cannot be judged")
    return "; ".join(parts)


def _show_stats(report: Any) -> None:
    columns, rows = report.table()
    print_table(columns, rows, numbers=columns[1:])


def _show_summary(report: Report) -> None:
    numbers = {name: value for name, value in report.summary().items() if name != "event"}
    shown = [
        (name.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else value)
        for name, value in numbers.items()
    ]
    print_table(("WHAT", "HOW MUCH"), shown, numbers=("HOW MUCH",))
