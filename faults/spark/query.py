"""`python -m faults.spark.query`: a Spark query with a join and a repartition, to be killed.

It reads numbers, joins each with a name, spreads the rows over three tasks, and stores them with
delivery=exactly_once. A query that fails is started again, as a supervisor would.
"""

import argparse
import sys
import traceback
from pathlib import Path
from typing import Any, Final

NAMES: Final = {0: "even", 1: "odd"}
BATCH_ROWS: Final = 60
_TASKS: Final = 3
_SETTINGS: Final = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": str(_TASKS),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def row_of(number: int) -> str:
    """What the query makes of a number."""
    return f"{number}:{NAMES[number % 2]}"


def main(arguments: list[str] | None = None) -> int:
    """Run the query until this process is killed, or with --to-the-end until all is stored."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("servers")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--to-the-end", action="store_true")
    options = parser.parse_args(arguments)
    from pyspark.errors import PySparkException

    from tidelog.pipeline.spark.spark_session import start_session

    spark = start_session("killed", master="local[2,4]", settings=_SETTINGS)
    while True:
        trigger = {"availableNow": True} if options.to_the_end else {"processingTime": "0 seconds"}
        query = _writer(spark, options).trigger(**trigger).start()
        print("the query runs", flush=True)
        try:
            query.awaitTermination()
            return 0
        except PySparkException:
            traceback.print_exc()


def _writer(spark: Any, options: argparse.Namespace) -> Any:
    names = spark.createDataFrame(list(NAMES.items()), "parity int, name string")
    given = {"bootstrap.servers": options.servers}
    numbers = (
        spark.readStream.format("tidelog")
        .options(**given, subscribe=options.source, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS)
        .load()
        .selectExpr("CAST(CAST(value AS STRING) AS INT) AS number")
        .selectExpr("number", "number % 2 AS parity")
    )
    rows = numbers.join(names, "parity").selectExpr("CONCAT(number, ':', name) AS value").repartition(_TASKS)
    return (
        rows.writeStream.format("tidelog")
        .options(**given, topic=options.target, delivery="exactly_once")
        .option("checkpointLocation", str(options.checkpoint))
    )


if __name__ == "__main__":
    sys.exit(main())
