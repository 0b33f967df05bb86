"""The inspection of all batches of a request before the first of them is appended.

Owns where it happens: on the loop while an `Effort` is enough, else in a thread, for one request at a time,
so that decompressed data stays bounded. The rules are in `storage.recompression` and below it.
"""

import asyncio
from typing import Final

from tidelog.broker.services import Services
from tidelog.broker.storage.batch_inspection import Effort, ThreadEffort, TooMuchError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.recompression import Inspected, Recompressed, inspect_to_store
from tidelog.protocol.errors import ApiError, ProtocolError, again
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.records import DEFAULT_MAX_DECOMPRESSED_BYTES, LOG_OVERHEAD, read_batch_header
from tidelog.protocol.steps import Pace, Steps, finish
from tidelog.protocol.types import Buffer

Verdict = Inspected | ApiError | None
RECORD_BYTES_PER_ELEMENT: Final = 8 * 1024
"""Bytes of records that count as one element of a step (see `protocol.steps`)."""


class BatchInspection:
    """Inspects the batches of requests for one handler, on the loop or in a thread."""

    def __init__(self, services: Services) -> None:
        self._replicas = services.replicas
        self._turns = services.turns
        self._thread = asyncio.Lock()
        self._memory = services.memory

    def of_all(self, request: ProduceRequest, effort: Effort | None) -> Steps[list[Verdict]]:
        """The verdict for each batch, in their order. Raises TooMuchError."""
        pace = Pace()
        verdicts: list[Verdict] = []
        in_thread = effort if isinstance(effort, ThreadEffort) else None
        for topic, partitions in request.topics:
            for index, batch in partitions:
                verdict = self._inspected(topic, index, batch, effort)
                verdicts.append(verdict)
                if in_thread is not None:
                    in_thread.inspected(len(verdict.batch) if isinstance(verdict, Recompressed) else 0)
                if pace.spent(1 + len(batch or b"") // RECORD_BYTES_PER_ELEMENT):
                    yield
            if pace.spent():
                yield
        return verdicts

    async def later(self, request: ProduceRequest, *, in_a_thread: bool) -> list[Verdict]:
        """`of_all` without a limit: in a thread, unless it may begin on the loop and needs no thread."""
        if not in_a_thread:
            try:
                return await self._turns.run(self.of_all(request, Effort()))
            except TooMuchError:
                pass

        memory = self._memory
        async with self._thread:
            effort = ThreadEffort(min(DEFAULT_MAX_DECOMPRESSED_BYTES, memory.decompressed_most_bytes))
            memory.decompressed_bytes = effort.held_bytes
            try:
                return await asyncio.to_thread(finish, self.of_all(request, effort))
            finally:
                memory.decompressed_bytes = int

    def _inspected(self, topic: str, index: int, batch: Buffer | None, effort: Effort | None) -> Verdict:
        """The result of `inspect_to_store`, None if nothing is to be inspected. Raises TooMuchError."""
        replica = self._replicas.get((topic, index))
        return None if batch is None or replica is None else _inspected(batch, replica.log.config, effort)


def _inspected(batch: Buffer, config: LogConfig, effort: Effort | None) -> Verdict:
    """`inspect_to_store`, but a refusal is returned; None if there is no batch. Raises TooMuchError."""
    try:
        header = read_batch_header(batch)
        if header.batch_length + LOG_OVERHEAD == len(batch):
            return inspect_to_store(batch, header, config, effort)
    except ApiError as error:
        return again(error)
    except ProtocolError:
        pass
    return None
