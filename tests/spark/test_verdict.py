"""The judge finds each kind of fault that is planted, and nothing where there is none."""

import dataclasses
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from demo.verdict import KeyVerdict, judge, total

Row = tuple[str | None, bytes, int, int]
STORED_SCHEMA = "key STRING, value BINARY, partition INT, offset LONG"


EXPECTED = {"AA": 10, "UA": 10, "WN": 5}


def value(key: str, number: int) -> bytes:
    return f'{{"number":{number},"carrier":"{key[:2]}","more":[{number}]}}'.encode()


def healthy() -> list[Row]:
    """Two keys in partition 0, interleaved, and one in partition 1."""
    shared = [(key, value(key, number), 0) for number in range(10) for key in ("AA", "UA")]
    alone = [("WN", value("WN", number), 1) for number in range(5)]
    return [(key, text, place, offset) for offset, (key, text, place) in enumerate(shared + alone)]


def expected(spark: SparkSession, suffixes: list[str]) -> DataFrame:
    """What a healthy topic holds, once for each suffix of its keys."""
    keys = [(key, count, suffix) for key, count in EXPECTED.items() for suffix in suffixes]
    rows = [
        (key + suffix, number, value(key, number)) for key, count, suffix in keys for number in range(count)
    ]
    return spark.createDataFrame(rows, "key STRING, number LONG, value BINARY")


def nothing_planted() -> list[Row]:
    return healthy()


def nothing_stored() -> list[Row]:
    return []


def a_missing_record() -> list[Row]:
    return [row for row in healthy() if row[1] != value("UA", 4)]


def a_record_three_times() -> list[Row]:
    return [*healthy(), ("AA", value("AA", 9), 0, 100), ("AA", value("AA", 9), 0, 101)]


def a_late_duplicate() -> list[Row]:
    return [*healthy(), ("AA", value("AA", 2), 0, 100)]


def a_late_first() -> list[Row]:
    return [row for row in healthy() if row[1] != value("AA", 2)] + [("AA", value("AA", 2), 0, 100)]


def two_swapped_records() -> list[Row]:
    swap = {value("UA", 3): value("UA", 4), value("UA", 4): value("UA", 3)}
    return [(key, swap.get(text, text), place, offset) for key, text, place, offset in healthy()]


def a_key_in_two_partitions() -> list[Row]:
    return [(*row[:2], 2, row[3]) if row[1] == value("WN", 4) else row for row in healthy()]


def an_altered_value() -> list[Row]:
    return [
        (key, text.replace(b"[7]", b"[8]") if key == "AA" else text, place, offset)
        for key, text, place, offset in healthy()
    ]


def invented_records() -> list[Row]:
    return [
        *healthy(),
        ("AA", value("AA", 10), 0, -1),
        ("ZZ", value("ZZ", 0), 0, 101),
        ("WN", b"not one of ours", 1, 102),
        (None, value("AA", 1), 1, 103),
    ]


# Per key, the counts that are neither 0 nor what a healthy topic gives.
FINDINGS: dict[Callable[[], list[Row]], dict[str, dict[str, int]]] = {
    nothing_planted: {},
    nothing_stored: {key: {"stored": 0, "missing": count} for key, count in EXPECTED.items()},
    a_missing_record: {"UA": {"stored": 9, "missing": 1}},
    a_record_three_times: {"AA": {"stored": 12, "duplicated": 2}},
    a_late_duplicate: {"AA": {"stored": 11, "duplicated": 1}},
    a_late_first: {"AA": {"out_of_order": 1}},
    two_swapped_records: {"UA": {"out_of_order": 1}},
    a_key_in_two_partitions: {"WN": {"out_of_order": 1}},
    an_altered_value: {"AA": {"altered": 1}},
    invented_records: {
        "AA": {"stored": 11, "invented": 1},
        "ZZ": {"expected": 0, "stored": 1, "invented": 1},
        "WN": {"stored": 6, "invented": 1},
    },
}
# Keys alone tell the cases apart, for the judge knows no other bounds.
NO_KEY = {"expected": 0, "stored": 1, "invented": 1}


def odd(verdict: KeyVerdict, expected: int | None) -> dict[str, Any]:
    """Its counts that are neither 0 nor the `expected` ones."""
    normal = {"key": verdict.key, "expected": expected, "stored": expected}
    counts = {name: n for name, n in dataclasses.asdict(verdict).items() if n != normal.get(name, 0)}
    assert verdict.is_exact == (not counts)
    return counts


def test_each_kind_of_fault_is_found_where_it_was_planted_and_nowhere_else(spark: SparkSession) -> None:
    suffixes = {f" {plant.__name__}": plant for plant in FINDINGS}
    stored = [
        (key and key + suffix, text, place + 10 * number, offset)
        for number, (suffix, plant) in enumerate(suffixes.items())
        for key, text, place, offset in plant()
    ]
    verdicts = judge(expected(spark, list(suffixes)), spark.createDataFrame(stored, STORED_SCHEMA))
    found: dict[str, dict[str, Any]] = {suffix: {} for suffix in suffixes}
    for verdict in verdicts:
        key, suffix = verdict.key[:2], verdict.key[2:]
        if verdict.key == "(none)":
            assert odd(verdict, None) == NO_KEY
        elif counts := odd(verdict, EXPECTED.get(key)):
            found[suffix][key] = counts
    assert found == {suffix: FINDINGS[plant] for suffix, plant in suffixes.items()}
    assert verdicts == sorted(verdicts, key=lambda each: (-each.expected, each.key))
    of_healthy = [each for each in verdicts if each.key.endswith(nothing_planted.__name__)]
    assert total(of_healthy) == KeyVerdict("all", 25, 25, 0, 0, 0, 0, 0)
