"""`python -m bench.publish`: publishes the newest results, and makes the tables of the documents from them.

Owns the files of published results and the parts of them that the documents show. A table is between two
comments. Everything in it comes from its file, also the commit, the machine and the date. A document of whose
tables nothing was measured stays as it is.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, NamedTuple

from bench.__main__ import BESIDE_KAFKA, LATEST
from bench.report import RATIO, middle_and_range, number
from bench.results import SUBJECT, Row
from bench.scenarios import brokers, startup
from bench.targets.kafka import FlushedKafka, Kafka

_ROOT: Final = Path(__file__).parent.parent
END = "<!-- End of the table -->\n"
_SERVERS = (SUBJECT, Kafka.name, FlushedKafka.name)
_BESIDE_KAFKA = ((Kafka.name, SUBJECT), (FlushedKafka.name, SUBJECT))
_UNFLUSHED = (Kafka.name, brokers.Unflushed.name)


class Page(NamedTuple):
    """A document with a table of the results in `published`: those of these scenarios of the bench."""

    document: Path
    published: Path
    scenarios: tuple[str, ...]
    ratios: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    """Lines whose titles begin so are left out."""

    @property
    def begin(self) -> str:
        """The line before the table."""
        return f"<!-- From bench/{self.published.name}, by python -m bench.publish -->\n"


_PUBLISHED = _ROOT / "bench" / "published.json"
PAGES: Final = (
    Page(
        _ROOT / "README.md",
        _PUBLISHED,
        tuple(BESIDE_KAFKA),
        (*_BESIDE_KAFKA, _UNFLUSHED),
        ("librdkafka", "consume", "Java", "1,000 partitions", "start", "idle"),
    ),
    Page(
        _ROOT / "docs" / "performance.md",
        _PUBLISHED,
        tuple(BESIDE_KAFKA),
        (*_BESIDE_KAFKA, _UNFLUSHED),
        (startup.KILLED,),
    ),
    Page(
        _ROOT / "docs" / "performance.md",
        _ROOT / "bench" / "published_share.json",
        ("share",),
        _BESIDE_KAFKA[:1],
    ),
    Page(
        _ROOT / "docs" / "cluster.md",
        _ROOT / "bench" / "published_replicas.json",
        ("replicas",),
        _BESIDE_KAFKA,
    ),
)
_MEASURED = ("scenario", "measure", "unit", "values", "others", "processors")
_ABOUT = ("measured_at", "machine", "rounds")
_WIDTH = 120
_RATIO_TITLES: Final = {
    _BESIDE_KAFKA[0]: "× Kafka",
    _BESIDE_KAFKA[1]: "× Kafka that flushes",
    _UNFLUSHED: "unflushed × Kafka",
}


def published_table(page: Page) -> str:
    """The page's table as Markdown; empty before anything was published."""
    return table(page, json.loads(page.published.read_text())) if page.published.exists() else ""


def table(page: Page, content: Mapping[str, Any]) -> str:
    """The page's table of these results."""
    machine = content["machine"]
    rows = [Row(**row) for row in content["rows"]]
    about = (
        f"Rounds: {content['rounds']}. Ratios are taken within a round; a cell has the median and the range."
        f" {content['measured_at'][:10]}, commit"
        f" {machine['commit']}; {machine['processors']} processors ({machine['processor']}),"
        f" {machine['memory_gb']} GB, Linux {machine['kernel']}, {machine['fdatasync_p50_ms']:.2f} ms per"
        " fdatasync."
    )
    titles = (
        *("", "Tidelog", *(_RATIO_TITLES[each] for each in page.ratios), "limit: Tidelog, Kafka"),
        "broker's CPU: Tidelog, Kafka, Kafka that flushes",
        "p99, ms: Tidelog, Kafka, Kafka that flushes",
    )
    head = f"|{'|'.join(f' {title} ' if title else ' ' for title in titles)}|"
    lines = [head, "|---" + "|---:" * (len(titles) - 1) + "|", *_lines(page, rows)]
    if any("~" in line for line in lines):
        about += " A number after ~ is not reliable: other programs took more than a tenth of the processors."
    lost = [line for each in page.ratios for line in wrap(_lost(rows, each), _WIDTH)]
    return "\n".join([*lines, "", *lost, *([""] if lost else []), *wrap(about, _WIDTH), ""])


def _lost(rows: Sequence[Row], compared: tuple[str, str]) -> str:
    """The rates in which the other is faster, with the ratios; empty where there is none."""
    against, of = compared
    rates = [row for row in rows if row.measure == "rate"]
    slower = [f"{row.scenario} ({ratio:.2f})" for row in rates if (ratio := row.ratio(against, of) or 1) < 1]
    return (
        f"Less than {_RATIO_TITLES[compared].replace('× ', '1 × ')}: {'; '.join(slower)}." if slower else ""
    )


def _lines(page: Page, rows: Sequence[Row]) -> Iterator[str]:
    """One per scenario: its first measure with the ratios, then processor time and latency."""
    for name in dict.fromkeys(row.scenario for row in rows if not row.scenario.startswith(page.left_out)):
        measures = [row for row in rows if row.scenario == name]
        first = measures[0]
        mark = "" if first.is_quiet else "~"
        ratios = [(first.ratio(*each), first.ratio_range(*each)) for each in page.ratios]
        limits = (first.limit(server) for server in (SUBJECT, Kafka.name))
        cells = (
            f"{name} ({first.unit})",
            f"{mark}{middle_and_range(first.middle(SUBJECT), first.range(SUBJECT))}",
            *(
                "" if ratio is None else f"{mark}{middle_and_range(ratio, ends, RATIO)}"
                for ratio, ends in ratios
            ),
            ", ".join(filter(None, limits)),
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


def _published(tables: Sequence[Mapping[str, Any]]) -> str:
    """JSON with what was measured, without what follows from it; a row per line, so that two publications can
    be compared. Where several runs measured the tables, it names the commits of all."""
    about = {name: tables[-1][name] for name in _ABOUT}
    commits = dict.fromkeys(table["machine"]["commit"] for table in tables)
    about["machine"] = {**about["machine"], "commit": ", ".join(commits)}
    rows = ({name: row[name] for name in _MEASURED} for table in tables for row in table["rows"])
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{json.dumps(about, ensure_ascii=False).removesuffix("}")},\n"rows": [\n{lines}\n]}}\n'


def main() -> int:
    """Publish what was measured."""
    latest = json.loads(LATEST.read_text())
    for page in PAGES:
        tables = [latest["tables"][name] for name in page.scenarios if name in latest["tables"]]
        if not tables:
            continue
        before, _, rest = page.document.read_text().partition(page.begin)
        page.published.write_text(_published(tables))
        page.document.write_text(f"{before}{page.begin}{published_table(page)}{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
