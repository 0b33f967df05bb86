#!/bin/sh
# The Python of Spark's workers, for `pipeline.spark.spark_session`. Spark puts pyspark.zip first on their path, where
# there is no bytecode: each process would compile what it imports, for 0.7 s. The same pyspark is installed.
PYTHONPATH="${PYTHONPATH#*/pyspark.zip:*/py4j-*-src.zip:}"
export PYTHONPATH
exec "${PIPELINE_PYTHON:?names the Python to run; pipeline.session.start_session sets it}" "$@"
