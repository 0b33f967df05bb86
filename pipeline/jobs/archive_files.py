"""The files of an archive: their names, their contents, and how a Spark task writes them.

Owns the names, `topic=T/date=YYYY-MM-DD/PARTITION-FIRST-LAST.parquet` with the first and last offset in the
file, and the columns: those of the source without the topic, which is in the path. The date is that of the
record's timestamp in UTC. Records whose timestamp is no calendar date (years 1 to 9999) get the date that
Parquet readers read as null.

Invariants: a task writes only drafts, under names that no other attempt has, in a folder that readers ignore.
When it names a draft to the driver, the draft is complete and on disk. A file holds records of one partition
in the order of their offsets. Files of one partition and date share no offset.
"""

import os
import re
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.arrow.columnar import ARROW_SCHEMA
from tidelog.pipeline.spark.null_headers import null_for_empty

DEFAULT_DATE = "__HIVE_DEFAULT_PARTITION__"
FILE_SCHEMA = pa.schema([field for field in ARROW_SCHEMA if field.name != "topic"])
DRAFT_COLUMNS = (
    "draft string, topic string, partition int, date string, first_offset long, last_offset long,"
    " rows long, bytes long"
)
_NAME = re.compile(r"(\d+)-(\d{20})-(\d{20})\.parquet")
_STATISTICS = ["partition", "offset", "timestamp"]
_MICROSECONDS_A_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_NO_DAY = _FIRST_DAY - 1
# Rows of a row group, and the most bytes that a task holds unencoded.
_GROUP_ROWS = 250_000
_HELD_BYTES = 64 * 1024 * 1024
_MOST_OPEN = 64
_JOINED_ROWS = 50_000


class DraftFile(NamedTuple):
    """A file that a task wrote, and its contents. `date` is ISO 8601, or None."""

    draft: str
    topic: str
    partition: int
    date: str | None
    first_offset: int
    last_offset: int
    rows: int
    bytes: int

    @property
    def name(self) -> str:
        """Its path in the archive."""
        folder = f"topic={self.topic}/date={self.date or DEFAULT_DATE}"
        return f"{folder}/{self.partition:05}-{self.first_offset:020}-{self.last_offset:020}.parquet"


def in_order(files: Iterable[DraftFile]) -> list[DraftFile]:
    """Sorted by their paths in the archive. Files without a date have one too."""
    return sorted(files, key=lambda each: each.name)


