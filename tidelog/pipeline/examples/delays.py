"""From a topic of flights to a picture of their delays: an example to copy and change.

    flights (topic) -> flights-cleaned (topic) -> hourly_delays (table) -> archive (Parquet) -> delays.png

Owns the transformations, `clean`, `read_flights` and `hourly_delays`: DataFrame in, DataFrame out, none of
them starting anything, so that batches, streams, tests and the Declarative Pipelines spec beside this file
share them. `pipeline.examples.flights` does the steps one by one.
"""

from typing import TYPE_CHECKING

from tidelog.wire.cluster_config import ClusterConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW_TOPIC = "flights"
CLEANED_TOPIC = "flights-cleaned"
# Change it with `clean`: a mirror that continues must clean as it began.
CLEANING = "clean-1"
LATE_MINUTES = 15
# As in the CSV, and as `events` puts them into the topic.
ROW = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay DOUBLE, arr_time INT,"
    " sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT, tailnum STRING, origin STRING,"
    " dest STRING, air_time DOUBLE, distance DOUBLE, hour INT, minute INT, time_hour TIMESTAMP"
)
# What cleaning leaves: `scheduled` and `delay_minutes` are of the departure.
FLIGHT = "carrier STRING, flight INT, origin STRING, dest STRING, scheduled TIMESTAMP, delay_minutes DOUBLE"


def read_topic(
    spark: "SparkSession", cluster: ClusterConfig, topic: str, *, stream: bool = False
) -> "DataFrame":
    """The records of a topic from the first on, as a batch or as a stream."""
    reader = spark.readStream if stream else spark.read
    options = {**cluster.to_options(), "subscribe": topic, "startingOffsets": "earliest"}
    return reader.format("tidelog").options(**options).load()


def events(rows: "DataFrame") -> "DataFrame":
    """Rows of the CSV (ROW) as records in the order of departure: the carrier is the key, JSON the value."""
    from pyspark.sql import functions as f

    scheduled = f.timestamp_seconds(f.unix_seconds("time_hour") + 60 * f.col("minute"))
    # One task, since each sends for itself and a key's records must stay in order.
    in_order = rows.repartition(1).sortWithinPartitions(scheduled, "carrier", "flight")
    return in_order.select(
        f.col("carrier").alias("key"),
        f.to_json(f.struct(*rows.columns)).alias("value"),
        scheduled.alias("timestamp"),
    )


def clean(records: "DataFrame") -> "DataFrame":
    """Records of the raw topic as records of the cleaned one: flights that took place, and FLIGHT of them.

    Each row keeps where it comes from. `delivery=mirror` identifies rows by that, and so writes each once,
    even if processes are killed in between. It requires that only selection and filters happen here.
    """
    from pyspark.sql import functions as f

    row = f.from_json(f.col("value").cast("string"), ROW)
    parsed = records.withColumn("row", row).where("row.dep_delay IS NOT NULL AND row.origin IS NOT NULL")
    flight = f.struct(
        "row.carrier",
        "row.flight",
        "row.origin",
        "row.dest",
        f.col("timestamp").alias("scheduled"),
        f.col("row.dep_delay").alias("delay_minutes"),
    )
    return parsed.select(
        "key",
        f.to_json(flight).alias("value"),
        "timestamp",
        f.col("topic").alias("source_topic"),
        f.col("partition").alias("source_partition"),
        f.col("offset").alias("source_offset"),
    )


def cleaned_topic_options(cluster: ClusterConfig) -> dict[str, str]:
    """The sink's options: exactly once, by the source position of each row; cleaning leaves offsets out."""
    return {
        **cluster.to_options(),
        "topic": CLEANED_TOPIC,
        "delivery": "mirror",
        "mirror.plan": CLEANING,
        "mirror.gaps": "allow",
    }


def read_flights(records: "DataFrame") -> "DataFrame":
    """Records of the cleaned topic as rows of FLIGHT."""
    from pyspark.sql import functions as f

    return records.select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")).select(
        "flight.*"
    )


def hourly_delays(flights: "DataFrame") -> "DataFrame":
    """Rows of FLIGHT by hour and airport: flights, mean_delay_minutes and late_share (of 0 to 1)."""
    from pyspark.sql import functions as f

    hour = f.date_trunc("hour", "scheduled").alias("hour")
    is_late = f.col("delay_minutes") > LATE_MINUTES
    return flights.groupBy(hour, "origin").agg(
        f.count(f.lit(1)).alias("flights"),
        f.mean("delay_minutes").alias("mean_delay_minutes"),
        f.mean(is_late.cast("double")).alias("late_share"),
    )
