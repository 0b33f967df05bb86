"""The columns of the source, as Spark's types: those of its Kafka source, and who wrote the record.

`pipeline.arrow.columnar` has the same columns as Arrow's types; a test compares them. Does not import Arrow:
a process that only asks for the schema does not need it.
"""

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
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
