"""The flights example as datasets: Spark finds the order of the steps, and what is new, by itself.

Declares the flow into the cleaned topic, the archive and the hourly delays over `pipeline.examples.delays`.
Imported by `spark-pipelines run` (see spark-pipeline.yml), which gives the session.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.examples import delays
from tidelog.wire.cluster_config import ClusterConfig

spark = SparkSession.active()
spark.dataSource.register(TidelogDataSource)
cluster = ClusterConfig(str(spark.conf.get("tidelog.bootstrap.servers")))

dp.create_sink("cleaned_topic", "tidelog", delays.cleaned_topic_options(cluster))


@dp.append_flow(target="cleaned_topic")  # type: ignore[untyped-decorator]
def to_cleaned_topic() -> DataFrame:
    """The raw topic, cleaned, goes into the cleaned topic."""
    return delays.clean(delays.read_topic(spark, cluster, delays.RAW_TOPIC, stream=True))


@dp.table  # type: ignore[untyped-decorator]
def archive() -> DataFrame:
    """Every flight that took place, once."""
    raw = delays.read_topic(spark, cluster, delays.RAW_TOPIC, stream=True)
    return delays.read_flights(delays.clean(raw))


@dp.materialized_view  # type: ignore[untyped-decorator]
def hourly() -> DataFrame:
    """Delays by hour and airport."""
    return delays.hourly_delays(spark.read.table("archive"))
