"""Which Python the workers get, and what it finds on its path."""

import subprocess
import sys

import pytest

from tidelog.pipeline.spark.spark_session import WORKER_PYTHON, worker_python

ZIPS = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip:"
ECHO = "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:])"


def run(path: str) -> str:
    environment = {"PYTHONPATH": path, "PIPELINE_PYTHON": sys.executable}
    given = [WORKER_PYTHON, "-c", ECHO, "a b"]
    return subprocess.run(given, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("rest", ["/spark/jars/core.jar:/my folder:/other", "/jobs/mine.zip:/jobs/yours.zip"])
def test_workers_see_no_zip_of_sparks_and_all_else(rest: str) -> None:
    assert run(ZIPS + rest) == f"{rest} a b"
    assert run(rest) == f"{rest} a b"


def test_without_a_python_the_script_says_who_names_it() -> None:
    ran = subprocess.run([WORKER_PYTHON, "-V"], env={}, capture_output=True, text=True, check=False)
    assert ran.returncode
    assert "start_session sets it" in ran.stderr


def test_only_workers_beside_this_process_that_bring_no_pyspark_run_the_script() -> None:
    assert worker_python("local[2,4]", {}) == str(WORKER_PYTHON)
    assert worker_python("spark://host:7077", {}) == sys.executable
    for name in ("SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        assert worker_python("local[2]", {name: "set"}) == sys.executable
