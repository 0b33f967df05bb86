"""Apache Kafka, broker and controller in one process, from its jars in Maven Central.

Runs on the Java that Spark would run on. Its settings are its own, except for one replica and five partitions
of internal topics and a group's first rebalance without delay. It acknowledges what is in the page cache.
"""

import subprocess
from pathlib import Path

from bench.targets.maven import fetch_program
from bench.targets.process import Target, TargetError, free_port
from bench.wire import HOST
from tidelog.broker.cluster.store import new_cluster_id
from tidelog.pipeline.spark.java import find_java

NEWEST = "4.1.99"
"""Newer ones were not tried."""
_CACHE = ".cache/tidelog/kafka"
_FETCH_SECONDS = 120.0
_SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
group.initial.rebalance.delay.ms=0
"""


class Kafka(Target):
    name = "kafka"
    more_settings = ""
    ready_timeout_s = 300.0  # On a busy machine it needs minutes for ten thousand partitions.

    def __init__(self, folder: Path) -> None:
        """Raises ConnectorError where its jars cannot be had, JavaNotFoundError without a Java."""
        super().__init__(folder)
        jars = fetch_program(Path.home() / _CACHE, "org.apache.kafka:kafka_2.13", NEWEST, _FETCH_SECONDS)
        self._java = [str(find_java().home / "bin" / "java"), "-cp", ":".join(map(str, jars))]

    def command(self) -> list[str]:
        settings = self.folder / "server.properties"
        ports = {"host": HOST, "port": self.port, "controller": free_port()}
        settings.write_text(_SETTINGS.format(**ports, folder=self.folder) + self.more_settings)
        if not (self.folder / "logs").exists():
            new = ["kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(settings)]
            made = subprocess.run([*self._java, *new], capture_output=True, text=True, check=False)
            if made.returncode:
                raise TargetError(f"kafka could not format {self.folder}: {made.stderr[-1000:]}")
        return [*self._java, "-Xmx1G", "kafka.Kafka", str(settings)]


class FlushingKafka(Kafka):
    """Acknowledges what is on the disk, as Tidelog does."""

    name = "kafka-flushed"
    more_settings = "log.flush.interval.messages=1\n"
