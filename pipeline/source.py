"""The Spark data source `tidelog`, batch: `spark.read.format("tidelog").option("subscribe", "topic").load()`.

Owns the seam to Spark: options in, a schema, input partitions, Arrow batches out. What to read is decided in
`pipeline.offsets`, read from the broker in `pipeline.fetch`, decoded in `pipeline.columnar`.

Invariants: the ranges are fixed when Spark plans the query, so that a retried task reads the same records;
a task yields every record of its range, in order, or fails. Spark pickles these classes and runs them in
Python workers: nothing here may hold a connection between calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
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

from pipeline.columnar import decode_record_batches
from pipeline.fetch import find_bounds, read_record_sets
from pipeline.offsets import OffsetRange, SourceOptions, parse_options, plan_ranges, split_ranges

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
        StructField("producer_id", LongType()),
        StructField("producer_epoch", IntegerType()),
        StructField("sequence", IntegerType()),
    ]
)


@dataclass
class OffsetRangePartition(InputPartition):  # type: ignore[misc]
    """One Spark task's share of a topic's partition."""

    offsets: OffsetRange


class TidelogDataSource(DataSource):  # type: ignore[misc]
    """Reads topics of a Kafka-compatible broker. See `pipeline.offsets.parse_options` for the options."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        """All columns, or those that option `columns` names; Spark does not push its own choice down."""
        return StructType([SCHEMA[name] for name in parse_options(self.options).columns])

    def reader(self, schema: StructType) -> "TidelogReader":
        return TidelogReader(parse_options(self.options))


class TidelogReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[OffsetRangePartition]:
        """One for each partition with records to read, more if `minPartitions` asks for them."""
        options = self._options
        bounds = find_bounds(options.bootstrap_servers, options.topics, options.assigned)
        ranges = plan_ranges(options.starting, options.ending, bounds)
        return [OffsetRangePartition(each) for each in split_ranges(ranges, options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task's range, as Arrow batches."""
        if not isinstance(partition, OffsetRangePartition):
            # Where there is nothing to read, Spark plans one task all the same, with a partition of its own.
            return
        offsets = partition.offsets
        for data in read_record_sets(self._options.bootstrap_servers, offsets):
            yield from decode_record_batches(
                data,
                topic=offsets.topic,
                partition=offsets.partition,
                start_offset=offsets.start,
                end_offset=offsets.end,
                columns=self._options.columns,
            )
