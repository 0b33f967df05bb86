"""The rows of a write: converts Spark's Arrow batches to columns that can be encoded.

Owns the meaning of the sink's columns: their types, their defaults, and the partition of each row. Vectorised
throughout.

Invariants: rows that go to the same partition keep their order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from time import time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.arrow.arrays import integers, numbers
from tidelog.pipeline.arrow.columnar import HEADERS_TYPE
from tidelog.pipeline.arrow.encoding import RecordColumns, murmur2_partitions, record_size_bounds
from tidelog.pipeline.arrow.vectors import Integers
from tidelog.pipeline.offsets import OptionError, Place

# Rows encoded together: enough to share numpy's overhead, few enough to keep the sender busy.
_CHUNK_ROWS = 65_536
_CHUNK_BYTES = 8 * 1024 * 1024
_NO_PARTITION = -1


@dataclass(frozen=True, slots=True)
class SinkRows:
    """Some rows of a write. `topic_numbers` count in `topics`; `partitions` is -1 where none is named."""

    columns: RecordColumns
    topics: tuple[str, ...]
    topic_numbers: Integers
    partitions: Integers

    def __len__(self) -> int:
        return len(self.partitions)


class Group(NamedTuple):
    """The rows that go to one partition, by their positions; None stands for all."""

    place: Place
    rows: Integers | None


def chunks(batches: Iterable[Any]) -> Iterator[Any]:
    """The same rows in tables large enough to encode at once."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch):
            waiting.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
            if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
                yield pa.Table.from_batches(waiting).combine_chunks()
                waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _pieces(batch: Any) -> Iterator[Any]:
    """The batch, cut if its rows are too large for Arrow to join."""
    count = max(1, min(batch.nbytes // (4 * _CHUNK_BYTES), batch.num_rows))
    cuts = [batch.num_rows * number // count for number in range(count + 1)]
    for start, end in pairwise(cuts):
        yield batch.slice(start, end - start)


def read_rows(table: Any, topic: str | None) -> SinkRows:
    """The rows of a table with the sink's columns; `topic` goes before the column.

    Raises OptionError for a row without a topic, or with a partition below 0.
    """
    present = set(table.column_names)
    count = table.num_rows

    def column(name: str, kind: Any) -> Any:
        return flat(table, name).cast(kind) if name in present else None

    if topic is not None:
        topics: tuple[str, ...] = (topic,)
        numbers = np.zeros(count, np.int64)
    else:
        topics, numbers = dictionary(flat(table, "topic"), "topic")
    partitions = np.full(count, _NO_PARTITION, np.int64)
    if "partition" in present:
        given = column("partition", pa.int64())
        if (least := pc.min(given).as_py()) is not None and least < 0:
            raise OptionError(f"column partition: expected 0 or more, or null for any, got {least}")
        partitions = integers(given, _NO_PARTITION)
    columns = RecordColumns(
        _timestamps(flat(table, "timestamp") if "timestamp" in present else None, count),
        column("key", pa.binary()),
        column("value", pa.binary()),
        column("headers", HEADERS_TYPE),
    )
    return SinkRows(columns, topics, numbers, partitions)


def flat(table: Any, name: str) -> Any:
    """A column as one array."""
    chunked = table.column(name)
    return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()


def dictionary(texts: Any, name: str) -> tuple[tuple[str, ...], Integers]:
    """The different texts of a column, and for each row its number. OptionError for a null."""
    if texts.null_count:
        raise OptionError(f"column {name} is null in {texts.null_count} rows, each row needs one")
    encoded = texts.dictionary_encode()
    return tuple(encoded.dictionary.to_pylist()), integers(encoded.indices)


def choose_partitions(rows: SinkRows, counts: dict[str, int], batch_bytes: int, turn: int) -> Integers:
    """A partition for each row: the named one, else by key as in the Java client, else the partitions in
    turn, about a batch each, from `turn` on."""
    chosen = rows.partitions
    if (chosen >= 0).all():
        return chosen
    chosen = chosen.copy()
    turns = turn + (np.cumsum(record_size_bounds(rows.columns)) // batch_bytes)
    for number, topic in enumerate(rows.topics):
        count = counts[topic]
        open_rows = np.flatnonzero((rows.topic_numbers == number) & (chosen < 0))
        if not open_rows.size:
            continue
        chosen[open_rows] = turns[open_rows] % count
        if rows.columns.keys is not None:
            by_key = murmur2_partitions(rows.columns.keys.take(numbers(open_rows)), count)
            chosen[open_rows] = np.where(by_key >= 0, by_key, chosen[open_rows])
    return chosen


def groups(rows: SinkRows, partitions: Integers) -> Iterator[Group]:
    """The rows by their partition, in the order of the rows."""
    width = int(partitions.max(initial=0)) + 1
    codes = rows.topic_numbers * width + partitions
    if not len(codes):
        return
    if (codes == codes[0]).all():
        yield Group(Place(rows.topics[int(codes[0]) // width], int(codes[0]) % width), None)
        return
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
        code = int(ordered[start])
        yield Group(Place(rows.topics[code // width], code % width), order[start:end])


def _timestamps(column: Any, count: int) -> Integers:
    """Milliseconds since 1970; now where none is given."""
    now = int(time() * 1000)
    if column is None:
        return np.full(count, now, np.int64)
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).view(pa.int64())
    return integers(micros, now * 1000) // 1000
