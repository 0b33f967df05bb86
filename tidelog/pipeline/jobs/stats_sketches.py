"""The arithmetic of the stats job on DataFrames: records in, mergeable sketches per window, numbers out.

Owns how records are reduced: sums, maxima and KLL sketches, which can be merged to coarser keys without the
records. All in Spark's own expressions, which work on streams too.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

METRICS = (
    "records",
    "bytes",
    "records_per_second",
    "bytes_per_second",
    "size_mean",
    "size_p50",
    "size_p95",
    "size_max",
    "lag_p50_ms",
    "lag_p95_ms",
    "lag_max_ms",
)
# What `sketch` gives: a window by the milliseconds of its start, sizes in bytes, lags in milliseconds.
PARTS = (
    "topic string, partition int, window_ms long, records long, bytes long, size_max long,"
    " size_sketch binary, lag_max long, lag_sketch binary, first_ms long, last_ms long"
)
_SKETCH_SIZE = 400


def size_of_record() -> "Column":
    """The bytes of key, value and headers of the source's columns."""
    from pyspark.sql import functions as f

    def length(name: str) -> "Column":
        return f.coalesce(f.octet_length(name), f.lit(0))

    def with_header(total: "Column", header: "Column") -> "Column":
        value = f.coalesce(f.octet_length(header["value"]), f.lit(0))
        return total + f.octet_length(header["key"]) + value

    headers = f.coalesce(f.aggregate("headers", f.lit(0), with_header), f.lit(0))
    return (length("key") + length("value") + headers).cast("long")


def sketch(measured: "DataFrame", window: str) -> "DataFrame":
    """What `measure` gave, reduced to one row for each topic, partition and window (see PARTS)."""
    from pyspark.sql import functions as f

    start = f.unix_millis(f.window("time", window).start).alias("window_ms")
    return measured.groupBy("topic", "partition", start).agg(
        f.count(f.lit(1)).alias("records"),
        f.sum("size").alias("bytes"),
        f.max("size").alias("size_max"),
        f.kll_sketch_agg_bigint("size", _SKETCH_SIZE).alias("size_sketch"),
        f.max("lag_ms").alias("lag_max"),
        f.kll_sketch_agg_bigint("lag_ms", _SKETCH_SIZE).alias("lag_sketch"),
        f.min("timestamp_ms").alias("first_ms"),
        f.max("timestamp_ms").alias("last_ms"),
    )


def merge(parts: "DataFrame", *keys: str) -> "DataFrame":
    """Rows of `sketch` together, one for each value of `keys`."""
    from pyspark.sql import functions as f

    return parts.groupBy(*keys).agg(
        f.sum("records").alias("records"),
        f.sum("bytes").alias("bytes"),
        f.max("size_max").alias("size_max"),
        f.kll_merge_agg_bigint("size_sketch", _SKETCH_SIZE).alias("size_sketch"),
        f.max("lag_max").alias("lag_max"),
        f.kll_merge_agg_bigint("lag_sketch", _SKETCH_SIZE).alias("lag_sketch"),
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
    )


def metrics(parts: "DataFrame", seconds: "float | Column", *keys: str) -> "DataFrame":
    """`keys` and METRICS of rows as `sketch` and `merge` give them; rates over `seconds`, None over 0."""
    from pyspark.sql import functions as f

    length = f.lit(seconds)
    return parts.select(
        *keys,
        "records",
        "bytes",
        f.try_divide("records", length).alias("records_per_second"),
        f.try_divide("bytes", length).alias("bytes_per_second"),
        f.try_divide("bytes", "records").alias("size_mean"),
        _quantile("size_sketch", 0.5).alias("size_p50"),
        _quantile("size_sketch", 0.95).alias("size_p95"),
        "size_max",
        _quantile("lag_sketch", 0.5).alias("lag_p50_ms"),
        _quantile("lag_sketch", 0.95).alias("lag_p95_ms"),
        f.col("lag_max").alias("lag_max_ms"),
    )


def _quantile(sketch_column: str, rank: float) -> "Column":
    """None if the sketch has seen no value, which the function itself takes for an error."""
    from pyspark.sql import functions as f

    has_any = f.kll_sketch_get_n_bigint(sketch_column) > 0
    return f.when(has_any, f.kll_sketch_get_quantile_bigint(sketch_column, f.lit(rank)))
