"""Each client makes a topic, writes to it, reads from it in a group and lists topics, over secure listeners.

A `Way` has what a client must know of a listener; each library has its own names for that.
"""

import asyncio
from collections.abc import Callable, Mapping
from ssl import create_default_context
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioKafkaTopic
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic

from tests.waiting import DEADLINE_SECONDS
from tidelog.client import Admin
from tidelog.client import Consumer as OurConsumer
from tidelog.client import NewTopic as OurTopic
from tidelog.client import Producer as OurProducer


class Way(NamedTuple):
    """`authority` and `certificate` are files; without an authority there is no TLS."""

    address: str
    mechanism: str = ""
    user: str = ""
    password: str = ""
    authority: str = ""
    certificate: str = ""

    @property
    def _protocol(self) -> str:
        return "SASL_" * bool(self.mechanism) + ("SSL" if self.authority else "PLAINTEXT")

    def _of_aiokafka(self) -> dict[str, Any]:
        """The names of aiokafka, which kafka-python and our clients have too."""
        settings = {"bootstrap_servers": self.address, "security_protocol": self._protocol}
        if self.mechanism:
            settings["sasl_mechanism"] = self.mechanism
        if self.user:
            settings |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return settings

    def python(self, **more: Any) -> dict[str, Any]:
        """Of aiokafka and kafka-python."""
        settings = self._of_aiokafka()
        if self.authority:
            settings["ssl_context"] = context = create_default_context(cafile=self.authority)
            if self.certificate:
                context.load_cert_chain(self.certificate)
        return settings | more

    def ours(self, **more: Any) -> dict[str, Any]:
        files = {"ssl_cafile": self.authority, "ssl_certfile": self.certificate}
        return self._of_aiokafka() | {name: file for name, file in files.items() if file} | more

    def librdkafka(self, **more: Any) -> dict[str, Any]:
        """More settings have underscores for dots."""
        settings = {
            "bootstrap.servers": self.address,
            "security.protocol": self._protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": self.authority,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.certificate,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
        return {name: value for name, value in settings.items() if value != ""} | more


async def by_aiokafka(settings: Mapping[str, Any], topic: str) -> tuple[bytes, set[str]]:
    admin = AIOKafkaAdminClient(**settings)
    await admin.start()
    await admin.create_topics([AioKafkaTopic(topic, 1, 1)])
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"v")
    earliest = {**settings, "auto_offset_reset": "earliest", "group_id": topic}
    async with AIOKafkaConsumer(topic, **earliest) as consumer:
        value = (await consumer.getone()).value
    topics = set(await admin.list_topics())
    await admin.close()
    return value, topics


def by_librdkafka(settings: Mapping[str, Any], topic: str) -> tuple[bytes, set[str]]:
    admin = AdminClient(dict(settings))
    admin.create_topics([NewTopic(topic, 1)])[topic].result(DEADLINE_SECONDS)
    producer = Producer(dict(settings))
    producer.produce(topic, b"v")
    assert producer.flush(DEADLINE_SECONDS) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    value = consumer.poll(DEADLINE_SECONDS).value()
    consumer.close()
    return value, set(admin.list_topics(timeout=DEADLINE_SECONDS).topics)


def by_kafka_python(settings: Mapping[str, Any], topic: str) -> tuple[bytes, set[str]]:
    admin = KafkaAdminClient(**settings)
    admin.create_topics([KafkaPythonTopic(topic, 1, 1)])
    producer = KafkaProducer(**settings)
    producer.send(topic, b"v").get(DEADLINE_SECONDS)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **settings)
    value = next(consumer).value
    consumer.close()
    topics = set(admin.list_topics())
    admin.close()
    return value, topics


async def by_ours(settings: Mapping[str, Any], topic: str) -> tuple[bytes | None, set[str]]:
    async with Admin(**settings) as admin:
        await admin.create_topics([OurTopic(topic, 1)])
        async with OurProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"v")
        earliest = {**settings, "auto_offset_reset": "earliest", "group_id": topic}
        async with OurConsumer(topic, **earliest) as consumer:
            value = (await consumer.getone()).value
        return value, set(await admin.list_topics())


_CLIENTS: Mapping[str, tuple[Callable[..., dict[str, Any]], Callable[..., Any]]] = {
    "aiokafka": (Way.python, by_aiokafka),
    "librdkafka": (Way.librdkafka, by_librdkafka),
    "kafka-python": (Way.python, by_kafka_python),
    "ours": (Way.ours, by_ours),
}
CLIENTS = tuple(_CLIENTS)


async def assert_makes_a_round_trip(client: str, way: Way, topic: str, **more: Any) -> None:
    settings_of, run = _CLIENTS[client]
    settings = settings_of(way, **more)
    async with asyncio.timeout(DEADLINE_SECONDS):
        answer = (
            run(settings, topic)
            if asyncio.iscoroutinefunction(run)
            else asyncio.to_thread(run, settings, topic)
        )
        value, topics = await answer
    assert value == b"v"
    assert topic in topics
