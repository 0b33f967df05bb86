"""Kafka's own Java client, which Spark's Kafka connector brings into Spark's JVM: admin, producer, consumer.

Spoken to through Spark's gateway, so it is there only where the connector is (see the `connector` fixture).
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.spark.brokers import RunningBroker, running_broker
from tests.waiting import DEADLINE_SECONDS

SERIALIZERS = {
    f"{part}.{kind}erializer": f"org.apache.kafka.common.serialization.String{kind.capitalize()}erializer"
    for part in ("key", "value")
    for kind in ("s", "des")
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SECONDS = int(DEADLINE_SECONDS)  # Java takes whole ones.
# Short, so that little time is spent waiting for a broker that is gone.
PATIENCE = {"retry.backoff.ms": "20", "reconnect.backoff.ms": "20", "reconnect.backoff.max.ms": "50"}


class JavaClient:
    """The client's classes, configured for one broker."""

    def __init__(self, spark: SparkSession, broker: RunningBroker) -> None:
        self.broker = broker
        self.java = spark.sparkContext._jvm.java
        self.kafka = spark.sparkContext._jvm.org.apache.kafka
        self.clients = self.kafka.clients
        self._settings = {"bootstrap.servers": broker.bootstrap_servers, **PATIENCE}

    def admin(self) -> Any:
        return closing(self.clients.admin.AdminClient.create(self._settings))

    def producer(self, **settings: str) -> Any:
        return closing(self.clients.producer.KafkaProducer(self._settings | SERIALIZERS | settings))

    def send(self, producer: Any, topic: str, numbers: range) -> list[Any]:
        """A future for each record, whose key and value are its number."""
        record = self.clients.producer.ProducerRecord
        return [producer.send(record(topic, 0, str(number), str(number))) for number in numbers]

    def read(self, topic: str, count: int, **settings: str) -> list[Any]:
        """The records of partition 0 from the first on, until `count` are there."""
        consumer = self.clients.consumer.KafkaConsumer(self._settings | SERIALIZERS | settings)
        with closing(consumer):
            places = [self.kafka.common.TopicPartition(topic, 0)]
            consumer.assign(places)
            consumer.seekToBeginning(places)
            found: list[Any] = []
            while len(found) < count:
                records = consumer.poll(self.java.time.Duration.ofSeconds(_SECONDS)).iterator()
                assert records.hasNext(), f"{len(found)} of {count} records came"
                while records.hasNext():
                    found.append(records.next())
            assert list(consumer.endOffsets(places).values()) == [count]
            return found


@pytest.fixture(scope="module")
def client(
    spark: SparkSession, connector: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient | None]:
    if not connector:
        yield None
        return
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield JavaClient(spark, broker)


def test_its_admin_creates_describes_and_changes(client: JavaClient | None) -> None:
    if client is None:
        return
    tools = client.clients.admin
    with client.admin() as admin:
        created = admin.createTopics([tools.NewTopic("t", 2, 1).configs({"retention.ms": "3600000"})])
        assert (created.numPartitions("t").get(), created.replicationFactor("t").get()) == (2, 1)
        with pytest.raises(Py4JJavaError, match="TopicExistsException"):
            admin.createTopics([tools.NewTopic("t", 2, 1)]).all().get()
        admin.createPartitions({"t": tools.NewPartitions.increaseTo(3)}).all().get()
        by_name = admin.describeTopics(["t"]).allTopicNames().get()["t"]
        ids = client.kafka.common.TopicCollection.ofTopicIds([by_name.topicId()])
        by_id = admin.describeTopics(ids).allTopicIds().get()[by_name.topicId()]
        # It asks by name with DescribeTopicPartitions, by id with Metadata, which has no such replicas.
        without_eligible = by_name.toString().replace("elr=, lastKnownElr=)", "elr=N/A, lastKnownElr=N/A)")
        assert without_eligible == by_id.toString()
        assert len(by_id.partitions()) == 3
        kinds = getattr(client.kafka.common.config, "ConfigResource$Type")
        topic = client.kafka.common.config.ConfigResource(kinds.TOPIC, "t")
        operations = getattr(tools, "AlterConfigOp$OpType")
        change = tools.AlterConfigOp(tools.ConfigEntry("retention.ms", "7200000"), operations.SET)
        admin.incrementalAlterConfigs({topic: [change]}).all().get()
        described = admin.describeConfigs([topic]).all().get()[topic]
        assert described.get("retention.ms").value() == "7200000"
        admin.deleteTopics(["t"]).all().get()
        assert "t" not in admin.listTopics().names().get()


def test_its_consumer_reads_each_codec_of_its_producer(client: JavaClient | None) -> None:
    if client is None:
        return
    for codec in CODECS:
        with client.producer(**{"compression.type": codec, "linger.ms": "20"}) as producer:
            sent = client.send(producer, codec, range(100))
            producer.flush()
            assert [each.get().offset() for each in sent] == list(range(100))
        read = client.read(codec, 100, **{"isolation.level": "read_committed", "fetch.max.bytes": "300"})
        assert [each.value() for each in read] == list(map(str, range(100)))


def test_its_producer_stores_each_record_once_while_the_broker_is_killed(client: JavaClient | None) -> None:
    if client is None:
        return
    offsets = client.clients.admin.OffsetSpec
    # Idempotent, with five requests in flight, is what it is by default.
    with client.producer(**{"batch.size": "200"}) as producer:
        sent = client.send(producer, "killed", range(300))
        sent[0].get()
        for number in range(300, 900, 300):
            client.broker.run(client.broker.process.kill_9())
            sent += client.send(producer, "killed", range(number, number + 300))
            client.broker.run(client.broker.process.start())
        producer.flush()
        assert [each.get().offset() for each in sent] == list(range(900))
    assert [int(each.value()) for each in client.read("killed", 900)] == list(range(900))
    place = client.kafka.common.TopicPartition("killed", 0)
    with client.admin() as admin:
        (state,) = admin.describeProducers([place]).all().get()[place].activeProducers()
        assert state.lastSequence() == 899
        for spec, offset in ((offsets.earliest(), 0), (offsets.latest(), 900), (offsets.forTimestamp(0), 0)):
            assert admin.listOffsets({place: spec}).all().get()[place].offset() == offset
