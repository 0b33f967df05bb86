"""aiokafka's idempotent producer as a writer of the fault runner.

Records that end with an error are uncertain, because it does not say whether it sent them.
"""

import asyncio
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from faults.checker import UNCERTAIN, Ledger
from faults.workload import Writer

_RETRY_S = 0.05
_CLOSING_S = 1.0


class AiokafkaWriter(Writer):
    """`settings` are its keyword arguments."""

    async def open(self) -> None:
        self.is_broken = False
        self._open: set[asyncio.Future[Any]] = set()
        while True:
            servers = {"bootstrap_servers": self.job.bootstrap_servers, "client_id": self.name}
            producer = AIOKafkaProducer(enable_idempotence=True, **servers, **self.settings)
            try:
                await producer.start()
                break
            except KafkaError:
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
        except KafkaError as error:
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
