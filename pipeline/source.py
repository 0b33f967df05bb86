"""The Spark data source `tidelog`: `spark.read.format("tidelog").option("subscribe", "topic").load()`.

Owns the seam to Spark: options in, a schema, input partitions, Arrow batches out. What to read is decided in
`pipeline.offsets`, read in `pipeline.reading`, from the broker or from its segment files, and decoded in
`pipeline.columnar`; streams (`spark.readStream`) are planned in `pipeline.stream_source`.

Invariants: the ranges are fixed when Spark plans the query, so that a retried task reads the same records;
a task yields every record of its range, in order, or fails. Spark pickles these classes and runs them in
Python workers: nothing here may hold a connection between calls.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.offsets import plan_ranges
from pipeline.reading import (
    bounds_of,
    ending_positions,
    read_partition,
    report_losses,
    starting_positions,
    tasks_of,
)
from pipeline.source_options import SourceOptions, parse_columns, parse_options, parse_stream_options
from pipeline.stream_source import TidelogStreamReader

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("timestampType", IntegerType(), nullable=False),
        StructField("headers", ArrayType(_HEADER)),
        StructField("producer_id", LongType(), nullable=False),
        StructField("producer_epoch", IntegerType(), nullable=False),
        StructField("sequence", IntegerType(), nullable=False),
    ]
)


class TidelogDataSource(DataSource):  # type: ignore[misc]
    """Reads topics of a Kafka-compatible broker. The options are those of `pipeline.source_options`."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        """All columns, or those that option `columns` names; Spark does not push its own choice down."""
        return StructType([SCHEMA[name] for name in parse_columns(self.options)])

    def reader(self, schema: StructType) -> "TidelogReader":
        return TidelogReader(parse_options(self.options))

    def streamReader(self, schema: StructType) -> TidelogStreamReader:  # noqa: N802
        return TidelogStreamReader(parse_stream_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        # Imported here, for it brings pandas along, half a second that each process which reads would spend.
        from pipeline.sink import make_writer

        return make_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from pipeline.sink import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite=overwrite)


class TidelogReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One for each partition with records to read, or for each piece of a segment file, more if
        `minPartitions` asks for them."""
        options = self._options
        bounds = bounds_of(options)
        starting, ending = starting_positions(options, bounds), ending_positions(options, bounds)
        losses: list[str] | None = None if options.fail_on_data_loss else []
        ranges = plan_ranges(starting, ending, bounds, losses)
        tasks = tasks_of(options, ranges, losses)
        report_losses(losses)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task's range, as Arrow batches."""
        return read_partition(self._options, partition)
