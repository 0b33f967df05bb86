"""A running broker for Spark's tests, and batches put into its log exactly as a test built them."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from faults.process import BrokerProcess
from tests.several.served import Served, served
from tests.unit.pipeline.batches import make_batch
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import Admin, ClusterConfig, NewTopic, TopicPartition
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.pipeline.sink.sending import LoopThread
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster import Cluster

_TIME_MS = 1_700_000_000_000
_TIMEOUT_MS = int(DEADLINE_SECONDS * 1000)


class Running(ABC):
    """Brokers on an event loop of its own thread, since Spark's tests are synchronous."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str: ...

    def run(self, work: Any) -> Any:
        """Wait for a coroutine on the brokers' loop."""
        return self._loop.run(asyncio.wait_for(work, DEADLINE_SECONDS))

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self.ask(lambda admin: admin.create_topics([NewTopic(name, partitions, 1)]))

    def delete_topic(self, name: str) -> None:
        self.ask(lambda admin: admin.delete_topics([name]))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.ask(lambda admin: admin.delete_records({TopicPartition(topic, partition): before}))

    def append(self, topic: str, partition: int, batches: Iterable[bytes | bytearray]) -> None:
        """Append each batch as it is; the broker only gives it its offsets."""
        self.run(self._append(topic, partition, batches))

    def open_transactions(self) -> list[str]:
        found = self.ask(lambda admin: admin.transactions.list(states=["Ongoing"]))
        return [each.transactional_id for each in found]

    def ask(self, work: Callable[[Admin], Coroutine[Any, Any, Any]]) -> Any:
        async def asked() -> Any:
            async with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
                return await work(admin)

        return self.run(asked())

    def records(self, spark: SparkSession, topic: str, **options: str) -> list[Any]:
        """What a batch reads of the topic, in the order of its logs."""
        given = {"bootstrap.servers": self.bootstrap_servers, "subscribe": topic}
        frame = spark.read.format("tidelog").options(**given, **options).load()
        return list(frame.orderBy("partition", "offset").collect())

    async def _append(self, topic: str, partition: int, batches: Iterable[bytes | bytearray]) -> None:
        config = ClusterConfig(bootstrap_servers=self.bootstrap_servers, client_id="spark tests")
        async with Cluster(config, ASKED_APIS) as cluster:
            await cluster.topic(topic)
            for batch in batches:
                data = {"index": partition, "records": batch}
                topics = [{"name": topic, "partition_data": [data]}]
                values = {"acks": -1, "timeout_ms": _TIMEOUT_MS, "topic_data": topics}
                while True:
                    connection = await cluster.leader_connection(TopicPartition(topic, partition))
                    answer = await connection.call(ApiKey.PRODUCE, values)
                    code = answer.responses[0].partition_responses[0].error_code
                    if code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        break
                    await cluster.refresh()  # It moved to its first replica.
                if code:
                    raise RuntimeError(f"{topic}-{partition}: the broker answered error {code}")


class RunningBroker(Running):
    """One broker, a process of its own."""

    def __init__(self, process: BrokerProcess, loop: LoopThread) -> None:
        super().__init__(loop)
        self.process = process

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.process.port}"


class RunningCluster(Running):
    """Brokers of one cluster."""

    def __init__(self, cluster: Served, loop: LoopThread) -> None:
        super().__init__(loop)
        self.cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    async def kill_and_start(self, broker: int) -> None:
        async with self.cluster.without(broker):
            pass


@contextmanager
def running_broker(data_dir: Path, **settings: str) -> Iterator[RunningBroker]:
    """Start a broker with these settings, and kill it when the block ends."""
    with LoopThread() as loop:
        broker = RunningBroker(BrokerProcess(data_dir, settings=settings), loop)
        try:
            broker.run(broker.process.start())
            yield broker
        finally:
            broker.run(broker.process.kill_9())


@contextmanager
def running_cluster(way: str, folder: Path, **settings: str) -> Iterator[RunningCluster]:
    """A cluster that is `served` in this way."""
    with LoopThread() as loop:
        serving = served(way, folder, **settings)
        cluster = loop.run(serving.__aenter__())
        try:
            yield RunningCluster(cluster, loop)
        finally:
            loop.run(serving.__aexit__(None, None, None))


@contextmanager
def broker_with_orders(data_dir: Path) -> Iterator[RunningBroker]:
    """One with a topic orders: 2 partitions, each with the keys k0 to k49 and the values 0 to 49."""
    with running_broker(data_dir) as broker:
        broker.create_topic("orders", 2)
        rows = [(_TIME_MS + n, b"k%d" % n, b"%d" % n, ()) for n in range(50)]
        for partition in (0, 1):
            broker.append("orders", partition, [make_batch(rows)])
        yield broker
