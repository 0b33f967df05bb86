"""Which records a job passes on, and how it changes them: `where` and `select` in SQL.

Owns the rule that a record keeps its place: whatever is selected, the rows have their origin in
POSITION_COLUMNS, so that delivery=mirror can distinguish them. Random expressions are refused, because a
second read would give other rows.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.options.sink import POSITION_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = ("key", "value", "headers", "timestamp")
PLACED = ("topic", "partition", "offset")


def project(
    spark: "SparkSession", records: "DataFrame", where: str | None, select: str | None
) -> "DataFrame":
    """The rows as columns of KEPT and POSITION_COLUMNS. `records` has KEPT, topic, partition and offset.

    A `select` must give key or value; what it does not give of headers and timestamp is kept. Rows without
    headers get an empty array. Raises OptionError.
    """
    from pyspark.sql import functions as f

    kept = _understood("where", lambda: records.where(where)) if where else records
    hidden = {name: f"__{name}" for name in (*KEPT, *PLACED)}
    if select is None:
        rows = kept.select(*KEPT, *(f.col(name).alias(hidden[name]) for name in PLACED))
    else:
        carried = ", ".join(f"{name} AS {alias}" for name, alias in hidden.items())
        # Named arguments of sql() would make a view of a stream, which Spark takes as well.
        query = f"SELECT {select}, {carried} FROM {{rows}}"
        rows = _understood("select", lambda: spark.sql(query, rows=kept))
    given = set(rows.columns) - set(hidden.values())
    if not given & {"key", "value"} or given - set(KEPT):
        raise OptionError(
            f"select: expected columns of {', '.join(KEPT)} with key or value, got {', '.join(sorted(given))}"
        )
    if not rows._jdf.queryExecution().analyzed().deterministic():
        raise OptionError(
            "select or where has a random expression, such as rand(): a second read would give other rows,"
            " and it would not be known which of them are stored"
        )
    added = [name for name in ("headers", "timestamp") if name not in given]
    places = zip(PLACED, POSITION_COLUMNS, strict=True)
    placed = rows.select(
        *sorted(given),
        *(f.col(hidden[name]).alias(name) for name in added),
        *(f.col(hidden[name]).alias(column) for name, column in places),
    )
    return empty_for_null(placed)


def empty_for_null(rows: "DataFrame") -> "DataFrame":
    """The same rows, with an empty array in the column headers where it was null. Both mean no headers.

    Works around Spark 4.3: after every row Spark computes the size of the Arrow batch, and for a list column
    that ends in nulls Arrow's Java library then reads each null again.
    """
    from pyspark.sql import functions as f

    return rows.withColumn("headers", f.coalesce("headers", f.array()))


def _understood(name: str, make: Callable[[], "DataFrame"]) -> "DataFrame":
    """Raises OptionError for what Spark cannot make of the setting `name`."""
    from pyspark.errors import AnalysisException

    try:
        return make()
    except AnalysisException as error:
        # Below its first line comes Spark's plan of the query.
        raise OptionError(f"{name}: {str(error).strip().splitlines()[0]}") from None
