"""A standalone Spark cluster on this machine: one master and workers of one core, each a JVM of its own.

The workers' executors are found by their command lines below the worker's pid, so that a test can kill one.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.processes import command_of, descendants, kill_tree
from tests.spark.small import JAVA_OPTIONS
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.pipeline.spark.java import find_java

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_SECONDS = DEADLINE_SECONDS


class StandaloneCluster:
    """`master` is the URL for --master."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self, workers: int) -> None:
        """Start the master and wait until all workers are registered."""
        log = self._run("master", _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        started = re.compile(r"Starting Spark master at (spark://\S+)")
        self.master = wait_for(lambda: started.findall(log.read_text()), "the master's address", _SECONDS)[0]
        for number in range(workers):
            name = f"worker-{number}"
            work = ("--work-dir", str(self._folder / name), "--cores", "1", "--memory", "512m")
            self._run(name, _WORKER, "--host", "127.0.0.1", "--webui-port", "0", *work, self.master)
        registered = re.compile(r"Registering worker")
        wait_for(
            lambda: len(registered.findall(log.read_text())) == workers, "the workers to register", _SECONDS
        )

    def executors(self) -> list[int]:
        """The pids of the executor JVMs that run now."""
        return [
            pid
            for worker in self._processes[1:]
            for pid in descendants(worker.pid)
            if _EXECUTOR in command_of(pid)
        ]

    def stop(self) -> None:
        """Kill what was started, the workers' executors and their Python processes included."""
        for process in reversed(self._processes):
            kill_tree(process.pid)
            process.wait(_SECONDS)

    def _run(self, name: str, java_class: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        environment = os.environ | {
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_NO_DAEMONIZE": "1",
        }
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(script), java_class, *arguments], stdout=output, stderr=output, env=environment
            )
        self._processes.append(process)
        return log


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[StandaloneCluster]:
    """A running cluster, killed when the block ends."""
    cluster = StandaloneCluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
