"""A Spark session as a process that is asked, piece by piece (`bench.loads.spark_load`).

Owns the process: it ends with the block, whatever happens, and the JVM with it, whose standard input is the
Python process's pipe. Also finds Spark's own Kafka connector: jars named in TIDELOG_SPARK_KAFKA_JARS (paths,
separated by commas), packages named in TIDELOG_SPARK_KAFKA_PACKAGES (Maven coordinates, which Spark fetches),
jars kept on this machine by Ivy, Maven or an earlier run, or else Maven Central's (`bench.targets.maven`).
"""

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from bench.loads.process import LoadError
from bench.targets.maven import FetchError, fetch_connector

JARS = "TIDELOG_SPARK_KAFKA_JARS"
PACKAGES = "TIDELOG_SPARK_KAFKA_PACKAGES"
# What fits one Spark need not fit another.
_OWN_CACHE = f".cache/tidelog/spark-{pyspark.__version__}-kafka"
_CACHES = (".ivy2.5.2/jars", ".ivy2/jars", ".m2/repository", _OWN_CACHE)
# Kafka's client, and what the connector needs beside it.
_PARTS = ("spark-sql-kafka-0-10_", "spark-token-provider-kafka-0-10_", "kafka-clients-", "commons-pool2-")
_FETCH_SECONDS = 20.0
_START_SECONDS = 180.0
_WORK_SECONDS = 300.0
_STOP_SECONDS = 20.0


def resolve_connector(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """The settings with which Spark finds its own Kafka connector. Raises FetchError with the reason why
    there is none.
    """
    if found := kafka_connector(environment, home):
        return found
    jars = Path(pyspark.__file__).parent / "jars"
    scala = [path.stem.split("_")[1].split("-")[0] for path in jars.glob("spark-core_*.jar")]
    if not scala:
        raise FetchError(f"no spark-core in {jars}")
    fetched = fetch_connector(home / _OWN_CACHE, pyspark.__version__, scala[0], _FETCH_SECONDS)
    return {"spark.jars": ",".join(map(str, fetched))}


def kafka_connector(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Those settings where the connector is named or on this machine already, else none."""
    if jars := environment.get(JARS):
        return {"spark.jars": jars}
    if packages := environment.get(PACKAGES):
        return {"spark.jars.packages": packages}
    for cache in _CACHES:
        kept = sorted((home / cache).rglob("*.jar"))
        chosen = [[str(path) for path in kept if part in path.name] for part in _PARTS]
        if all(chosen):
            return {"spark.jars": ",".join(paths[-1] for paths in chosen)}
    return {}


class SparkProcess:
    """The session, started when the block is entered. Raises LoadError with the end of what it printed."""

    def __init__(self, port: int, folder: Path, settings: Mapping[str, str]) -> None:
        self.command = [sys.executable, "-m", "bench.loads.spark_load", str(port), str(folder)]
        self._settings = settings
        folder.mkdir(parents=True, exist_ok=True)
        self._output = folder / "spark.out"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        environment = os.environ | {"TIDELOG_BENCH_SPARK_SETTINGS": json.dumps(dict(self._settings))}
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
                text=True,
            )
        try:
            self._answer("start", _START_SECONDS)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def ask(self, work: str, **given: object) -> dict[str, float]:
        """Have it do a piece of work; what it answers. Raises LoadError."""
        stream = self._running().stdin
        if stream is None:
            raise LoadError("Spark's process has no standard input")
        try:
            stream.write(json.dumps({"work": work, **given}) + "\n")
            stream.flush()
        except BrokenPipeError:
            raise LoadError(f"Spark, {work}: its process has ended{self._last_words()}") from None
        return self._answer(work, _WORK_SECONDS)

    def cpu_seconds(self) -> float:
        """CPU time that it, its JVM and its Python workers have used so far, user and system."""
        parents, seconds = {}, {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            # Of itself, and of children that have ended.
            seconds[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        family, found = {self._running().pid}, 0
        while found != len(family):
            found = len(family)
            family |= {pid for pid, parent in parents.items() if parent in family}
        return sum(seconds.get(pid, 0) for pid in family)

    def _answer(self, work: str, seconds: float) -> dict[str, Any]:
        stream = self._running().stdout
        if stream is None:
            raise LoadError("Spark's process has no standard output")
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            line = stream.readline() if selector.select(seconds) else None
        if not line:
            why = f"no answer within {seconds:.0f} s" if line is None else "it ended"
            raise LoadError(f"Spark, {work}: {why}{self._last_words()}")
        answer = dict(json.loads(line))
        if "error" in answer:
            raise LoadError(f"Spark, {answer['error']}")
        return answer

    def _last_words(self) -> str:
        lines = self._output.read_text(errors="replace").splitlines()[-10:]
        return "; it printed:\n" + "\n".join(lines) if lines else ""

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise LoadError("Spark was not started")
        return self._process

    def _stop(self) -> None:
        """Let it end by itself, so that it ends its JVM; kill it if it does not."""
        process = self._running()
        try:
            process.communicate(timeout=_STOP_SECONDS)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            process.kill()
            process.communicate()
