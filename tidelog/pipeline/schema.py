"""The columns of the source, as Spark's types: those of its Kafka source, and who wrote the record.

`pipeline.arrow.columnar` has the same columns as Arrow's types; a test compares them.
"""

from pyspark.sql import types

_HEADER = types.StructType(
    [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
)
SCHEMA = types.StructType(
    [
        types.StructField("key", types.BinaryType()),
        types.StructField("value", types.BinaryType()),
        types.StructField("topic", types.StringType(), nullable=False),
        types.StructField("partition", types.IntegerType(), nullable=False),
        types.StructField("offset", types.LongType(), nullable=False),
        types.StructField("timestamp", types.TimestampType(), nullable=False),
        types.StructField("timestampType", types.IntegerType(), nullable=False),
        types.StructField("headers", types.ArrayType(_HEADER)),
        types.StructField("producer_id", types.LongType(), nullable=False),
        types.StructField("producer_epoch", types.IntegerType(), nullable=False),
        types.StructField("sequence", types.IntegerType(), nullable=False),
    ]
)
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
