"""Deletes records of a compacted topic whenever it is cleaned, so that the cleaner reads segments that go."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

from faults.process import BrokerProcess
from faults.wire import Wire

_LOOK_S: Final = 0.005
_ANSWER_S: Final = 2.0
_EVERYTHING: Final = -1


async def trim_while_cleaned(broker: BrokerProcess, topic: str, trimmed: Counter[int]) -> None:
    """Go on until it is cancelled, also while no broker runs. `trimmed` counts the requests per partition."""
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
