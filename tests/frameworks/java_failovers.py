"""Java's own producer, also with transactions, and its consumer in a group, while brokers are killed or
hang.

`make frameworks` runs it. As in `tests/several/failovers.py`: no error, nothing lost, doubled or reordered.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from tests.frameworks.java import fetch_jars
from tests.frameworks.java_client import jvm_with_kafka
from tests.several.applications import PARTITIONS, Application, Programs, plain, transactional
from tests.several.failovers import KILL, PAUSE, fail_over
from tests.several.operations import Machines, machines
from tests.waiting import DEADLINE_SECONDS

__all__ = ["machines"]
_STRINGS = "org.apache.kafka.common.serialization.String"


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    fetch_jars()
    with jvm_with_kafka() as running:
        yield running


def programs(jvm: Any, given: Mapping[str, str]) -> Programs:
    """As `tests.several.applications.PROGRAMS`, in Java, with these settings of its clients."""
    clients = jvm.org.apache.kafka.clients
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS

    def write(told: Application, client: str) -> None:
        _write(told, plain(client), {})

    def write_transactions(told: Application, client: str) -> None:
        _write(told, transactional(client), {"transactional.id": client})

    def _write(told: Application, topic: str, more: dict[str, str]) -> None:
        named = {f"{part}.serializer": f"{_STRINGS}Serializer" for part in ("key", "value")}
        made = clients.producer.KafkaProducer({"bootstrap.servers": told.address, **named, **given, **more})
        with closing(made) as producer:
            if more:
                producer.initTransactions()
            for number in told.rounds():
                if more:
                    producer.beginTransaction()
                sent = [
                    producer.send(clients.producer.ProducerRecord(topic, partition, None, str(number)))
                    for partition in range(PARTITIONS)
                ]
                for each in sent:
                    each.get(int(DEADLINE_SECONDS), seconds)
                if more:
                    producer.commitTransaction()

    def read(told: Application, client: str) -> None:
        settings = {
            "bootstrap.servers": told.address,
            "group.id": client,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
            **given,
            **{f"{part}.deserializer": f"{_STRINGS}Deserializer" for part in ("key", "value")},
        }
        with closing(clients.consumer.KafkaConsumer(settings)) as consumer:
            consumer.subscribe([plain(client), transactional(client)])
            for _ in told.rounds():
                records = consumer.poll(jvm.java.time.Duration.ofMillis(200)).iterator()
                while records.hasNext():
                    record = records.next()
                    told.take(record.topic(), record.partition(), record.value().encode())
                if told.read:
                    consumer.commitSync()

    return {"writes": write, "transacts": write_transactions, "reads": read}


# Through brokers that hang, `commitTransaction` ends with an error with the default of 30 s.
@pytest.mark.parametrize(("kind", "given"), [(KILL, {}), (PAUSE, {"request.timeout.ms": "10000"})])
async def test_java_gets_no_error_and_loses_nothing(
    machines: Machines, jvm: Any, kind: str, given: Mapping[str, str]
) -> None:
    await fail_over(machines, kind, ("java",), programs(jvm, given))
