"""Starts Spark with what the pipeline needs: a Java, this Python in the workers, the source registered.

Owns the settings that every job shares; a caller's settings override them. Spark has one session per process.
"""

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidelog
from tidelog.pipeline.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_ADDRESS = "127.0.0.1"
WORKER_PYTHON = Path(__file__).with_name("worker_python.sh")
_TASKS_PER_CORE = 4
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def start_session(
    app_name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    driver_log: Path | None = None,
) -> "SparkSession":
    """The running Spark session, or a new one with `format("tidelog")` registered.

    `driver_log` takes what the JVM and the Python workers write to standard error; without it they share this
    process's. Sets JAVA_HOME, PIPELINE_PYTHON and the PYSPARK_PYTHON variables of this
    process. Raises JavaNotFoundError, ModuleNotFoundError without the extra `pipeline`.
    """
    require_extra()
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from tidelog.pipeline.data_source import TidelogDataSource
    from tidelog.pipeline.driver import publish_gateway

    if SparkContext._active_spark_context is None:
        _prepare_environment(master)
        conf = SparkConf().setAppName(app_name).setMaster(master)
        local = {
            "spark.driver.bindAddress": LOCAL_ADDRESS,
            "spark.driver.host": LOCAL_ADDRESS,
            # Over TCP, each task waits 40 ms for an acknowledgement that the other side delays. On other
            # machines the path of the temporary folder may be too long for a socket.
            "spark.python.unix.domain.socket.enabled": "true",
            # Spark's 200 are for a cluster: here each of them is a task that mostly finds nothing.
            "spark.sql.shuffle.partitions": str(_TASKS_PER_CORE * (os.cpu_count() or 1)),
            # Spark's own choice starts eight processes to rename a file of a checkpoint, of which each
            # micro-batch has two: the wheel has no native library of Hadoop's, so it calls readlink.
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
        }
        chosen = _SETTINGS | (local if master.startswith("local") else {}) | dict(settings or {})
        for name, value in chosen.items():
            conf.set(name, value)
        # What a terminal signals to its group is for us alone: Java ends when we do, by the end of its input.
        options: dict[str, Any] = {"start_new_session": True}
        if driver_log is None:
            gateway = launch_gateway(conf, popen_kwargs=options)
        else:
            with driver_log.open("ab") as log:
                options["stderr"] = log
                gateway = launch_gateway(conf, popen_kwargs=options)
        SparkContext(conf=conf, gateway=gateway).setLogLevel("ERROR")
    spark = SparkSession.builder.getOrCreate()
    publish_gateway(spark.sparkContext)
    spark.dataSource.register(TidelogDataSource)
    return spark


def require_extra() -> None:
    """Raises ModuleNotFoundError if the package was installed without what Spark needs."""
    missing = [library for library in ("numpy", "pyarrow", "pyspark") if find_spec(library) is None]
    if missing:
        raise ModuleNotFoundError(
            f"the jobs on Spark need {', '.join(missing)}: install Tidelog with its extra,"
            " pip install '.[pipeline]' in a checkout, or pip install 'WHEEL[pipeline]' with a wheel's path",
            name=missing[0],
        )


def _prepare_environment(master: str) -> None:
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PIPELINE_PYTHON"] = sys.executable
    # The second one looks data sources up.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if os.environ.get(name) in (None, str(WORKER_PYTHON)):
            os.environ[name] = worker_python(master)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOCAL_ADDRESS)
    # The workers import this package by name, whether it is installed or run from its own folder.
    root = str(Path(tidelog.__file__).parent.parent)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, known)])


def worker_python(master: str, environment: Mapping[str, str] = os.environ) -> str:
    """The program that workers run: this Python, and on this machine by way of the script that starts it
    sooner.

    Another Spark's workers keep to the pyspark that it brings.
    """
    is_ours = master.startswith("local") and not environment.keys() & {"SPARK_HOME", "PYSPARK_GATEWAY_PORT"}
    return str(WORKER_PYTHON) if is_ours and os.access(WORKER_PYTHON, os.X_OK) else sys.executable
