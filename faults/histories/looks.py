"""Asks for the ends of partitions while they are written: a stale answer breaks a promise.

Owns the order of the two observations: what was acknowledged is known before the end is asked for.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from faults.checker import Ledger
from faults.histories.record_rules import Look
from tidelog.client import ClientError, Consumer, TopicPartition

_LOOK_S: Final = 0.1


class EndLooks:
    """Looks until `stop`, through all faults; `looks` has what came of it."""

    def __init__(self, address: str, topic: str, partitions: int, ledgers: Sequence[Ledger]) -> None:
        self.looks: list[Look] = []
        self._keys = [TopicPartition(topic, each) for each in range(partitions)]
        self._ledgers = ledgers
        self._looking = asyncio.create_task(self._look_on(address))

    async def stop(self) -> None:
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_on(self, address: str) -> None:
        while True:
            with suppress(ClientError):
                async with Consumer(bootstrap_servers=address, request_timeout_ms=1200) as consumer:
                    while True:
                        await self._look(consumer)
            await asyncio.sleep(_LOOK_S)

    async def _look(self, consumer: Consumer) -> None:
        acknowledged = [
            max((each.acknowledged_ends.get(key.partition, 0) for each in self._ledgers), default=0)
            for key in self._keys
        ]
        with suppress(ClientError):
            ends = await consumer.end_offsets(self._keys)
            self.looks += [
                Look(key.partition, before, ends[key])
                for key, before in zip(self._keys, acknowledged, strict=True)
            ]
        await asyncio.sleep(_LOOK_S)
