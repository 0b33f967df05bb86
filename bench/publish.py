"""`python -m bench.publish`: publishes the newest results, and makes the README's table from them.

Owns the file of published results and the part of it that the README shows. The table is between two
comments. Everything in it comes from the file, also the commit, the machine and the date.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from bench.__main__ import LATEST
from bench.report import number
from bench.results import SUBJECT, Row
from bench.scenarios import brokers, startup
from bench.targets.kafka import FlushedKafka, Kafka

PUBLISHED = Path(__file__).parent / "published.json"
README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- From bench/published.json, by python -m bench.publish -->\n", "<!-- End of the table -->\n"
TABLES = ("throughput", "requests", "consume", "java", "partitions", "startup")
_SERVERS = (SUBJECT, Kafka.name, FlushedKafka.name)
_RATIOS = ((Kafka.name, SUBJECT), (FlushedKafka.name, SUBJECT), (Kafka.name, brokers.Unflushed.name))
_LEFT_OUT = (brokers.one_record_requests(1, 1), startup.KILLED)
"""Measured, and too much for a README."""
_WIDTH = 120
_HEAD = (
    "| | Tidelog | × Kafka | × Kafka that flushes | unflushed × Kafka"
    " | broker's CPU: Tidelog, Kafka, Kafka that flushes | p99, ms: Tidelog, Kafka, Kafka that flushes |",
    "|---|---:|---:|---:|---:|---:|---:|",
)


def table(content: Mapping[str, Any]) -> str:
    """The README's table as Markdown, with what was measured of TABLES."""
    machine = content["machine"]
    rows = [
        Row(row["scenario"], row["measure"], row["unit"], values=row["values"], others=row["others"])
        for measured in content["tables"].values()
        for row in measured["rows"]
    ]
    about = (
        f"Rounds: {content['rounds']}; ratios are taken within a round. {content['measured_at'][:10]}, commit"
        f" {machine['commit']}; {machine['processors']} processors ({machine['processor']}),"
        f" {machine['memory_gb']} GB, Linux {machine['kernel']}, {machine['fdatasync_p50_ms']:.2f} ms per"
        " fdatasync."
    )
    lines = [*_HEAD, *_lines(rows)]
    if any("~" in line for line in lines):
        about += " A number after ~ is not reliable: other programs took more than a tenth of the processors."
    return "\n".join([*lines, "", *wrap(about, _WIDTH), ""])


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    """One per scenario: its first measure with the ratios, then processor time and latency."""
    for name in dict.fromkeys(row.scenario for row in rows if row.scenario not in _LEFT_OUT):
        measures = [row for row in rows if row.scenario == name]
        first = measures[0]
        mark = "" if first.is_quiet else "~"
        ratios = [first.ratio(against, of) for against, of in _RATIOS]
        cells = (
            f"{name} ({first.unit})",
            f"{mark}{number(first.middle(SUBJECT))}",
            *("" if ratio is None else f"{mark}{ratio:.2f}" for ratio in ratios),
            _numbers(measures, "µs/"),
            _numbers(measures, "ms"),
        )
        yield f"| {' | '.join(cells)} |"


def _numbers(measures: Sequence[Row], unit: str) -> str:
    """The medians of the servers in the row of this unit, and per what they are; empty without one."""
    for row in measures:
        if row.unit.startswith(unit):
            medians = ", ".join(number(row.middle(server)) for server in _SERVERS)
            return medians + row.unit.removeprefix("ms").replace("µs/", " µs per ")
    return ""


def main() -> int:
    """Publish what was measured of TABLES."""
    content = json.loads(LATEST.read_text())
    content["tables"] = {name: content["tables"][name] for name in TABLES if name in content["tables"]}
    before, _, rest = README.read_text().partition(BEGIN)
    PUBLISHED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    README.write_text(f"{before}{BEGIN}{table(content)}{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
