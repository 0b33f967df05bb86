"""Kafka's own client in Java, driven from Python: a JVM, and clients in it that stay open for a block."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from tests.frameworks.java import JAVA_OPTIONS, class_path
from tests.waiting import DEADLINE_SECONDS
from tidelog.pipeline.spark.java import find_java

_STRINGS = "org.apache.kafka.common.serialization.String"
_READING = {
    "key.serializer": f"{_STRINGS}Serializer",
    "value.serializer": f"{_STRINGS}Serializer",
    "key.deserializer": f"{_STRINGS}Deserializer",
    "value.deserializer": f"{_STRINGS}Deserializer",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "max.poll.records": "1",
}


@contextmanager
def jvm_with_kafka(*options: str) -> Iterator[Any]:
    """The packages of a JVM that has Kafka's classes."""
    port, process = launch_gateway(
        classpath=class_path(),
        javaopts=[*JAVA_OPTIONS, *options],
        java_path=str(find_java().home / "bin" / "java"),
        die_on_exit=True,
        return_proc=True,
    )
    try:
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        yield gateway.jvm
        gateway.shutdown()
    finally:
        process.kill()
        process.wait()


class JavaClient:
    """An admin, a producer and a consumer in a group, each made when it is first used."""

    def __init__(self, jvm: Any, properties: dict[str, str], topic: str) -> None:
        self._java, self._kafka = jvm.java, jvm.org.apache.kafka
        self._settings = {**_READING, "group.id": topic, **properties}
        self._topic = topic
        self._open = ExitStack()

    def __enter__(self) -> "JavaClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @cached_property
    def admin(self) -> Any:
        return self._made(self._kafka.clients.admin.AdminClient.create)

    @cached_property
    def producer(self) -> Any:
        return self._made(self._kafka.clients.producer.KafkaProducer)

    @cached_property
    def _consumer(self) -> Any:
        consumer = self._made(self._kafka.clients.consumer.KafkaConsumer)
        consumer.subscribe([self._topic])
        return consumer

    def _made(self, make: Any) -> Any:
        return self._open.enter_context(closing(make(self._settings)))

    def create(self) -> list[str]:
        """Creates the topic. All topics that there are then."""
        self.admin.createTopics([self._kafka.clients.admin.NewTopic(self._topic, 1, 1)]).all().get()
        return list(self.admin.listTopics().names().get())

    def write(self, value: str) -> int:
        """The record's offset."""
        record = self._kafka.clients.producer.ProducerRecord(self._topic, value)
        return int(self.producer.send(record).get().offset())

    def read(self) -> str:
        """The value of the next record, as a member of the group."""
        records = self._consumer.poll(self._java.time.Duration.ofSeconds(int(DEADLINE_SECONDS))).iterator()
        return str(records.next().value())

    def commit(self) -> None:
        """Commits what was read."""
        self._consumer.commitSync()


def causes(error: Py4JJavaError) -> str:
    """Class and message of an exception, and of each one that caused it."""
    found, cause = [], error.java_exception
    while cause is not None:
        found.append(cause.toString())
        cause = cause.getCause()
    return "\n".join(found)
