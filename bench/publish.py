"""`python -m bench.publish`: publishes the newest results, and makes the tables of the documents from them.

Owns the files of published results and the parts of them that the documents show. A table is between two
comments. Everything in it comes from its file, also the commit, the machine and the date. A document of whose
tables nothing was measured stays as it is.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, NamedTuple

from bench.__main__ import BESIDE_KAFKA, LATEST
from bench.loads.spark_load import CONNECTOR
from bench.report import RATIO, middle_and_range, number
from bench.results import REFERENCE, SUBJECT, Row
from bench.scenarios import brokers, clients, pipeline, startup
from bench.targets.kafka import FlushedKafka, Kafka

_ROOT: Final = Path(__file__).parent.parent
END = "<!-- End of the table -->\n"
_SERVERS = (SUBJECT, Kafka.name, FlushedKafka.name)
_BESIDE_KAFKA = ((Kafka.name, SUBJECT), (FlushedKafka.name, SUBJECT))
_UNFLUSHED = (Kafka.name, brokers.Unflushed.name)
_OF_CLIENTS = tuple((name, SUBJECT) for name in clients.PEERS)
_OF_SPARK = ((CONNECTOR, SUBJECT), (pipeline.AIOKAFKA, SUBJECT), (REFERENCE, SUBJECT))


class Page(NamedTuple):
    """A document with a table of the results in `published`: those of these scenarios of the bench."""

    document: Path
    published: Path
    scenarios: tuple[str, ...]
    ratios: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    """Lines whose titles begin so are left out."""
    is_by_measure: bool = False
    """A line for each measure of a scenario, not only for the first."""

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
        _ROOT / "bench" / "published_latency.json",
        ("latency",),
        (*_BESIDE_KAFKA, _UNFLUSHED),
    ),
    Page(
        _ROOT / "docs" / "performance.md",
        _ROOT / "bench" / "published_share.json",
        ("share",),
        _BESIDE_KAFKA[:1],
    ),
    Page(
        _ROOT / "docs" / "performance.md",
        _ROOT / "bench" / "published_client.json",
        ("client",),
        _OF_CLIENTS,
        is_by_measure=True,
    ),
    Page(
        _ROOT / "docs" / "cluster.md",
        _ROOT / "bench" / "published_replicas.json",
        ("replicas",),
        _BESIDE_KAFKA,
    ),
    Page(
        _ROOT / "docs" / "spark.md",
        _ROOT / "bench" / "published_pipeline.json",
        ("pipeline",),
        _OF_SPARK,
    ),
)
_MEASURED = ("scenario", "measure", "unit", "values", "others", "busy")
_ABOUT = ("measured_at", "machine", "rounds")
_RATES = ("records/s", "requests/s")
_WIDTH = 120
_RATIO_TITLES: Final = {
    **{each: f"× {each[0]}" for each in _OF_CLIENTS},
    _BESIDE_KAFKA[0]: "× Kafka",
    _BESIDE_KAFKA[1]: "× Kafka that flushes",
    _UNFLUSHED: "unflushed × Kafka",
    _OF_SPARK[0]: "× Spark's connector",
    _OF_SPARK[1]: "× aiokafka",
    _OF_SPARK[2]: "× what it is compared with",
}


def published_table(page: Page) -> str:
    """The page's table as Markdown; empty before anything was published."""
    return table(page, json.loads(page.published.read_text())) if page.published.exists() else ""


def table(page: Page, content: Mapping[str, Any]) -> str:
    """The page's table of these results."""
    machine = content["machine"]
    rows = [Row(**row) for row in content["rows"]]
    if page.is_by_measure:
        rows = [replace(row, scenario=f"{row.scenario}: {row.measure}") for row in rows]
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
    # Without the columns that have nothing in any line.
    columns = [each for each in zip(titles, *_lines(page, rows), strict=True) if any(each[1:])]
    head, *cells = (f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))
    lines = [head.replace("|  |", "| |", 1), "|---" + "|---:" * (len(columns) - 1) + "|", *cells]
    if any("~" in line for line in lines):
        about += " A number after ~ is not reliable: other programs took more than a tenth of the processors."
    lost = [line for each in page.ratios for line in wrap(_lost(rows, each), _WIDTH)]
    return "\n".join([*lines, "", *lost, *([""] if lost else []), *wrap(about, _WIDTH), ""])


def _lost(rows: Sequence[Row], compared: tuple[str, str]) -> str:
    """In which scenarios the other is better, with the ratios: its rate is higher, or its time or memory is
    less. Empty without any."""
    against, of = compared
    title = _RATIO_TITLES[compared].replace("× ", "1 × ")
    better: dict[str, list[str]] = {"Less": [], "More": []}
    for name, (first, *_) in _by_scenario(rows).items():
        is_rate = first.unit in _RATES
        ratio = first.ratio(against, of)
        if ratio is not None and (ratio < 1 if is_rate else ratio > 1):
            better["Less" if is_rate else "More"].append(f"{name} ({ratio:.2f})")
    return " ".join(f"{word} than {title}: {'; '.join(names)}." for word, names in better.items() if names)


def _by_scenario(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.scenario, []).append(row)
    return found


def _lines(page: Page, rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """The cells of one per scenario: its first measure with the ratios, then processor time and latency."""
    for name, measures in _by_scenario(rows).items():
        if name.startswith(page.left_out):
            continue
        first = measures[0]
        mark = "" if first.is_quiet else "~"
        ratios = [(first.ratio(*each), first.ratio_range(*each)) for each in page.ratios]
        limits = (first.limit(server) for server in (SUBJECT, Kafka.name))
        yield (
            f"{name} ({first.unit})",
            f"{mark}{middle_and_range(first.middle(SUBJECT), first.range(SUBJECT))}",
            *(
                "" if ratio is None else f"{mark}{middle_and_range(ratio, ends, RATIO)}"
                for ratio, ends in ratios
            ),
            ", ".join(filter(None, limits)),
            *("" if page.is_by_measure else _numbers(measures, each) for each in ("server CPU", "p99")),
        )


def _numbers(measures: Sequence[Row], measure: str) -> str:
    """The medians of the servers in the row of this measure, and per what they are; empty without one."""
    for row in measures:
        if row.measure.startswith(measure):
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
