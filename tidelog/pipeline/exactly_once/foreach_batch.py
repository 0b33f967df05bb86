"""delivery=exactly_once for users of `foreachBatch`, as one call.

    def store(rows: DataFrame, batch: int) -> None:
        write_once(rows, batch, "orders", {"bootstrap.servers": "localhost:9092", "topic": "orders"})

    frame.writeStream.foreachBatch(store).option("checkpointLocation", "/data/orders").start()

Owns only the options; `pipeline.exactly_once.writer` does the rest, and says what is guaranteed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_once(rows: "DataFrame", batch: int, name: str, options: Mapping[str, str]) -> None:
    """Store the rows of a stream's batch exactly once, also if the stream repeats the batch.

    `name` is the permanent name of this write; each write of the function needs its own. `options` are the
    sink's. With `checkpointLocation`, the stream's own, copies of the checkpoint are recognised and refused.
    Raises what Spark raises for a failed write: the message of an ExactlyOnceError says what to do.
    """
    given = {"delivery": "exactly_once", "exactly_once.name": name, "exactly_once.batch": str(batch)}
    rows.write.format("tidelog").mode("append").options(**options, **given).save()
