"""The producers that are compared, set up alike: idempotent, acks=all, no linger, nothing compressed.

Without a batch size each has its own: Tidelog's client 256 KB, aiokafka and kafka-python 16 KB, AIOProducer
(librdkafka) 1 MB, with which it is several times faster than with 16 KB.

For each record, a load calls the client's own method, not a wrapper of ours, so that no client is slower
because of the comparison. All asynchronous ones run on uvloop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.wire import HOST

SMALL_BATCH_BYTES = 16_384
CLIENTS = ("tidelog", "aiokafka", "kafka-python", "AIOProducer")
_REQUEST_BYTES = 1 << 20
_QUEUE_MESSAGES = 10_000_000
_QUEUE_KILOBYTES = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What a load may vary: most bytes of a batch, how long one waits for more, memory for unsent records.
    None: the client's own default."""

    batch_bytes: int | None = None
    linger_ms: int = 0
    buffer_bytes: int | None = None

    def batch_size(self, name: str) -> dict[str, Any]:
        """The client's setting of this name, where it is to have another value than by default."""
        return {} if self.batch_bytes is None else {name: self.batch_bytes}


@dataclass(frozen=True)
class Sending:
    """A producer that is connected. `send(topic, value)` is to be awaited where `is_async`."""

    send: Callable[..., Any]
    flush: Callable[[], Awaitable[Any]]
    close: Callable[[], Awaitable[Any]]
    is_async: bool = True


async def open_producer(name: str, port: int, settings: Settings) -> Sending:
    """Connect the client of this name (see CLIENTS) to 127.0.0.1:`port`."""
    opener = {
        "tidelog": _tidelog,
        "aiokafka": _aiokafka,
        "kafka-python": _kafka_python,
        "AIOProducer": _aio_producer,
    }[name]
    return await opener(f"{HOST}:{port}", settings)


async def _tidelog(servers: str, settings: Settings) -> Sending:
    from tidelog.client import Producer

    memory: dict[str, Any] = {}
    if settings.buffer_bytes is not None:
        memory = {"buffer_memory": settings.buffer_bytes}
    producer = Producer(
        bootstrap_servers=servers,
        linger_ms=settings.linger_ms,
        max_request_size=max(settings.batch_bytes or 0, _REQUEST_BYTES),
        **memory,
        **settings.batch_size("max_batch_size"),
    )
    await producer.start()
    return Sending(producer.send, producer.flush, producer.stop)


async def _aiokafka(servers: str, settings: Settings) -> Sending:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        linger_ms=settings.linger_ms,
        **settings.batch_size("max_batch_size"),
    )
    await producer.start()
    return Sending(producer.send, producer.flush, producer.stop)


async def _kafka_python(servers: str, settings: Settings) -> Sending:
    from kafka import KafkaProducer

    producer = await asyncio.to_thread(
        KafkaProducer,
        bootstrap_servers=servers,
        enable_idempotence=True,
        acks="all",
        linger_ms=settings.linger_ms,
        **settings.batch_size("batch_size"),
    )

    async def flush() -> None:
        producer.flush()

    async def close() -> None:
        producer.close()

    return Sending(producer.send, flush, close, is_async=False)


async def _aio_producer(servers: str, settings: Settings) -> Sending:
    from confluent_kafka.aio import AIOProducer

    producer = AIOProducer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": settings.linger_ms,
            "queue.buffering.max.messages": _QUEUE_MESSAGES,
            "queue.buffering.max.kbytes": _QUEUE_KILOBYTES,
            "log_level": 0,
            **settings.batch_size("batch.size"),
        }
    )
    return Sending(producer.produce, producer.flush, producer.close)
