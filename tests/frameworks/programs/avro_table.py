"""Orders in Avro as rows of Spark, by the schemas of a schema registry, printed as JSON.

A record names the schema that it was written with: a zero byte, the schema's id in four bytes, then Avro. The
newest schema of the subject says which columns the rows have.
"""

import json
import os
import urllib.request
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from tidelog.pipeline.spark.spark_session import start_session

TOPIC = "avro-orders"
REGISTRY = os.environ["REGISTRY"]


def schema(path: str) -> str:
    with urllib.request.urlopen(f"{REGISTRY}/{path}") as answer:
        return json.load(answer)["schema"]


def orders(records: DataFrame) -> DataFrame:
    """Of a batch, or of a stream's batch in foreachBatch: the ids in it are asked for."""
    columns = {"avroSchema": schema(f"subjects/{TOPIC}-value/versions/latest")}
    records = records.withColumn("id", f.conv(f.hex(f.substring("value", 2, 4)), 16, 10).cast("int"))
    parts = [
        records.where(records.id == row.id).select(
            from_avro(f.expr("substring(value, 6)"), schema(f"schemas/ids/{row.id}"), columns).alias("order")
        )
        for row in records.select("id").distinct().collect()
    ]
    return reduce(DataFrame.unionByName, parts).select("order.*")


spark = start_session("avro", master="local[2]")
options = {"bootstrap.servers": os.environ["KAFKA"], "subscribe": TOPIC}
for line in orders(spark.read.format("tidelog").options(**options).load()).toJSON().collect():
    print(line)
spark.stop()
