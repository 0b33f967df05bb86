"""What starts Spark.

- `java`: finds a Java that Spark can run on: the machine's own if it is new enough, else the one from PyPI
- `spark_session`: starts Spark with a fitting Java, this Python and the source
"""
