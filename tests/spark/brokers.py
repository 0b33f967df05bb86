"""A running broker for Spark's tests, and batches put into its log exactly as a test built them."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from faults.process import BrokerProcess
from faults.wire import Wire
from tests.several.served import Served, served
from tests.unit.pipeline.batches import make_batch
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import Admin, ClusterConfig, TopicPartition
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.pipeline.sink.sending import LoopThread
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import ProduceRequest, decode_produce_response, encode_produce_request
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster import Cluster
from tidelog.wire.connection import Connection

VERSION = 9
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
        self.run(self._create_topic(name, partitions))

    def delete_topic(self, name: str) -> None:
        self.run(self._delete_topic(name))

    def append(self, topic: str, partition: int, batches: Iterable[bytes | bytearray]) -> None:
        """Append each batch as it is; the broker only gives it its offsets."""
        self.run(self._append(topic, partition, batches))

    def open_transactions(self) -> list[str]:
        return list(self.run(self._open_transactions()))

    async def _open_transactions(self) -> list[str]:
        async with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return [each.transactional_id for each in await admin.transactions.list(states=["Ongoing"])]

    def records(self, spark: SparkSession, topic: str, **options: str) -> list[Any]:
        """What a batch reads of the topic, in the order of its logs."""
        given = {"bootstrap.servers": self.bootstrap_servers, "subscribe": topic}
        frame = spark.read.format("tidelog").options(**given, **options).load()
        return list(frame.orderBy("partition", "offset").collect())

    def _cluster(self) -> Cluster:
        return Cluster(
            ClusterConfig(bootstrap_servers=self.bootstrap_servers, client_id="spark tests"), ASKED_APIS
        )

    async def _create_topic(self, name: str, partitions: int) -> None:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        async with self._cluster() as cluster:
            answer = await cluster.call_any(
                ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": _TIMEOUT_MS}
            )
        _raise_if_refused(answer.topics[0].error_code, name)

    async def _delete_topic(self, name: str) -> None:
        async with self._cluster() as cluster:
            request = {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": _TIMEOUT_MS}
            answer = await cluster.call_any(ApiKey.DELETE_TOPICS, request)
        _raise_if_refused(answer.responses[0].error_code, name)

    async def _append(self, topic: str, partition: int, batches: Iterable[bytes | bytearray]) -> None:
        async with self._cluster() as cluster:
            await cluster.topic(topic)
            for batch in batches:
                request = ProduceRequest(None, -1, _TIMEOUT_MS, [(topic, [(partition, memoryview(batch))])])
                while True:
                    connection = await cluster.leader_connection(TopicPartition(topic, partition))
                    if (code := await _produce(connection, request)) != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        break
                    await cluster.refresh()  # It moved to its first replica.
                _raise_if_refused(code, f"{topic}-{partition}")


class RunningBroker(Running):
    """One broker, a process of its own."""

    def __init__(self, process: BrokerProcess, loop: LoopThread) -> None:
        super().__init__(loop)
        self.process = process

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.process.port}"

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.run(self._delete_records(topic, partition, before))

    async def _delete_records(self, topic: str, partition: int, before: int) -> None:
        async with Wire.connected(self.process.port) as wire:
            (code,) = await wire.delete_records(topic, {partition: before})
        _raise_if_refused(code, f"{topic}-{partition}")


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


async def _produce(connection: Connection, request: ProduceRequest) -> int:
    """Send it and wait for the error code of its one partition."""
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def receive(body: memoryview | None, error: Exception | None) -> None:
        if body is None:
            answer.set_exception(error or RuntimeError("no answer"))
        else:
            answer.set_result(decode_produce_response(VERSION, body).topics[0][1][0].error_code)

    connection.send(ApiKey.PRODUCE, VERSION, encode_produce_request(VERSION, request), receive)
    return await answer


def _raise_if_refused(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: the broker answered error {code}")


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
