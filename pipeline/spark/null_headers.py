"""The column headers between Spark and Python: rows without headers hold an empty array there, not null.

Owns a workaround for Spark 4.3: after every row Spark computes the size of the Arrow batch, and for a list
column that ends in nulls Arrow's Java library then reads each null again. In batches of 10,000 rows without
headers that took 17 us of processor time per row, more than all the rest of a read or a write.

Invariants: an empty array and null both mean no headers. A record of the source never has an empty array, so
null can be restored. Programs that write rows to the sink should do the same:
`COALESCE(headers, ARRAY()) AS headers`.
"""

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from tidelog.pipeline.arrow.arrays import flags, integers, null

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HEADERS = "headers"


def empty_for_null(rows: "DataFrame") -> "DataFrame":
    """The same rows, with an empty array in column headers, if there is one, where it was null."""
    from pyspark.sql import functions as f

    if _HEADERS not in rows.columns:
        return rows
    return rows.withColumn(_HEADERS, f.coalesce(_HEADERS, f.array()))


def null_for_empty(headers: Any) -> Any:
    """An Arrow array of lists, with null where one was empty."""
    is_empty = flags(integers(pc.list_value_length(headers)) == 0)
    return pc.if_else(is_empty, null(headers.type), headers)
