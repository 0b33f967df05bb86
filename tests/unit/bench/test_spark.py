"""Spark's own Kafka connector is the one that was named."""

from bench.targets.spark import JARS, PACKAGES, resolve_connector


def test_what_is_named_goes_first() -> None:
    assert resolve_connector({JARS: "a.jar,b.jar", PACKAGES: "org:name:1"}) == {"spark.jars": "a.jar,b.jar"}
    assert resolve_connector({PACKAGES: "org:name:1"}) == {"spark.jars.packages": "org:name:1"}
