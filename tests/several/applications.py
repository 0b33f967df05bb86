"""Applications of four clients that write and read while a test works on their cluster, and what came of it.

Owns the programs: for each client a writer, one with transactions, and a reader in a group, each in a thread
of its own with the client's defaults. Each writer numbers what it writes to a partition, so what is stored
has to be the numbers from 0 on, each once and in order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import UnknownBrokerIdError

from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import Admin, Consumer, NewTopic, Producer

PARTITIONS = 3
CLIENTS = ("tidelog", "aiokafka", "librdkafka", "kafka-python")
PAUSE_SECONDS = 0.02
TopicPartition = tuple[str, int]


def plain(client: str) -> str:
    return f"{client}-plain"


def transactional(client: str) -> str:
    return f"{client}-transactional"


TOPICS = [name(client) for client in CLIENTS for name in (plain, transactional)]


class Application:
    """What one program has done. It runs until it is told to end."""

    def __init__(self, name: str, address: str, ending: threading.Event) -> None:
        self.name = name
        self.address = address
        self.errors: list[str] = []
        self.acknowledged = 0
        """Numbers that each partition has for certain."""
        self.longest_seconds = 0.0
        """Of all rounds: how long the cluster kept it waiting at most."""
        self.read: dict[TopicPartition, int] = defaultdict(int)
        """The next number of each partition."""
        self.read_again = 0
        self._ending = ending

    def rounds(self) -> Iterator[int]:
        number = 0
        while not self.is_ending():
            began = time.monotonic()
            yield number
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
            number += 1
            self.acknowledged = number
            self._ending.wait(PAUSE_SECONDS)

    def is_ending(self) -> bool:
        return self._ending.is_set()

    def take(self, topic: str, partition: int, value: bytes) -> None:
        number, expected = int(value), self.read[topic, partition]
        if number > expected:
            self.errors.append(f"{topic}-{partition}: expected {expected}, got {number}")
        self.read_again += number < expected
        self.read[topic, partition] = max(expected, number + 1)

    def run(self, program: Callable[[Application, str], None], client: str) -> None:
        try:
            program(self, client)
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")


async def _write_async(
    told: Application, client: str, more: Mapping[str, Any], *, in_transactions: bool
) -> None:
    topic = transactional(client) if in_transactions else plain(client)
    async with _producer(told, client, more) as producer:
        for number in told.rounds():
            if in_transactions:
                await producer.begin_transaction()
            for partition in range(PARTITIONS):
                await producer.send_and_wait(topic, b"%d" % number, partition=partition)
            if in_transactions:
                await producer.commit_transaction()


def _producer(told: Application, client: str, more: Mapping[str, Any]) -> Any:
    if client == "tidelog":
        return Producer(bootstrap_servers=told.address, **more)
    return AIOKafkaProducer(bootstrap_servers=told.address, enable_idempotence=True, **more)


def write(told: Application, client: str) -> None:
    """Numbers, with an idempotent producer."""
    if client == "librdkafka":
        _write_with_librdkafka(told, client, {}, in_transactions=False)
    elif client == "kafka-python":
        _write_with_kafka_python(told, client, {}, in_transactions=False)
    else:
        asyncio.run(_write_async(told, client, {}, in_transactions=False))


def write_transactions(told: Application, client: str) -> None:
    """A number to each partition per transaction."""
    if client == "librdkafka":
        _write_with_librdkafka(told, client, {"transactional.id": client}, in_transactions=True)
    elif client == "kafka-python":
        _write_with_kafka_python(told, client, {"transactional_id": client}, in_transactions=True)
    else:
        asyncio.run(_write_async(told, client, {"transactional_id": client}, in_transactions=True))


def _write_with_librdkafka(
    told: Application, client: str, more: Mapping[str, Any], *, in_transactions: bool
) -> None:
    topic = transactional(client) if in_transactions else plain(client)
    producer = LibrdkafkaProducer(
        {"bootstrap.servers": told.address, "enable.idempotence": True, "linger.ms": 0, **more}
    )

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            told.errors.append(f"delivery: {error}")

    if in_transactions:
        producer.init_transactions(DEADLINE_SECONDS)
    for number in told.rounds():
        if in_transactions:
            producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition, on_delivery=delivered)
        if producer.flush(DEADLINE_SECONDS):
            raise TimeoutError("librdkafka did not deliver")
        if in_transactions:
            producer.commit_transaction(DEADLINE_SECONDS)


def _write_with_kafka_python(
    told: Application, client: str, more: Mapping[str, Any], *, in_transactions: bool
) -> None:
    topic = transactional(client) if in_transactions else plain(client)
    producer: Any = KafkaProducer(bootstrap_servers=told.address.split(","), enable_idempotence=True, **more)
    if in_transactions:
        producer.init_transactions()
    for number in told.rounds():
        if in_transactions:
            producer.begin_transaction()
        sent = [producer.send(topic, b"%d" % number, partition=partition) for partition in range(PARTITIONS)]
        for each in sent:
            each.get(DEADLINE_SECONDS)
        if in_transactions:
            producer.commit_transaction()
    producer.close()


def read(told: Application, client: str) -> None:
    """What the client's writers committed, in a group that commits after each poll."""
    topics = [plain(client), transactional(client)]
    if client == "librdkafka":
        _read_with_librdkafka(told, client, topics)
    elif client == "kafka-python":
        _read_with_kafka_python(told, client, topics)
    else:
        asyncio.run(_read_async(told, client, topics))


