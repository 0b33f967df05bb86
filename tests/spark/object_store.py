"""An exact stream keeps its checkpoint in S3, by Hadoop's own file system, with Spark's credentials.

`make spark` runs it: hadoop-aws comes from Maven Central, without the half gigabyte of all other services.
"""

import os
import subprocess
import sys
from pathlib import Path

from pyarrow.fs import S3FileSystem

from tests.buckets import bucket_server
from tests.spark.brokers import running_broker
from tests.tidy.house import ROOT
from tests.unit.pipeline.batches import make_batch

_SDK = "2.35.4"
_MODULES = ("s3", "sts", "s3-transfer-manager", "apache-client", "netty-nio-client")
_PACKAGES = ",".join(
    ["org.apache.hadoop:hadoop-aws:3.5.0", *(f"software.amazon.awssdk:{each}:{_SDK}" for each in _MODULES)]
)
_TIME_MS = 1_700_000_000_000
# Spark starts in seconds; a busy machine takes minutes.
_SPARK_SECONDS = 600.0


def test_a_repeated_batch_of_a_stream_with_its_checkpoint_in_s3_is_stored_once(tmp_path: Path) -> None:
    settings = {"transaction.two.phase.commit.enable": "true"}
    with bucket_server() as url, running_broker(tmp_path / "data", **settings) as broker:
        for topic in ("numbers", "stored"):
            broker.create_topic(topic)
        broker.append("numbers", 0, [make_batch([(_TIME_MS, None, b"%d" % n, ()) for n in range(40)])])
        packages = f"--packages {_PACKAGES} --exclude-packages software.amazon.awssdk:bundle pyspark-shell"
        environment = os.environ | {"PYSPARK_SUBMIT_ARGS": packages, "PYTHONPATH": str(ROOT)}
        store = S3FileSystem(endpoint_override=url, access_key="k", secret_key="s", region="us-east-1")
        for _ in range(2):
            command = [
                "-m",
                "tests.spark.object_store_driver",
                broker.bootstrap_servers,
                url,
                "s3a://bucket/c",
            ]
            done = subprocess.run(
                [sys.executable, *command],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_SPARK_SECONDS,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout.split()[-1] == "40"
            # As if the driver had died before Spark noted the batch.
            store.delete_file("bucket/c/commits/0")
