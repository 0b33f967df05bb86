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

from faults.process_tree import command_of, descendants, kill_tree
from tests.spark.small import JAVA_OPTIONS
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.pipeline.spark.java import find_java

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Registered app (.+) with ID")
_SECONDS = DEADLINE_SECONDS


class StandaloneCluster:
    """`master` is the URL for --master."""

    def __init__(self, folder: Path) -> None:
        self._folder = self._log = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> None:
        """Start the master."""
        self._log = self._run("master", _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        found = wait_for(lambda: _STARTED.findall(self._log.read_text()), "the master's address", _SECONDS)
        self.master = found[0]

    def start_workers(self, workers: int) -> None:
        """Start them and wait until all are registered."""
        for number in range(workers):
            name = f"worker-{number}"
            work = ("--work-dir", str(self._folder / name), "--cores", "1", "--memory", "512m")
            self._run(name, _WORKER, "--host", "127.0.0.1", "--webui-port", "0", *work, self.master)
        wait_for(
            lambda: self._log.read_text().count("Registering worker") == workers,
            "the workers to register",
            _SECONDS,
        )

    def applications(self) -> list[str]:
        """The names under which applications came to the master."""
        return _REGISTERED.findall(self._log.read_text())

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
def standalone_cluster(folder: Path) -> Iterator[StandaloneCluster]:
    """A running cluster without workers, killed when the block ends."""
    cluster = StandaloneCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
