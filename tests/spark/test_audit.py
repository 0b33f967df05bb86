"""The audit finds each kind of fault where it was planted, and nothing in a log that is sound."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.brokers import RunningBroker, running_broker
from tests.unit.pipeline.batches import make_batch
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs.audit import COLUMNS, KINDS, AuditReport, build, find, run
from tidelog.pipeline.jobs.audit_settings import AuditSettings
from tidelog.pipeline.offsets import OptionError, Place
from tidelog.protocol.types import MAX_SEQUENCE

Finding = tuple[str, int, int]
TIME = 1_700_000_000_000


# Records as (epoch, sequence) in log order, and what is to be found in them as (kind, offset, amount).
CASES: list[tuple[list[tuple[int, int]], list[Finding]]] = [
    ([(0, 5), (0, 6), (0, 7), (1, 0), (1, 1)], []),
    ([(0, MAX_SEQUENCE - 1), (0, MAX_SEQUENCE), (0, 0), (0, 1)], []),
    ([(0, 0), (0, 1), (0, 1), (0, 2)], [("duplicate", 2, 1)]),
    ([(0, 0), (0, 1), (0, 0), (0, 1), (0, 2)], [("duplicate", 2, 1), ("duplicate", 3, 1)]),
    ([(0, 0), (0, 1), (0, 5), (0, 6)], [("gap", 2, 3)]),
    ([(0, MAX_SEQUENCE - 1), (0, 1)], [("gap", 1, 2)]),
    ([(0, 0), (1, 4), (1, 5)], [("gap", 1, 4)]),
    ([(0, 0), (0, 2), (0, 1), (0, 3)], [("reordered", 2, 1)]),
    ([(0, 0), (0, 2), (0, 2), (0, 1)], [("duplicate", 2, 1), ("reordered", 3, 1)]),
    ([(1, 0), (1, 1), (0, 8), (1, 2)], [("epoch_regression", 2, 1)]),
]


def test_each_kind_is_found_where_it_was_planted(spark: SparkSession) -> None:
    rows = [
        ("t", partition, offset, producer_id, epoch, sequence)
        for partition in (0, 1)
        for producer_id, (records, _) in enumerate(CASES)
        for offset, (epoch, sequence) in enumerate(records)
    ]
    types = ("string", "int", "long", "long", "int", "int")
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(COLUMNS, types, strict=True))
    found: list[list[Finding]] = [[] for _ in CASES]
    missing_at_start = [0] * len(CASES)
    # Partition 1 holds the same, and nothing was taken from its log.
    for row in find(spark.createDataFrame(rows, schema), [Place("t", 1)]).collect():
        if row.partition == 0:
            found[row.producer_id].append((row.kind, row.offset, row.amount))
        elif row.kind == "gap" and row.offset == 0:
            missing_at_start[row.producer_id] = row.amount
    assert [sorted(each) for each in found] == [expected for _, expected in CASES]
    assert missing_at_start == [records[0][1] for records, _ in CASES]


def batch(first: int, base_offset: int = 0, epoch: int = 0) -> bytes:
    """Ten records of producer 7 from sequence `first` on."""
    rows = [(TIME, None, b"x", ()) for _ in range(10)]
    return bytes(make_batch(rows, base_offset=base_offset, producer=(7, epoch, first)))


def test_segment_files_are_judged_across_their_borders(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "planted-0"
    folder.mkdir()
    control = make_batch([(TIME, b"\0\0\0\0", b"", ())], base_offset=10, is_control=True)
    (folder / f"{0:020}.log").write_bytes(batch(0) + control)
    (folder / f"{11:020}.log").write_bytes(batch(0, 11) + batch(20, 21) + batch(10, 31)[:50])
    settings = AuditSettings(path=str(tmp_path), output=str(tmp_path / "findings"))
    report = run(spark, settings)
    assert (report.records, report.producers, report.unidentified) == (30, 1, 0)
    assert report.findings == {"duplicate": 10, "gap": 1, "reordered": 0, "epoch_regression": 0}
    assert not report.is_clean
    written = spark.read.parquet(str(tmp_path / "findings"))
    assert written.where("kind = 'gap'").select("offset", "amount").first() == (21, 10)
    assert written.count() == 11


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        broker.create_topic("plain")
        broker.append("plain", 0, [make_batch([(TIME, None, b"x", ())]) for _ in range(5)])
        yield broker


def test_a_running_brokers_folder_and_the_wire_say_the_same(
    spark: SparkSession, broker: RunningBroker
) -> None:
    wire = AuditSettings(topics=("plain",), cluster=ClusterConfig(broker.bootstrap_servers))
    files = AuditSettings(
        topics=("plain",),
        cluster=ClusterConfig(broker.bootstrap_servers),
        path=str(broker.process.data_dir),
    )
    expected = AuditReport(5, 5, 0, dict.fromkeys(KINDS, 0), ())
    assert run(spark, wire) == run(spark, files) == expected


def test_records_behind_the_high_watermark_are_not_judged(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "plain-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(batch(0) + batch(40, 10))
    settings = AuditSettings(cluster=ClusterConfig(broker.bootstrap_servers), path=str(tmp_path))
    assert run(spark, settings).records == 5


def test_nothing_to_audit_is_an_error_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="topics and bootstrap servers, or a path"):
        build(spark, AuditSettings())
    with pytest.raises(FileNotFoundError, match="no segments of absent below"):
        build(spark, AuditSettings(topics=("absent",), path=str(tmp_path)))
