"""Settings of the tests' Sparks, for small data and a quick start.

Java does without its second compiler and without checking Spark's own classes: the one or the other costs
each JVM seconds. All that is compiled has space in the cache, or Java drops code that it soon compiles again.
Spark interprets its operators: for a few rows their generated code takes longer to compile than to run, and
what is tested here lies in Python.
"""

from collections.abc import Mapping

JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def as_flags(settings: Mapping[str, str]) -> list[str]:
    """Settings of Spark as a job's command takes them."""
    return [f"--conf={name}={value}" for name, value in settings.items()]
