"""Three brokers that have each partition, of which two have to have a record before it is acknowledged.

Tidelog's share one member of etcd, Kafka's are brokers and controllers in one (KRaft). The first broker leads
what the bench makes. Invariant: a part of a cluster is named alike for all: leader, followers, and etcd.
"""

import shutil
import urllib.request
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.targets.kafka import FlushedKafka, Kafka
from bench.targets.process import Server, Target, free_port
from bench.targets.tidelog import Tidelog
from bench.wire import HOST, Wire, until
from tidelog.broker.cluster.store import new_cluster_id

NODES: Final = (1, 2, 3)
LEAST_IN_SYNC: Final = 2
LEADER, FOLLOWERS, ETCD = "leader", "followers", "etcd"
_INTERNAL_PARTITIONS: Final = 5
_READY_S: Final = 120.0


class _Etcd(Target):
    name = "etcd"
    reuses_address = True

    def command(self) -> list[str]:
        own, peer = (f"http://{HOST}:{port}" for port in (self.port, free_port()))
        return [
            *(shutil.which("etcd") or "etcd", "--name=m0", f"--data-dir={self.folder}"),
            *(f"--listen-client-urls={own}", f"--advertise-client-urls={own}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=m0={peer}",
        ]

    def ask(self) -> None:
        urllib.request.urlopen(f"http://{HOST}:{self.port}/health", timeout=self.ready_timeout_s).close()


class Cluster(Server):
    """Runs several nodes. They keep their ports and folders when one of them is killed and started again."""

    replicas = NODES
    nodes: Sequence[Target]
    """In the order of their ids."""

    @abstractmethod
    def prepare(self) -> None:
        """Start what the nodes need. Raises TargetError."""

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepare()
        for node in self.nodes:
            node.choose_port()
        self.port = self.nodes[0].port
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        self.wait_until_registered(len(self.nodes))

    def wait_until_registered(self, count: int) -> None:
        """Return when the first broker names so many. Raises WireError, OSError."""

        def are_registered() -> bool:
            with Wire(self.port) as wire:
                return len(wire.metadata().brokers) == count

        until(are_registered, f"{count} brokers of {self.name}", _READY_S)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def check_alive(self) -> None:
        for node in self.nodes:
            node.check_alive()

    def parts(self) -> Mapping[str, Sequence[int]]:
        leader, *followers = (node.pid for node in self.nodes)
        return {LEADER: [leader], FOLLOWERS: followers}


class TidelogCluster(Cluster):
    name = Tidelog.name

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._etcd = _Etcd(folder / "etcd")
        self.nodes = self._brokers = [Tidelog(folder / str(node)) for node in NODES]

    def prepare(self) -> None:
        self._etcd.start()
        for number, node in zip(NODES, self._brokers, strict=True):
            node.settings = (
                f"node.id={number}",
                f"cluster.store=etcd:http://{HOST}:{self._etcd.port}",
                f"min.insync.replicas={LEAST_IN_SYNC}",
                f"offsets.topic.num.partitions={_INTERNAL_PARTITIONS}",
            )

    def stop(self) -> None:
        super().stop()
        self._etcd.stop()

    def parts(self) -> Mapping[str, Sequence[int]]:
        return {**super().parts(), ETCD: [self._etcd.pid]}


class KafkaCluster(Cluster):
    name = Kafka.name
    make: type[Kafka] = Kafka

    def __init__(self, folder: Path) -> None:
        """Raises TargetError where its jars or a Java cannot be had."""
        super().__init__(folder)
        self.nodes = nodes = [self.make(folder / str(node)) for node in NODES]
        controllers = {number: node.controller for number, node in zip(NODES, nodes, strict=True)}
        cluster_id = new_cluster_id()
        for number, node in zip(NODES, nodes, strict=True):
            node.belong(number, controllers, cluster_id, LEAST_IN_SYNC)

    def prepare(self) -> None:
        pass


class FlushedKafkaCluster(KafkaCluster):
    name = FlushedKafka.name
    make = FlushedKafka
