"""Kafka's own share consumer, and its tools for share groups, as `make frameworks` runs them.

Over one broker, one of several processes, and three. What each acknowledgement does, a lock that ends, two
consumers, a transaction, and brokers that are killed.
"""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deadline import deadline
from tests.frameworks.java import fetch_jars, java
from tests.frameworks.java_client import jvm_with_kafka
from tests.several.served import WAYS
from tests.spark.brokers import Running, running_broker, running_cluster
from tests.waiting import DEADLINE_SECONDS

_TOOLS = "org.apache.kafka.tools"
_STRINGS = "org.apache.kafka.common.serialization.String"
_LOCK_MS = 1_000
_SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1",
    "group.share.record.lock.duration.ms": "60000",
}
_PATIENCE_SECONDS = 300.0


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    fetch_jars()
    with jvm_with_kafka() as packages:
        yield packages


class Pool:
    """A topic with one partition, and a share group that reads it from the beginning."""

    def __init__(self, jvm: Any, brokers: Running, name: str, **configs: str) -> None:
        self._jvm, self._brokers, self._name = jvm, brokers, name
        self._kafka = jvm.org.apache.kafka
        self.types = self._kafka.clients.consumer.AcknowledgeType
        self._configure({"share.auto.offset.reset": "earliest", **configs})

    @property
    def _properties(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self._brokers.bootstrap_servers,
            "key.serializer": f"{_STRINGS}Serializer",
            "value.serializer": f"{_STRINGS}Serializer",
        }

    def _configure(self, configs: dict[str, str]) -> None:
        admin_package = self._kafka.clients.admin
        with closing(admin_package.AdminClient.create(self._properties)) as admin:
            admin.createTopics([admin_package.NewTopic(self._name, 1, 1)]).all().get()
            kind = self._kafka.common.config.ConfigResource
            change = admin_package.AlterConfigOp
            of_kind = kind.Type.GROUP
            operation = change.OpType.SET
            changes = [change(admin_package.ConfigEntry(*each), operation) for each in configs.items()]
            admin.incrementalAlterConfigs({kind(of_kind, self._name): changes}).all().get()

    def write(self, *values: str, transaction: str = "", is_commit: bool = True) -> None:
        settings = {**self._properties, **({"transactional.id": transaction} if transaction else {})}
        with closing(self._kafka.clients.producer.KafkaProducer(settings)) as producer:
            if transaction:
                producer.initTransactions()
                producer.beginTransaction()
            for value in values:
                producer.send(self._kafka.clients.producer.ProducerRecord(self._name, value)).get()
            if transaction:
                (producer.commitTransaction if is_commit else producer.abortTransaction)()

    @contextmanager
    def worker(self, **settings: str) -> Iterator["Worker"]:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        consumer = self._kafka.clients.consumer.KafkaShareConsumer(
            {
                "bootstrap.servers": self._brokers.bootstrap_servers,
                "key.deserializer": f"{_STRINGS}Deserializer",
                "value.deserializer": f"{_STRINGS}Deserializer",
                "group.id": self._name,
                "share.acknowledgement.mode": "explicit",
                **named,
            }
        )
        with closing(consumer):
            consumer.subscribe([self._name])
            yield Worker(self._jvm, consumer)


class Worker:
    """One consumer of the pool."""

    def __init__(self, jvm: Any, consumer: Any) -> None:
        self._consumer = consumer
        self._poll_time = jvm.java.time.Duration.ofMillis(200)

    def poll(self) -> dict[str, Any]:
        """Value -> record, of what it gets now; maybe nothing."""
        records = self._consumer.poll(self._poll_time).iterator()
        found = {}
        while records.hasNext():
            record = records.next()
            found[record.value()] = record
        return found

    def take(self, count: int) -> dict[str, Any]:
        """The next `count` records, which come with one poll."""
        with deadline("the records of a share consumer", _PATIENCE_SECONDS):
            while True:
                found = self.poll()
                if found:
                    assert len(found) == count, found.keys()
                    return found

    def acknowledge(self, record: Any, kind: Any) -> None:
        self._consumer.acknowledge(record, kind)

    def commit(self) -> None:
        """Raises AssertionError if a partition's acknowledgements were refused."""
        refused = [
            each.get().getMessage() for each in self._consumer.commitSync().values() if each.isPresent()
        ]
        assert not refused, refused


@contextmanager
def brokers_of(way: str, folder: Path) -> Iterator[Running]:
    with running_cluster(way, folder, **_SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=WAYS)
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with brokers_of(request.param, tmp_path_factory.mktemp("share")) as running:
        yield running


