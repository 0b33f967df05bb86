"""The records of segment files as a DataFrame, without going through the broker.

Owns finding the segments under a data directory, and their reading: one Spark task each. Read-only, and fit
for the folder of a running broker when the ends of its logs are given: then nothing is read that the broker
does not yet show to consumers. Without them a file is read to its last whole batch.

Invariants: control batches are skipped; a batch whose CRC is wrong ends the read with ProtocolError. The
files must be visible, under the same path, to the driver and the executors.
"""

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pipeline.columnar import NO_END, decode_record_batches
from pipeline.offsets import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Segment(NamedTuple):
    """One `.log` file of a partition."""

    path: str
    topic: str
    partition: int


def find_segments(folder: Path, topics: Iterable[str] = ()) -> list[Segment]:
    """All segments below `folder`, a data directory or a partition's folder; of `topics` only, if any.

    Raises FileNotFoundError when there is none.
    """
    wanted = set(topics)
    found = []
    for path in sorted(folder.resolve().rglob("*.log")):
        topic, dash, number = path.parent.name.rpartition("-")
        if path.stem.isdecimal() and dash and number.isdecimal() and (not wanted or topic in wanted):
            found.append(Segment(str(path), topic, int(number)))
    if not found:
        what = f" of {', '.join(sorted(wanted))}" if wanted else ""
        raise FileNotFoundError(f"no segments{what} below {folder}: expected TOPIC-PARTITION/OFFSET.log")
    return found


def read_segments(
    spark: "SparkSession",
    segments: Sequence[Segment],
    columns: Sequence[str],
    ends: Mapping[Place, int] | None = None,
) -> "DataFrame":
    """The records of `segments`, of each partition only those before its end in `ends`."""
    from pipeline.source import SCHEMA

    rows = [(*each, NO_END if ends is None else ends[Place(*each[1:])]) for each in segments]
    named = spark.createDataFrame(rows, "path string, topic string, partition int, end long")
    wanted = type(SCHEMA)([SCHEMA[name] for name in columns])
    return named.repartition(len(rows), "path").mapInArrow(_reader(tuple(columns)), wanted)


def _reader(
    columns: tuple[str, ...],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _read_segment(
                    Path(row["path"]), row["topic"], row["partition"], row["end"], columns
                )

    return read


def _read_segment(
    path: Path, topic: str, partition: int, end: int, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return
        # Closed with its last view, which an exception's traceback may hold for a while.
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    yield from decode_record_batches(data, topic=topic, partition=partition, end_offset=end, columns=columns)
