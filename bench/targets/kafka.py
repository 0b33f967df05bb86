"""Apache Kafka, broker and controller in one process, from its jars in Maven Central, with Kafka's own heap.

It has its own default settings, except for the replicas and the five partitions of internal topics, a group's
first rebalance without delay, and deleted topics that leave the disk at once. `Kafka` acknowledges what is in
the page cache, as Kafka does by default; `FlushedKafka` what is on the disk, as Tidelog does by default.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench.targets.maven import fetch_program
from bench.targets.process import Target, TargetError, free_port
from bench.wire import HOST
from tidelog.broker.cluster.store import new_cluster_id
from tidelog.pipeline.spark.java import JavaNotFoundError, find_java

BROKER = "org.apache.kafka:kafka_2.13:4.4.0"
_SETTINGS = """process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
log.segment.delete.delay.ms=0
offsets.topic.replication.factor={factor}
offsets.topic.num.partitions=5
transaction.state.log.replication.factor={factor}
transaction.state.log.min.isr={least}
min.insync.replicas={least}
transaction.state.log.num.partitions=5
share.coordinator.state.topic.replication.factor={factor}
share.coordinator.state.topic.min.isr={least}
share.coordinator.state.topic.num.partitions=5
group.initial.rebalance.delay.ms=0
initial.broker.registration.timeout.ms=300000
"""


def java(artifact: str, heap: str = "1G") -> list[str]:
    """The command that runs a class of a program from Maven Central. Raises TargetError without its jars or a
    Java."""
    jars = fetch_program(artifact)
    try:
        home = find_java().home
    except JavaNotFoundError as error:
        raise TargetError(str(error)) from error
    return [str(home / "bin" / "java"), f"-Xmx{heap}", f"-Xms{heap}", "-cp", ":".join(map(str, jars))]


class Kafka(Target):
    name = "kafka"
    more_settings = ""
    ready_timeout_s = 300.0  # On a busy machine it needs minutes for ten thousand partitions.

    def __init__(self, folder: Path) -> None:
        """Raises TargetError where its jars or a Java cannot be had."""
        super().__init__(folder)
        self._java = java(BROKER)
        self._numbers: dict[str, object] = {}
        self.controller = free_port()
        self.belong(1, {1: self.controller}, new_cluster_id())

    def belong(self, node: int, controllers: Mapping[int, int], cluster_id: str, least: int = 1) -> None:
        """Be this node of those whose controllers have these ports, all of which have each partition; so many
        have to have a record before it is acknowledged."""
        voters = ",".join(f"{each}@{HOST}:{port}" for each, port in controllers.items())
        self._numbers = {"node": node, "voters": voters, "factor": len(controllers), "least": least}
        self._cluster_id = cluster_id

    def prepare(self) -> None:
        """Write its settings and format its folder, which is no part of the time of a start."""
        settings = self.folder / "server.properties"
        ports = {"host": HOST, "port": self.port, "controller": self.controller}
        numbers = {**ports, **self._numbers}
        settings.write_text(_SETTINGS.format(**numbers, folder=self.folder) + self.more_settings)
        if not (self.folder / "logs").exists():
            # An id may begin with a dash.
            cluster_id = f"--cluster-id={self._cluster_id}"
            new = ["kafka.tools.StorageTool", "format", cluster_id, "-c", str(settings)]
            made = subprocess.run([*self._java, *new], capture_output=True, text=True, check=False)
            if made.returncode:
                raise TargetError(f"kafka could not format {self.folder}: {made.stderr[-1000:]}")

    def used_bytes(self) -> int:
        """Of its heap, after a collection: a heap that was used once stays resident. Raises TargetError."""
        asked = [str(Path(self._java[0]).with_name("jcmd")), str(self.pid), "GC.class_histogram"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise TargetError(f"jcmd of the Java that runs kafka failed: {answer.stderr[-1000:]}")
        return int(answer.stdout.split()[-1])

    def command(self) -> list[str]:
        return [*self._java, "kafka.Kafka", str(self.folder / "server.properties")]


class FlushedKafka(Kafka):
    name = "kafka flushed"
    more_settings = "log.flush.interval.messages=1\n"
