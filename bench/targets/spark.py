"""Spark's own Kafka connector: jars named in TIDELOG_SPARK_KAFKA_JARS (paths, separated by commas), packages
named in TIDELOG_SPARK_KAFKA_PACKAGES (Maven coordinates, which Spark fetches), or else Maven Central's.
"""

from collections.abc import Mapping

from bench.targets.maven import fetch_program

JARS = "TIDELOG_SPARK_KAFKA_JARS"
PACKAGES = "TIDELOG_SPARK_KAFKA_PACKAGES"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""The newest for the installed Spark; it appears there later than Spark itself."""
_SPARK_ITSELF = ("spark-tags_", "scala-", "hadoop-")
"""Its POM names them too, and Spark has its own."""


def resolve_connector(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings with which Spark finds the connector. Raises FetchError, with the reason, without one."""
    if jars := environment.get(JARS):
        return {"spark.jars": jars}
    if packages := environment.get(PACKAGES):
        return {"spark.jars.packages": packages}
    fetched = [str(jar) for jar in fetch_program(CONNECTOR) if not jar.name.startswith(_SPARK_ITSELF)]
    return {"spark.jars": ",".join(fetched)}
