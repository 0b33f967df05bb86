"""A stream of orders in Avro into a table of Parquet files, by the schemas of a schema registry.

A record names the schema that it was written with: a zero byte, the schema's id in four bytes, then Avro. The
newest schema of the subject says which columns the rows have.
"""

import json
import os
import urllib.request
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from tidelog.pipeline.spark.spark_session import start_session

TOPIC = "avro-orders"
REGISTRY = os.environ["REGISTRY"]
TABLE = Path("avro-table").absolute()


def schema(path: str) -> str:
    with urllib.request.urlopen(f"{REGISTRY}/{path}") as answer:
        return json.load(answer)["schema"]


def store(records: DataFrame, batch: int) -> None:
    """A repeated batch replaces its files, so each order is there once."""
    columns = {"avroSchema": schema(f"subjects/{TOPIC}-value/versions/latest")}
    records = records.withColumn("id", f.conv(f.hex(f.substring("value", 2, 4)), 16, 10).cast("int"))
    parts = [
        records.where(records.id == row.id).select(
            from_avro(f.expr("substring(value, 6)"), schema(f"schemas/ids/{row.id}"), columns).alias("order")
        )
        for row in records.select("id").distinct().collect()
    ]
    orders = reduce(DataFrame.unionByName, parts).select("order.*")
    orders.write.mode("overwrite").parquet(f"{TABLE}/batch={batch}")


spark = start_session("avro", master="local[2]")
options = {
    "bootstrap.servers": os.environ["KAFKA"],
    "subscribe": TOPIC,
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "50",
}
records = spark.readStream.format("tidelog").options(**options).load()
query = (
    records.writeStream.foreachBatch(store)
    .option("checkpointLocation", str(TABLE.with_name("avro-checkpoint")))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
for line in spark.read.option("mergeSchema", "true").parquet(str(TABLE)).drop("batch").toJSON().collect():
    print(line)
spark.stop()