async def _read_async(told: Application, client: str, topics: list[str]) -> None:
    made: Any = Consumer if client == "tidelog" else AIOKafkaConsumer
    consumer = made(
        *topics,
        bootstrap_servers=told.address,
        group_id=client,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    async with consumer:
        for _ in told.rounds():
            for where, records in (await consumer.getmany(timeout_ms=200)).items():
                for record in records:
                    told.take(where.topic, where.partition, record.value)
            if told.read:
                await consumer.commit()


def _read_with_librdkafka(told: Application, client: str, topics: list[str]) -> None:
    consumer = LibrdkafkaConsumer(
        {
            "bootstrap.servers": told.address,
            "group.id": client,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(topics)
    for _ in told.rounds():
        messages = consumer.consume(100, 0.2)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            told.take(message.topic(), message.partition(), message.value())
        if messages:
            consumer.commit(asynchronous=False)
    consumer.close()


def _read_with_kafka_python(told: Application, client: str, topics: list[str]) -> None:
    rounds = told.rounds()
    while not told.is_ending():
        consumer: Any = KafkaConsumer(
            *topics,
            bootstrap_servers=told.address.split(","),
            group_id=client,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        # Between two updates of its metadata, kafka-python 3.0 raises this error. It drops what it had read,
        # and never reads from that broker again.
        with closing(consumer), suppress(UnknownBrokerIdError):
            for _ in rounds:
                for where, records in consumer.poll(timeout_ms=200).items():
                    for record in records:
                        told.take(where.topic, where.partition, record.value)
                if told.read:
                    consumer.commit()


Programs = Mapping[str, Callable[[Application, str], None]]
PROGRAMS: Programs = {"writes": write, "transacts": write_transactions, "reads": read}


class Applications:
    """Those that run."""

    def __init__(self, address: str, clients: tuple[str, ...], programs: Programs) -> None:
        self._clients = clients
        self._ending = threading.Event()
        self._reading = threading.Event()
        self.all = {
            (client, does): Application(
                f"{client} {does}", address, self._reading if does == "reads" else self._ending
            )
            for client in clients
            for does in programs
        }
        self._threads = {
            key: threading.Thread(
                target=told.run, args=(programs[key[1]], key[0]), name=told.name, daemon=True
            )
            for key, told in self.all.items()
        }

    def start(self) -> None:
        for thread in self._threads.values():
            thread.start()

    def errors(self) -> list[str]:
        return [f"{told.name}: {error}" for told in self.all.values() for error in told.errors]

    async def go_on(self, rounds: int = 5) -> None:
        """Return when each has done so many more rounds, or one has met an error."""
        before = {key: told.acknowledged for key, told in self.all.items()}
        await until(
            lambda: (
                self.errors()
                or all(told.acknowledged >= before[key] + rounds for key, told in self.all.items())
            ),
            5 * DEADLINE_SECONDS,
        )

    async def end(self, address: str) -> None:
        """End them, and check that each got no error, and that all is stored once and read."""
        self._ending.set()
        for (_, does), thread in self._threads.items():
            if does != "reads":
                await asyncio.to_thread(thread.join, DEADLINE_SECONDS)
        written = {
            name(client): self.all[client, does].acknowledged
            for client in self._clients
            for name, does in ((plain, "writes"), (transactional, "transacts"))
        }
        for client in self._clients:
            told = self.all[client, "reads"]
            await until(
                lambda told=told, client=client: (  # type: ignore[misc]
                    told.errors
                    or all(
                        told.read[name, partition] == written[name]
                        for name in (plain(client), transactional(client))
                        for partition in range(PARTITIONS)
                    )
                )
            )
        self.stop()
        assert self.errors() == []
        assert {name: await stored(address, name) for name in written} == {
            name: [list(range(count))] * PARTITIONS for name, count in written.items()
        }

    def stop(self) -> None:
        self._ending.set()
        self._reading.set()
        for key, thread in self._threads.items():
            thread.join(DEADLINE_SECONDS)
            if thread.is_alive():
                self.all[key].errors.append("it does not end")

    def figures(self) -> list[str]:
        return [
            f"{told.name}: {told.acknowledged} rounds, longest {told.longest_seconds:.3f} s, "
            f"read again {told.read_again}, errors {told.errors[:3]}"
            for told in self.all.values()
        ]


async def stored(address: str, topic: str) -> list[list[int]]:
    """The committed numbers of each partition, up to its end."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    async with Consumer(
        bootstrap_servers=address, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        from tidelog.client import TopicPartition as Place

        places = [Place(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for where, records in (await consumer.getmany(timeout_ms=100)).items():
                found[where.partition] += [int(record.value or b"") for record in records]
    return found


async def make_topics(address: str, clients: tuple[str, ...], replicas: int) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics(
            [
                NewTopic(name(client), PARTITIONS, replicas, {})
                for client in clients
                for name in (plain, transactional)
            ]
        )


@contextmanager
def applications(
    address: str, clients: tuple[str, ...] = CLIENTS, programs: Programs = PROGRAMS
) -> Iterator[Applications]:
    """Of these clients, running; ended if the test has not."""
    running = Applications(address, clients, programs)
    running.start()
    try:
        yield running
    finally:
        running.stop()
        print(*running.figures(), sep="\n")
