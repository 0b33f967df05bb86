"""Writers with the idempotent producers of aiokafka, confluent-kafka and kafka-python.

Owns how each client is used, and what its errors mean for the records and for the producer.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonError

from faults.checker import ACKED_SOMEWHERE, UNCERTAIN, Ledger
from faults.workload import Writer

_RETRY_S: Final = 0.05
_CLOSING_S: Final = 1.0
_BLOCK_MS: Final = 100
_POLL_S: Final = 0.005
_LAST_POLLS_S: Final = 1.0
_logger = logging.getLogger("librdkafka")


class AiokafkaWriter(Writer):
    """aiokafka's idempotent producer; `settings` are its keyword arguments. Records that end with an error
    are uncertain, because it does not say whether it sent them."""

    async def open(self) -> None:
        self.is_broken = False
        self._open: set[asyncio.Future[Any]] = set()
        while True:
            servers = {"bootstrap_servers": self.job.bootstrap_servers, "client_id": self.name}
            producer = AIOKafkaProducer(enable_idempotence=True, **servers, **self.settings)
            try:
                await producer.start()
                break
            except AioError:
                self.job.count(f"{self.name}: start tried again")
                await producer.stop()
                await asyncio.sleep(_RETRY_S)
        self._producer = producer

    async def send(self, partition: int, counter: int, key: bytes, value: bytes) -> bool:
        try:
            future = await self._producer.send(self.job.topic, value, key, partition)
        except asyncio.CancelledError:
            self.ledger.taken_back(partition)
            raise
        except AioError as error:
            self.job.count(f"{self.name}: send raised {type(error).__name__}")
            return False
        self._open.add(future)
        future.add_done_callback(partial(self._on_outcome, self.ledger, partition, counter))
        return True

    async def flush(self) -> None:
        while self._open:
            await asyncio.wait(self._open)

    async def abandon(self) -> None:
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self._producer.stop()
        except TimeoutError:
            self.job.count(f"{self.name}: not closed in time")

    def _on_outcome(
        self, ledger: Ledger, partition: int, counter: int, future: "asyncio.Future[Any]"
    ) -> None:
        self._open.discard(future)
        if future.cancelled() or future.exception() is not None:
            name = "cancelled" if future.cancelled() else type(future.exception()).__name__
            self.job.count(f"{self.name}: record ended with {name}")
            # After an error its sequence numbers may have a gap, which no later record passes.
            self.is_broken = True
            fate = UNCERTAIN
        else:
            fate = future.result().offset
        ledger.record_outcome(partition, counter, fate)


class ConfluentWriter(Writer):
    """librdkafka's idempotent producer; `settings` are its properties.

    Some errors are fatal to a producer by design, and the application has to make another one. Records that
    the old one had not acknowledged are uncertain, because librdkafka does not say through Python whether it
    sent them.
    """

    async def open(self) -> None:
        self.is_broken = False
        self._producer: Any = ConfluentProducer(
            {
                "bootstrap.servers": self.job.bootstrap_servers,
                "client.id": self.name,
                "enable.idempotence": True,
                "acks": "all",
                "log_level": 7 if _logger.isEnabledFor(logging.DEBUG) else 4,
                **self.settings,
            },
            logger=_logger,
        )
        self._drained = asyncio.Event()
        self._polling = asyncio.create_task(self._poll())

    async def send(self, partition: int, counter: int, key: bytes, value: bytes) -> bool:
        on_delivery = partial(self._on_delivery, self.ledger, partition, counter)
        try:
            self._producer.produce(self.job.topic, value, key, partition, on_delivery=on_delivery)
        except BufferError:
            return False
        except KafkaException as error:
            self.job.count(f"{self.name}: produce raised {error.args[0].name()}")
            self.is_broken = self.is_broken or error.args[0].code() == ConfluentError._FATAL
            return False
        return True

    async def flush(self) -> None:
        self._drained.clear()
        if self._producer is not None:
            await self._drained.wait()

    async def abandon(self) -> None:
        """Purge, and run the callbacks."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        loop = asyncio.get_running_loop()
        try:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
            producer.purge()
            deadline = loop.time() + _LAST_POLLS_S
            while len(producer) and loop.time() < deadline:
                self._serve(producer)
                await asyncio.sleep(_POLL_S)
        finally:
            # Also if the writer is stopped meanwhile: nothing more is heard of this producer.
            if self.is_broken:
                self.ledger.close()
        # Its destructor joins librdkafka's threads, which may wait for their sockets.
        held = [producer]
        del producer
        await asyncio.to_thread(held.clear)

    async def _poll(self) -> None:
        while True:
            self._serve(self._producer)
            if self.is_broken or not len(self._producer):
                self._drained.set()
            await asyncio.sleep(_POLL_S)

    def _serve(self, producer: Any) -> None:
        try:
            producer.poll(0)
        except KafkaException as error:
            # A fatal error comes this way only, once.
            self.job.count(f"{self.name}: fatal {error.args[0].name()}")
            self.is_broken = True

    def _on_delivery(self, ledger: Ledger, partition: int, counter: int, error: Any, message: Any) -> None:
        if error is not None:
            self.job.count(f"{self.name}: record ended with {error.name()}")
            fate = UNCERTAIN
        else:
            offset = message.offset()
            fate = offset if offset is not None and offset >= 0 else ACKED_SOMEWHERE
        ledger.record_outcome(partition, counter, fate)


class KafkaPythonWriter(Writer):
    """kafka-python's idempotent producer, whose own thread reports outcomes; `settings` are its keyword
    arguments."""

    async def open(self) -> None:
        self.is_broken = False
        self._open_count = 0
        self._drained = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        servers = {"bootstrap_servers": self.job.bootstrap_servers.split(","), "client_id": self.name}
        while True:
            try:
                self._producer: Any = await asyncio.to_thread(
                    KafkaProducer, max_block_ms=_BLOCK_MS, **servers, **self.settings
                )
                return
            except PythonError:
                self.job.count(f"{self.name}: start tried again")
                await asyncio.sleep(_RETRY_S)

    async def send(self, partition: int, counter: int, key: bytes, value: bytes) -> bool:
        try:
            future = self._producer.send(self.job.topic, value, key, partition=partition)
        except PythonError as error:
            self.job.count(f"{self.name}: send raised {type(error).__name__}")
            return False
        self._open_count += 1
        ledger = self.ledger

        def report(fate: int, error: str) -> None:
            self._loop.call_soon_threadsafe(self._report, ledger, partition, counter, fate, error)

        future.add_callback(lambda found: report(found.offset, ""))
        future.add_errback(lambda error: report(UNCERTAIN, type(error).__name__))
        return True

    async def flush(self) -> None:
        while self._open_count:
            self._drained.clear()
            await self._drained.wait()

    async def abandon(self) -> None:
        with suppress(PythonError):  # It could not send everything.
            await asyncio.to_thread(self._producer.close, timeout=_CLOSING_S)

    def _report(self, ledger: Ledger, partition: int, counter: int, fate: int, error: str) -> None:
        if error:
            self.job.count(f"{self.name}: record ended with {error}")
            # A producer that had a fatal error takes nothing more.
            self.is_broken = True
        ledger.record_outcome(partition, counter, fate)
        self._open_count -= ledger is self.ledger
        self._drained.set()
