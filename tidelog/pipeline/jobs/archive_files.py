"""The files of an archive: their names, their contents, and how Spark writes them.

Owns the names, `topic=T/date=YYYY-MM-DD/PARTITION-FIRST-LAST.parquet` with the first and last offset in the
file, and the columns: those of the source without the topic, which is in the path. The date is that of the
record's timestamp in UTC. Records whose timestamp is no calendar date (years 1 to 9999) get the date that
Parquet readers read as null.

Invariants: a file holds records of one partition in the order of their offsets. Files of one partition and
date share no offset.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.arrow.columnar import ARROW_SCHEMA
from tidelog.pipeline.durable_files import sync

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FILE_SCHEMA = pa.schema([field for field in ARROW_SCHEMA if field.name != "topic"])
_NAME = re.compile(r"(\d+)-(\d{20})-(\d{20})\.parquet")
_MICROSECONDS_PER_DAY = 86_400_000_000
# The first day of year 1, and of year 10000, counted from 1970-01-01.
_FIRST_DAY, _END_DAY = -719_162, 2_932_897
_GROUP_ROWS = 250_000
_JOINED_ROWS = 50_000
_SPARK_CODECS = {"lz4": "lz4_raw"}


class ArchiveError(RuntimeError):
    """The archive cannot continue without loss or duplicates. The message says why and what to do."""


class DraftFile(NamedTuple):
    """A file that is not visible yet, its path in the archive, and its contents."""

    draft: Path
    name: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int


def offsets_in_name(name: str) -> tuple[int, int, int] | None:
    """Partition, first and last offset from the name of an archive's file; None for other names."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def write_drafts(records: "DataFrame", folder: Path, compression: str, rows_per_file: int) -> list[DraftFile]:
    """Write records of the source into `folder`, which must not exist. The files are durable.

    Sets Spark's `spark.sql.parquet.outputTimestampType`. Raises ArchiveError if the executors wrote them
    elsewhere.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    # The default is a type of Spark's own, in which not every timestamp fits.
    records.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    read = Observation()
    rows = records.observe(read, f.count(f.lit(1)).alias("rows")).withColumn("date", _date())
    writer = rows.sortWithinPartitions("topic", "date", "offset").write.partitionBy("topic", "date")
    writer = writer.option("compression", _SPARK_CODECS.get(compression, compression))
    writer.option("maxRecordsPerFile", rows_per_file).parquet(str(folder))
    files = sorted(
        (describe(path) for path in folder.glob("topic=*/date=*/*.parquet")), key=lambda each: each.name
    )
    found, expected = sum(each.rows for each in files), read.get["rows"]
    if found != expected:
        raise ArchiveError(
            f"the tasks read {expected} records, and {found} of them are in {folder}: an archive must be in a"
            " folder that driver and executors share"
        )
    for path in (folder, *folder.glob("**/[!.]*")):
        sync(path)
    return files


def describe(draft: Path) -> DraftFile:
    """A file in folders topic=…/date=…, by the statistics in its footer."""
    footer = pq.read_metadata(draft)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    place, position = map(footer.schema.names.index, ("partition", "offset"))
    partition = groups[0].column(place).statistics.min
    offsets = [group.column(position).statistics for group in groups]
    first, last = min(each.min for each in offsets), max(each.max for each in offsets)
    folder = "/".join(draft.parts[-3:-1])
    name = f"{folder}/{partition:05}-{first:020}-{last:020}.parquet"
    return DraftFile(draft, name, partition, first, last, footer.num_rows)


def join_files(files: Sequence[Path], target: Path, compression: str) -> None:
    """Write the records of files of one topic, partition and date, which are in the order of their offsets,
    into `target`. It is durable. Raises ArchiveError if their offsets do not ascend."""
    last = -1
    with pq.ParquetWriter(target, FILE_SCHEMA, compression=compression) as writer:
        for table in _groups(files):
            offsets = [last, *table.column("offset").to_pylist()]
            if any(before >= after for before, after in pairwise(offsets)):
                raise ArchiveError(
                    f"the offsets in {files[0]} to {files[-1].name} do not ascend: restore them"
                )
            last = offsets[-1]
            writer.write_table(table, row_group_size=len(table))
    sync(target)


def _groups(files: Sequence[Path]) -> Iterator[pa.Table]:
    """Their records in tables of about _GROUP_ROWS: small groups make a file large and slow to read."""
    held: list[pa.RecordBatch] = []
    for file in files:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(_JOINED_ROWS):
                held.append(batch.cast(FILE_SCHEMA))
                if sum(each.num_rows for each in held) >= _GROUP_ROWS:
                    yield pa.Table.from_batches(held)
                    held = []
    if held:
        yield pa.Table.from_batches(held)


def _date() -> "Column":
    from pyspark.sql import functions as f

    micros, day = "unix_micros(timestamp)", _MICROSECONDS_PER_DAY
    number = f"({micros} - pmod({micros}, {day})) DIV {day}"
    dated = f"{micros} BETWEEN {_FIRST_DAY * day} AND {_END_DAY * day - 1}"
    return f.expr(f"CASE WHEN {dated} THEN date_from_unix_date(CAST({number} AS INT)) END")
