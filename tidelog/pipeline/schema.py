"""The columns of the source, as Spark's types: those of its Kafka source, and who wrote the record.

`pipeline.arrow.columnar` has the same columns as Arrow's types; a test compares them. Each has a comment,
which `DESCRIBE` shows.
"""

from pyspark.sql import types

_HEADER = types.StructType(
    [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
)


def _column(name: str, kind: types.DataType, comment: str, *, nullable: bool = False) -> types.StructField:
    return types.StructField(name, kind, nullable, {"comment": comment})


SCHEMA = types.StructType(
    [
        _column("key", types.BinaryType(), "key of the record", nullable=True),
        _column("value", types.BinaryType(), "value of the record", nullable=True),
        _column("topic", types.StringType(), "topic of the record"),
        _column("partition", types.IntegerType(), "partition of the topic"),
        _column("offset", types.LongType(), "position in the partition"),
        _column("timestamp", types.TimestampType(), "time of the record"),
        _column("timestampType", types.IntegerType(), "who set the timestamp: 0 the producer, 1 the broker"),
        _column("headers", types.ArrayType(_HEADER), "headers of the record", nullable=True),
        _column("producer_id", types.LongType(), "producer of the record; -1: not idempotent"),
        _column("producer_epoch", types.IntegerType(), "epoch of the producer"),
        _column("sequence", types.IntegerType(), "number of the record, by producer and partition"),
    ]
)
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
