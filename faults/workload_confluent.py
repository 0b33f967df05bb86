"""confluent-kafka's idempotent producer (librdkafka) as a writer of the fault runner.

Owns what only librdkafka does: some errors are fatal to a producer by design, and the application has to make
another one. Records that the old one had not acknowledged are uncertain, because librdkafka does not say
through Python whether it sent them.
"""

import asyncio
import logging
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as ConfluentProducer

from faults.checker import ACKED_SOMEWHERE, UNCERTAIN, Ledger
from faults.workload import Writer

_POLL_S: Final = 0.005
_LAST_POLLS_S: Final = 1.0
_logger = logging.getLogger("librdkafka")


class ConfluentWriter(Writer):
    """`settings` are librdkafka's properties."""

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
            self.is_broken = self.is_broken or error.args[0].code() == KafkaError._FATAL
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
