"""The judge: a Spark job that compares the records in the topic with the expected ones.

Owns the meaning of the words in the final table. It reads two DataFrames and uses no report of the producer
or the broker: `expected` (key, number, value) comes from the CSV, `stored` (key, value, partition, offset)
from the topic.

A stored record is identified by its key and the number at the start of its value. Per key:
- duplicated: stored records beyond the first of their identity;
- missing: expected identities that are not stored;
- invented: stored records whose identity is not expected;
- altered: expected identities that are stored with another value (SHA-256);
- out_of_order: identities whose first record is stored after that of a later number, or in another partition
  than the key's first record (the one with the lowest partition and offset).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class KeyVerdict:
    """The result for one key. `stored` counts records; the module describes all other fields."""

    key: str
    expected: int
    stored: int
    duplicated: int
    missing: int
    invented: int
    altered: int
    out_of_order: int

    @property
    def is_exact(self) -> bool:
        """True when each expected record is stored once, unchanged, in order, and no other is stored."""
        findings = self.duplicated, self.missing, self.invented, self.altered, self.out_of_order
        return self.expected == self.stored and not any(findings)


FIELDS = tuple(KeyVerdict.__dataclass_fields__)


def judge(expected: "DataFrame", stored: "DataFrame") -> list[KeyVerdict]:
    """One verdict per key, for all keys in either frame, the largest first. Runs the Spark job."""
    from pyspark.sql import functions as f

    wanted = expected.select("key", "number", _digest("value").alias("wanted_digest"))
    found = _in_order(_identities(stored).join(wanted, ["key", "number"], "full_outer"))
    is_wanted, is_stored = f.col("wanted_digest").isNotNull(), f.col("copies").isNotNull()
    is_altered = is_wanted & is_stored & ~f.col("same_digest").eqNullSafe(f.col("wanted_digest"))
    verdicts = found.groupBy("key").agg(
        _count(is_wanted).alias("expected"),
        _total(f.col("copies")).alias("stored"),
        _total(f.col("copies") - 1).alias("duplicated"),
        _count(is_wanted & ~is_stored).alias("missing"),
        _total(f.when(~is_wanted, f.col("copies"))).alias("invented"),
        _count(is_altered).alias("altered"),
        _count(f.col("is_late")).alias("out_of_order"),
    )
    rows = verdicts.orderBy(f.desc("expected"), "key").collect()
    return [_verdict(row) for row in rows]


def total(verdicts: list[KeyVerdict]) -> KeyVerdict:
    """The sum over all keys, under the key "all"."""
    sums = {name: sum(getattr(each, name) for each in verdicts) for name in FIELDS[1:]}
    return KeyVerdict(key="all", **sums)


def _identities(stored: "DataFrame") -> "DataFrame":
    """One row per (key, number) in the topic: its copies, its first position, its digest if all are equal."""
    from pyspark.sql import functions as f

    text = f.col("value").cast("string")
    number = f.regexp_extract(text, r'^\{"number":(\d{1,18})[,}]', 1)
    records = stored.select(
        f.col("key").cast("string").alias("key"),
        f.when(number != "", number.cast("long")).otherwise(f.lit(-1)).alias("number"),
        f.struct("partition", "offset").alias("place"),
        _digest("value").alias("digest"),
    )
    return records.groupBy("key", "number").agg(
        f.count(f.lit(1)).alias("copies"),
        f.min("place").alias("place"),
        f.when(f.min("digest") == f.max("digest"), f.min("digest")).alias("same_digest"),
    )


def _in_order(found: "DataFrame") -> "DataFrame":
    """Adds `is_late`. Records that are not expected have no place in the order, so they are ignored."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    counts = f.col("wanted_digest").isNotNull() & f.col("place").isNotNull()
    earlier = Window.partitionBy("key").orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    latest_number = f.max(f.when(counts, f.col("number"))).over(earlier)
    first_partition = f.min(f.when(counts, f.col("place.partition"))).over(earlier)
    is_late = (latest_number > f.col("number")) | (first_partition != f.col("place.partition"))
    return found.withColumn("is_late", counts & f.coalesce(is_late, f.lit(False)))


def _digest(column: str) -> "Column":
    from pyspark.sql import functions as f

    return f.sha2(f.col(column).cast("binary"), 256)


def _count(condition: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.count(f.when(condition, True))


def _total(amount: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.coalesce(f.sum(amount), f.lit(0))


def _verdict(row: Any) -> KeyVerdict:
    values = row.asDict()
    key = values.pop("key")
    return KeyVerdict(key="(none)" if key is None else key, **{name: int(n) for name, n in values.items()})
