"""Runs a stream with delivery=exactly_once, whose checkpoint is in S3, to its end: `python -m
tests.spark.object_store_driver SERVERS ENDPOINT CHECKPOINT`. Prints the number of records that it stored.
"""

import sys

from tests.spark.small import SMALL
from tidelog.pipeline.spark.spark_session import start_session


def main(servers: str, endpoint: str, checkpoint: str) -> None:
    store = {
        "endpoint": endpoint,
        "endpoint.region": "us-east-1",
        "access.key": "k",
        "secret.key": "s",
        "path.style.access": "true",
    }
    settings = SMALL | {f"spark.hadoop.fs.s3a.{name}": value for name, value in store.items()}
    spark = start_session("object store", master="local[2]", settings=settings)
    broker = {"bootstrap.servers": servers}
    records = spark.readStream.format("tidelog").options(
        **broker, subscribe="numbers", startingOffsets="earliest"
    )
    writer = records.load().select("value").writeStream.format("tidelog").options(**broker, topic="stored")
    exact = writer.options(delivery="exactly_once", checkpointLocation=checkpoint)
    exact.trigger(availableNow=True).start().awaitTermination()
    committed = {"subscribe": "stored", "isolation.level": "read_committed"}
    print(spark.read.format("tidelog").options(**broker, **committed).load().count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
