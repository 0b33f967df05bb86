"""A mirror is exact though an executor and the driver are killed, whatever the layout of tasks then.

`make spark` runs it: a master, two workers, their executors and the driver are six JVMs, too many for each
run of the tests.
"""

import pytest
from pyspark.sql import SparkSession

from faults.process_tree import kill_tree
from tests.spark.mirror_driver import COMMITTED, STOP_AT
from tests.spark.mirror_kills import LIMIT, Place, place, started
from tests.spark.small import JAVA_OPTIONS, SMALL, as_flags
from tests.spark.standalone import standalone_cluster
from tidelog.pipeline.jobs import mirror

__all__ = ["place"]

_STOPPING = "tests.spark.mirror_driver"
_CLUSTER_CONF = SMALL | {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.starvation.timeout": "1s",
}


def test_a_killed_executor_and_a_killed_driver_lose_and_double_nothing(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The job waits for workers and says so. Then one of two executors dies in the middle of the batch, and
    # the driver once the batch is committed by the sink alone.
    with standalone_cluster(place.folder) as cluster:
        place.hold_acknowledgements()
        given = ["--master", cluster.master, "--name", "nightly copy", *as_flags(_CLUSTER_CONF)]
        with started(place.start_job(*given, module=_STOPPING, **{STOP_AT: "0"})) as job:
            job.wait_for(lambda: "The job waits: " in job.said(), "the job to say that it waits")
            assert f"{cluster.master} has not accepted any resources for it in 1 s" in job.said()
            cluster.start_workers(2)
            job.wait_for(place.has_unacknowledged, "stored batches")
            executors = cluster.executors()
            assert len(executors) == 2
            assert "nightly copy" in cluster.applications()
            kill_tree(executors[0])
            assert 0 < sum(map(len, place.stored())) < LIMIT
            place.release_acknowledgements()
            job.wait_for((place.checkpoint / COMMITTED).exists, "the sink's commit")
            job.kill()
    assert place.committed_batches() == set()
    assert sum(map(len, place.stored())) == LIMIT

    # The same batch again, with one task in place of two; all of its rows are stored already.
    rows_of = mirror._rows
    monkeypatch.setattr(mirror, "_rows", lambda *given: rows_of(*given).coalesce(1))
    counts = mirror.run(spark, place.settings()).counts
    assert (counts.batches, counts.skipped) == (2, LIMIT)
    place.check(spark)
