"""`tidelog` as a process of its own, to be killed: `python -m tests.spark.mirror_driver pipeline mirror …`.

The environment's MIRROR_DRIVER_STOPS_AT names a batch: once the sink has committed it, the driver waits to be
killed, before Spark notes the commit. Batches to the broker are small, so that a kill finds some stored, some
in flight, and some not sent.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.cli.main import main as command
from tidelog.pipeline import data_source
from tidelog.pipeline.data_source import TidelogDataSource

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
        self.options["batch.size"] = "1024"
        writer = super().streamWriter(schema, overwrite)
        return StoppingWriter(writer, Path(self.options["checkpointlocation"]))


def main() -> int:
    """Run the command with that source in place of the product's."""
    data_source.TidelogDataSource = StoppingSource  # type: ignore[misc]
    return command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