def test_each_acknowledgement_does_what_it_says(jvm: Any, brokers: Running) -> None:
    pool = Pool(jvm, brokers, "each")
    pool.write("accepted", "released", "rejected", "renewed")
    with pool.worker() as worker:
        found = worker.take(4)
        assert {record.deliveryCount().get() for record in found.values()} == {1}
        worker.acknowledge(found["accepted"], pool.types.ACCEPT)
        worker.acknowledge(found["released"], pool.types.RELEASE)
        worker.acknowledge(found["rejected"], pool.types.REJECT)
        worker.acknowledge(found["renewed"], pool.types.ACCEPT)
        worker.commit()
        again = worker.take(1)
        assert again["released"].deliveryCount().get() == 2
        worker.acknowledge(again["released"], pool.types.ACCEPT)
        worker.commit()


def test_a_lock_that_ends_gives_the_record_to_another_consumer(jvm: Any, brokers: Running) -> None:
    pool = Pool(jvm, brokers, "locks", **{"share.record.lock.duration.ms": str(_LOCK_MS)})
    pool.write("slow")
    with pool.worker() as first, pool.worker() as second:
        held = first.take(1)["slow"]
        late = second.take(1)["slow"]
        assert (held.offset(), late.deliveryCount().get()) == (late.offset(), 2)
        second.acknowledge(late, pool.types.ACCEPT)
        second.commit()


def test_two_consumers_share_a_partition(jvm: Any, brokers: Running) -> None:
    pool = Pool(jvm, brokers, "two")
    with pool.worker(max_poll_records="1") as first, pool.worker(max_poll_records="1") as second:
        got: dict[Worker, set[str]] = {first: set(), second: set()}
        values = {str(number) for number in range(20)}
        for value in sorted(values):
            pool.write(value)
        with deadline("two consumers", _PATIENCE_SECONDS):
            while set().union(*got.values()) != values:
                for worker, own in got.items():
                    for value, record in worker.poll().items():
                        assert value not in got[first] | got[second]
                        own.add(value)
                        worker.acknowledge(record, pool.types.ACCEPT)
                    worker.commit()
        assert all(got.values())


def test_records_of_aborted_transactions_are_not_delivered_to_who_reads_committed(
    jvm: Any, brokers: Running
) -> None:
    pool = Pool(jvm, brokers, "transactions", **{"share.isolation.level": "read_committed"})
    pool.write("aborted", transaction="aborts", is_commit=False)
    pool.write("committed", transaction="commits")
    pool.write("plain")
    with pool.worker() as worker, deadline("a transaction", _PATIENCE_SECONDS):
        values: list[str] = []
        while len(values) < 2:
            for value, record in worker.poll().items():
                values.append(value)
                worker.acknowledge(record, pool.types.ACCEPT)
            worker.commit()
        assert values == ["committed", "plain"]


def test_what_was_accepted_is_not_delivered_again_after_the_brokers_were_killed(
    jvm: Any, tmp_path: Path
) -> None:
    with running_broker(tmp_path, **_SETTINGS) as broker:
        pool = Pool(jvm, broker, "killed")
        pool.write(*map(str, range(100)))
        with pool.worker() as worker:
            found = worker.take(100)
            for number in range(0, 100, 2):
                worker.acknowledge(found[str(number)], pool.types.ACCEPT)
            for number in range(1, 100, 2):
                worker.acknowledge(found[str(number)], pool.types.RELEASE)
            worker.commit()
            broker.run(broker.process.kill_9())
            broker.run(broker.process.start())
            later = worker.take(50)
            assert later.keys() == {str(number) for number in range(1, 100, 2)}
            for record in later.values():
                worker.acknowledge(record, pool.types.ACCEPT)
            worker.commit()


def test_the_command_line_tools_consume_and_administer_share_groups(jvm: Any, brokers: Running) -> None:
    Pool(jvm, brokers, "tools").write(*map(str, range(10)))

    def tool(name: str, *arguments: str) -> list[list[str]]:
        """The words of each line that a tool prints."""
        command = java(f"{_TOOLS}.{name}", "--bootstrap-server", brokers.bootstrap_servers, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.split() for line in done.stdout.splitlines() if line]

    def groups(*arguments: str) -> list[list[str]]:
        return tool("consumer.group.ShareGroupCommand", *arguments)

    read = ("--topic", "tools", "--group", "tools", "--max-messages", "10")
    assert tool("consumer.ConsoleShareConsumer", *read)[:10] == [[str(number)] for number in range(10)]
    assert ["tools"] in groups("--list")
    offsets = ("--describe", "--group", "tools", "--offsets")
    assert ["tools", "tools", "0", "10", "0"] in groups(*offsets)
    groups("--group", "tools", "--reset-offsets", "--topic", "tools", "--to-earliest", "--execute")
    assert ["tools", "tools", "0", "0", "10"] in groups(*offsets)
    verified = ("--topic", "tools", "--group-id", "tools", "--max-messages", "10")
    lines = tool("VerifiableShareConsumer", *verified)
    assert any('"name":"records_consumed","count":10' in line[0] for line in lines)
    groups("--group", "tools", "--delete-offsets", "--topic", "tools")
    groups("--delete", "--group", "tools")
    assert ["tools"] not in groups("--list")
