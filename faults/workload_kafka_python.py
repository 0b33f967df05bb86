"""kafka-python's idempotent producer as a writer of the fault runner. Its own thread reports outcomes."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from kafka import KafkaProducer
from kafka.errors import KafkaError

from faults.checker import UNCERTAIN, Ledger
from faults.workload import Writer

_RETRY_S: Final = 0.05
_CLOSING_S: Final = 1.0
_BLOCK_MS: Final = 100


class KafkaPythonWriter(Writer):
    """`settings` are its keyword arguments."""

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
            except KafkaError:
                self.job.count(f"{self.name}: start tried again")
                await asyncio.sleep(_RETRY_S)

    async def send(self, partition: int, counter: int, key: bytes, value: bytes) -> bool:
        try:
            future = self._producer.send(self.job.topic, value, key, partition=partition)
        except KafkaError as error:
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
        with suppress(KafkaError):  # It could not send everything.
            await asyncio.to_thread(self._producer.close, timeout=_CLOSING_S)

    def _report(self, ledger: Ledger, partition: int, counter: int, fate: int, error: str) -> None:
        if error:
            self.job.count(f"{self.name}: record ended with {error}")
            # A producer that had a fatal error takes nothing more.
            self.is_broken = True
        ledger.record_outcome(partition, counter, fate)
        self._open_count -= ledger is self.ledger
        self._drained.set()
