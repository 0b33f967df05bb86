"""The driver of a mirror as a process of its own, to be killed: `python -m tests.spark.mirror_driver JSON`.

Takes `master`, `bootstrap_servers`, `source` and `target` (topics), `checkpoint`, `tasks` (how many a batch
has; null: as the source splits it), `limit` (offsets a batch), and `stop_at`: the driver waits to be killed
once the sink has committed that batch, before Spark notes the commit. Mirrors what is there, then prints
`{"batches": n}`.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tests.spark.small import JAVA_OPTIONS, SMALL
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.spark.spark_session import start_session

SPARK_SETTINGS = SMALL | {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# Spark makes the writers in processes of its own, which inherit this process's environment.
STOP_AT = "MIRROR_DRIVER_STOPS_AT"
COMMITTED = "committed"


class StoppingWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The product's writer, but nothing comes after its commit of the chosen batch."""

    def __init__(self, writer: DataSourceStreamArrowWriter, checkpoint: Path) -> None:
        self._writer = writer
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.commit(messages, batchId)
        if os.environ.get(STOP_AT) == str(batchId):
            (self._checkpoint / COMMITTED).touch()
            signal.pause()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.abort(messages, batchId)


class StoppingSource(TidelogDataSource):
    """`format("tidelog")` with that writer."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoppingWriter:  # noqa: N802
        writer = super().streamWriter(schema, overwrite)
        return StoppingWriter(writer, Path(self.options["checkpointlocation"]))


def main(given: dict[str, Any]) -> None:
    """Start Spark and mirror what is there."""
    if given["stop_at"] is not None:
        os.environ[STOP_AT] = str(given["stop_at"])
    spark = start_session("mirror", master=given["master"], settings=SPARK_SETTINGS)
    spark.dataSource.register(StoppingSource)
    print(json.dumps({"batches": mirror(spark, given)}))
    spark.stop()


def mirror(spark: SparkSession, given: dict[str, Any]) -> int:
    """How many batches it took."""
    servers = {"bootstrap.servers": given["bootstrap_servers"]}
    source = {"subscribe": given["source"], "startingOffsets": "earliest"}
    rows = (
        spark.readStream.format("tidelog")
        .options(**servers, **source, maxOffsetsPerTrigger=given["limit"])
        .load()
        .selectExpr(
            "key",
            "value",
            "topic AS source_topic",
            "partition AS source_partition",
            "offset AS source_offset",
        )
    )
    if given["tasks"] is not None:
        rows = rows.coalesce(given["tasks"])
    sink = {"topic": given["target"], "delivery": "mirror", "checkpointLocation": given["checkpoint"]}
    # Small batches, so that a kill finds some stored, some in flight, and some not sent.
    writer = rows.writeStream.format("tidelog").options(**servers, **sink, **{"batch.size": "1024"})
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return len([each for each in query.recentProgress if each.numInputRows])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