def offsets_in_name(name: str) -> tuple[int, int, int] | None:
    """Partition, first and last offset from the name of an archive's file; None for other names."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def draft_writer(
    folder: Path, compression: str, rows_per_file: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task: it writes its records into `folder`, and yields DRAFT_COLUMNS of each file."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not folder.is_dir():
            raise FileNotFoundError(
                f"this task does not see {folder}, which the driver made: an archive must be in a folder that"
                " driver and executors share"
            )
        drafts = _Drafts(folder, compression, rows_per_file)
        try:
            for batch in batches:
                drafts.add(batch)
            files = drafts.finish()
        finally:
            drafts.close()
        columns = list(zip(*files, strict=True)) or [()] * len(DraftFile._fields)
        kinds = (pa.string(), pa.string(), pa.int32(), pa.string(), *[pa.int64()] * 4)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, list(DraftFile._fields))

    return write


def rows_of(file: Path) -> int:
    """The number of records in a file."""
    return int(pq.read_metadata(file).num_rows)


def join_files(files: Sequence[Path], target: Path, compression: str) -> DraftFile:
    """Write the records of files of one topic, partition and date, which are in the order of their offsets,
    into `target`. Raises ValueError where their offsets do not ascend."""
    topic, date_folder = (part.partition("=")[2] for part in files[0].parts[-3:-1])
    found = offsets_in_name(files[0].name)
    partition = -1 if found is None else found[0]
    day = _NO_DAY if date_folder == DEFAULT_DATE else date.fromisoformat(date_folder).toordinal() - _EPOCH
    draft = _Draft(target, _Key(topic, partition, day), compression)
    try:
        for file in files:
            with pq.ParquetFile(file) as parquet:
                for batch in parquet.iter_batches(_JOINED_ROWS):
                    draft.add(batch.cast(FILE_SCHEMA))
        return draft.finish()
    finally:
        draft.close()


class _Key(NamedTuple):
    topic: str
    partition: int
    day: int


class _Draft:
    """One file that is being written."""

    def __init__(self, path: Path, key: _Key, compression: str) -> None:
        self.path = path
        self.rows = self.held_rows = self.held_bytes = 0
        self._key = key
        self._held: list[pa.RecordBatch] = []
        self._first = self._last = -1
        self._writer = pq.ParquetWriter(
            path, FILE_SCHEMA, compression=compression, write_statistics=_STATISTICS
        )

    def add(self, batch: pa.RecordBatch) -> None:
        offsets = batch.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if not self.rows:
            self._first = first
        elif first <= self._last:
            raise ValueError(f"offset {first} of {self._key} came after {self._last}")
        self._last = last
        self._held.append(batch)
        self.rows += batch.num_rows
        self.held_rows += batch.num_rows
        self.held_bytes += batch.nbytes
        if self.held_rows >= _GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=_GROUP_ROWS)
        self._held, self.held_rows, self.held_bytes = [], 0, 0

    def finish(self) -> DraftFile:
        self.flush()
        self.close()
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        return DraftFile(
            str(self.path),
            self._key.topic,
            self._key.partition,
            date_of(self._key.day),
            self._first,
            self._last,
            self.rows,
            self.path.stat().st_size,
        )

    def close(self) -> None:
        self._writer.close()


class _Drafts:
    """The files of one task. If too many are open, the least recently written one is finished."""

    def __init__(self, folder: Path, compression: str, rows_per_file: int) -> None:
        self._folder = folder
        self._compression = compression
        self._rows_per_file = rows_per_file
        self._open: OrderedDict[_Key, _Draft] = OrderedDict()
        self._finished: list[DraftFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for key, part in _by_key(batch):
            start = 0
            while start < part.num_rows:
                draft = self._draft(key)
                piece = part.slice(start, self._rows_per_file - draft.rows)
                draft.add(piece)
                start += piece.num_rows
                if draft.rows >= self._rows_per_file:
                    self._finish(key)
        if sum(each.held_bytes for each in self._open.values()) > _HELD_BYTES:
            for draft in self._open.values():
                draft.flush()

    def finish(self) -> list[DraftFile]:
        for key in list(self._open):
            self._finish(key)
        return self._finished

    def close(self) -> None:
        """Close the unfinished files, after an error."""
        for draft in self._open.values():
            draft.close()

    def _draft(self, key: _Key) -> _Draft:
        if key not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._finish(next(iter(self._open)))
            self._open[key] = _Draft(self._folder / uuid.uuid4().hex, key, self._compression)
        self._open.move_to_end(key)
        return self._open[key]

    def _finish(self, key: _Key) -> None:
        self._finished.append(self._open[key].finish())
        del self._open[key]


def date_of(day: int) -> str | None:
    """The date of a day, counted from 1970-01-01; None if it has none."""
    return date.fromordinal(day + _EPOCH).isoformat() if day != _NO_DAY else None


def _by_key(batch: pa.RecordBatch) -> Iterator[tuple[_Key, pa.RecordBatch]]:
    """The records of each topic, partition and day, in their order."""
    if not batch.num_rows:
        return
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    codes = np.stack(
        [
            topics.indices.to_numpy().astype(np.int64),
            batch.column("partition").to_numpy().astype(np.int64),
            _days(batch.column("timestamp")),
        ]
    )
    headers = batch.schema.get_field_index("headers")
    restored = batch.set_column(headers, "headers", null_for_empty(batch.column(headers)))
    rest = restored.select(FILE_SCHEMA.names).cast(FILE_SCHEMA)
    if (codes == codes[:, :1]).all():
        topic, partition, day = codes[:, 0].tolist()
        yield _Key(names[topic], partition, day), rest
        return
    keys, which = np.unique(codes, axis=1, return_inverse=True)
    for number, (topic, partition, day) in enumerate(keys.T.tolist()):
        yield _Key(names[topic], partition, day), rest.take(pa.array(np.flatnonzero(which == number)))


def _days(timestamps: Any) -> Any:
    known = timestamps.is_valid().to_numpy(zero_copy_only=False)
    micros = timestamps.cast(pa.timestamp("us", timestamps.type.tz)).view(pa.int64()).fill_null(0).to_numpy()
    days = micros // _MICROSECONDS_A_DAY
    return np.where(known & (days >= _FIRST_DAY) & (days <= _LAST_DAY), days, _NO_DAY)
