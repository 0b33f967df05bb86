"""The writer of a plain write, as Spark's processes use it."""

import subprocess
import sys

_PROGRAM = """
import pickle, sys
from pyspark.sql.types import BinaryType, StructField, StructType
from tidelog.pipeline.data_source import TidelogDataSource

options = {"bootstrap.servers": "localhost:9092", "topic": "t"}
schema = StructType([StructField("value", BinaryType())])
for plan in ("writer", "streamWriter"):
    writer = pickle.loads(pickle.dumps(getattr(TidelogDataSource(options), plan)(schema, False)))
    writer.commit([None])
    writer.abort([None])
print(sorted({"numpy", "pyarrow", "tidelog.client.producer.producer"} & set(sys.modules)))
"""


def test_planning_and_commit_import_nothing_that_only_tasks_need() -> None:
    """Each is a Python process of its own, for which the first write of a session waits."""
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
