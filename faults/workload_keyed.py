"""A writer to a compacted topic, and the reading of what is left of it.

Owns the settings of such topics, which are cleaned all the time, so that kills happen during a clean. Of the
trimmed one records are deleted whenever it is cleaned, so that the cleaner reads segments that go; any key of
it may be missing.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from faults.latest_values import Version, is_tombstone, key_of
from faults.process import BrokerProcess
from faults.readback import read_to_end
from faults.wire import Wire
from faults.workload import TidelogWriter
from tidelog.client import ConsumerRecord, Delivery

COMPACTED_TOPIC: Final = "compacted"
TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.bytes": "4096",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "300",
}
TRIMMED_TOPIC: Final = "compacted-trimmed"
TRIMMED_CONFIGS: Final[Mapping[str, str]] = {
    **TOPIC_CONFIGS,
    "cleanup.policy": "compact,delete",
    "retention.bytes": "12288",
}
BROKER_SETTINGS: Final[Mapping[str, object]] = {
    "log.cleaner.backoff.ms": 20,
    "log.retention.check.interval.ms": 20,
    "log.cleaner.io.max.bytes.per.second": 100_000,
}
_HEADER: Final = "counter"
_LOOK_S: Final = 0.005
_ANSWER_S: Final = 2.0
_EVERYTHING: Final = -1


class KeyedWriter(TidelogWriter):
    """Sends new values of the same keys again and again, and deletes some."""

    async def hand_over(self, partition: int, counter: int, key: bytes, value: bytes) -> Delivery:
        return await self._producer.send(
            self.job.topic,
            None if is_tombstone(counter) else value,
            key_of(self.ledger.writer, counter),
            partition,
            headers=((_HEADER, b"%d" % counter),),
        )


async def read_compacted(
    bootstrap_servers: str, partitions: int, timeout_s: float, topic: str = COMPACTED_TOPIC
) -> dict[int, list[Version]]:
    """All records that are left up to the present end. Raises ClientError, TimeoutError."""
    logs: dict[int, list[Version]] = {partition: [] for partition in range(partitions)}
    async with asyncio.timeout(timeout_s):
        async for found in read_to_end(bootstrap_servers, topic, partitions):
            for key, records in found.items():
                logs[key.partition] += map(_version, records)
    return logs


def _version(record: ConsumerRecord) -> Version:
    writer = record.key.partition(b"/")[0] if isinstance(record.key, bytes) else b""
    counter = dict(record.headers).get(_HEADER) or b""
    return Version(record.offset, _number(writer), _number(counter), record.value is None)


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else -1


async def trim_while_cleaned(broker: BrokerProcess, topic: str, trimmed: Counter[int]) -> None:
    """Until it is cancelled, also while no broker runs. `trimmed` counts the requests per partition."""
    while True:
        # What a clean writes has this name until it replaces the segments that are read.
        written = broker.data_dir.glob(f"{topic}-*/*.log.cleaned")
        partitions = {int(path.parent.name.rpartition("-")[2]) for path in written}
        if partitions:
            with suppress(OSError, EOFError):
                async with asyncio.timeout(_ANSWER_S), Wire.connected(broker.port, broker.host) as wire:
                    await wire.delete_records(topic, dict.fromkeys(partitions, _EVERYTHING))
                    trimmed.update(partitions)
        await asyncio.sleep(_LOOK_S)
