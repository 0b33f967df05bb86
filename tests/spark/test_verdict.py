"""The judge finds each kind of fault that is planted, and nothing where there is none."""

import dataclasses
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from demo.verdict import KeyVerdict, judge, total

Row = tuple[str | None, bytes, int, int]
STORED_SCHEMA = "key STRING, value BINARY, partition INT, offset LONG"


def value(key: str, number: int) -> bytes:
    return f'{{"number":{number},"carrier":"{key}","more":[{number}]}}'.encode()


def healthy() -> list[Row]:
    """Two keys in partition 0, interleaved, and one in partition 1."""
    shared = [(key, value(key, number), 0) for number in range(10) for key in ("AA", "UA")]
    alone = [("WN", value("WN", number), 1) for number in range(5)]
    return [(key, text, place, offset) for offset, (key, text, place) in enumerate(shared + alone)]


@pytest.fixture(scope="module")
def expected(spark: SparkSession) -> DataFrame:
    rows = [(key, number, value(key, number)) for key in ("AA", "UA") for number in range(10)]
    rows += [("WN", number, value("WN", number)) for number in range(5)]
    return spark.createDataFrame(rows, "key STRING, number LONG, value BINARY").cache()


def findings(spark: SparkSession, expected: DataFrame, stored: list[Row]) -> dict[str, dict[str, Any]]:
    """Per key, the counts that are neither 0 nor what a healthy topic gives."""
    verdicts = judge(expected, spark.createDataFrame(stored, STORED_SCHEMA))
    right = {"AA": 10, "UA": 10, "WN": 5}
    odd: dict[str, dict[str, Any]] = {}
    for each in verdicts:
        normal = {"key": each.key, "expected": right.get(each.key), "stored": right.get(each.key)}
        counts = {name: n for name, n in dataclasses.asdict(each).items() if n != normal.get(name, 0)}
        assert each.is_exact == (not counts)
        if counts:
            odd[each.key] = counts
    return odd


def test_a_healthy_topic_is_exact(spark: SparkSession, expected: DataFrame) -> None:
    stored = spark.createDataFrame(healthy(), STORED_SCHEMA)
    verdicts = judge(expected, stored)
    assert [each.key for each in verdicts] == ["AA", "UA", "WN"]
    assert all(each.is_exact for each in verdicts)
    assert total(verdicts) == KeyVerdict("all", 25, 25, 0, 0, 0, 0, 0)


def test_a_missing_record_is_found(spark: SparkSession, expected: DataFrame) -> None:
    stored = [row for row in healthy() if row[1] != value("UA", 4)]
    assert findings(spark, expected, stored) == {"UA": {"stored": 9, "missing": 1}}


def test_duplicates_are_counted_beyond_the_first(spark: SparkSession, expected: DataFrame) -> None:
    stored = [*healthy(), ("AA", value("AA", 9), 0, 100), ("AA", value("AA", 9), 0, 101)]
    assert findings(spark, expected, stored) == {"AA": {"stored": 12, "duplicated": 2}}


def test_a_late_duplicate_is_no_disorder_but_a_late_first_is(
    spark: SparkSession, expected: DataFrame
) -> None:
    duplicated = [*healthy(), ("AA", value("AA", 2), 0, 100)]
    assert findings(spark, expected, duplicated) == {"AA": {"stored": 11, "duplicated": 1}}
    moved = [row for row in healthy() if row[1] != value("AA", 2)] + [("AA", value("AA", 2), 0, 100)]
    assert findings(spark, expected, moved) == {"AA": {"out_of_order": 1}}


def test_two_swapped_records_are_out_of_order(spark: SparkSession, expected: DataFrame) -> None:
    swap = {value("UA", 3): value("UA", 4), value("UA", 4): value("UA", 3)}
    stored = [(key, swap.get(text, text), place, offset) for key, text, place, offset in healthy()]
    assert findings(spark, expected, stored) == {"UA": {"out_of_order": 1}}


def test_a_key_in_two_partitions_is_out_of_order(spark: SparkSession, expected: DataFrame) -> None:
    stored = [(*row[:2], 2, row[3]) if row[1] == value("WN", 4) else row for row in healthy()]
    assert findings(spark, expected, stored) == {"WN": {"out_of_order": 1}}


def test_an_altered_value_is_found(spark: SparkSession, expected: DataFrame) -> None:
    stored = [
        (key, text.replace(b"[7]", b"[8]") if key == "AA" else text, place, offset)
        for key, text, place, offset in healthy()
    ]
    assert findings(spark, expected, stored) == {"AA": {"altered": 1}}


def test_invented_records_are_found(spark: SparkSession, expected: DataFrame) -> None:
    stored = [
        *healthy(),
        ("AA", value("AA", 10), 0, -1),
        ("ZZ", value("ZZ", 0), 0, 101),
        ("WN", b"not one of ours", 1, 102),
        (None, value("AA", 1), 1, 103),
    ]
    assert findings(spark, expected, stored) == {
        "AA": {"stored": 11, "invented": 1},
        "ZZ": {"expected": 0, "stored": 1, "invented": 1},
        "WN": {"stored": 6, "invented": 1},
        "(none)": {"expected": 0, "stored": 1, "invented": 1},
    }


def test_an_empty_topic_misses_everything(spark: SparkSession, expected: DataFrame) -> None:
    assert total(judge(expected, spark.createDataFrame([], STORED_SCHEMA))).missing == 25
