"""What a broker on a damaged folder shows of one partition, to a reader and to the producers that wrote it.

Owns the questions: ends, every offset in order, offsets by time, the last batches sent again, a new batch,
and reading all of that once more. Of a topic with transactions: what is committed, and nothing is sent.
"""

import random
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from faults.damage.sample import PRODUCERS, TRANSACTIONAL, Sample, SentBatch, TopicPartition, batch_of
from faults.wire import Wire, records_of
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import AbortedTransactions, batch_crc_is_valid, iter_batches

_RESENT: Final = 5
_TIMES: Final = 3
_JUMPS: Final = 4
_PIECE_BYTES: Final = 1500
"""Small, so that a fetch begins at every segment and within many."""


class Served(NamedTuple):
    """A batch that came, and the offset that was asked for. `content` is None when its CRC is wrong."""

    asked: int
    offset: int
    end_offset: int
    content: bytes | None


class Told(NamedTuple):
    """The answer to a batch that was sent."""

    batch: SentBatch
    code: int
    offset: int


@dataclass
class Shown:
    """What a broker showed of one partition: its ends, its records, and its answers to producers."""

    code: int = 0
    """Error code of ListOffsets: then nothing else was asked but whether it takes batches."""
    start: int = -1
    end: int = -1
    served: list[Served] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)
    """Offset -> error code of a fetch there."""
    silent: list[int] = field(default_factory=list)
    """Offsets below the end at which a fetch gave neither a record nor an error."""
    times: list[tuple[int, int, int]] = field(default_factory=list)
    """Timestamp, error code and offset that ListOffsets answered."""
    resent: list[Told] = field(default_factory=list)
    new: Told | None = None
    committed: list[Served] = field(default_factory=list)
    """What a reader of committed records keeps, of a topic with transactions."""
    served_after: list[Served] = field(default_factory=list)
    """What was served from the first resent batch on, once all of that was answered."""


async def look(wire: Wire, sample: Sample, key: TopicPartition, rng: random.Random) -> Shown:
    """Ask everything. Raises what `Wire` raises."""
    shown = Shown()
    shown.code, shown.start, shown.end = await wire.ends(*key)
    batches = sample.batches[key]
    if not shown.code:
        await _read(wire, key, shown.start, shown.end, batches, shown)
        for batch in rng.sample(batches, _JUMPS):
            if shown.start <= batch.offset < shown.end:
                await _fetch(wire, key, rng.randrange(batch.offset, batch.end_offset), shown)
        if key[0] == TRANSACTIONAL:
            await _read_committed(wire, key, shown)
            return shown
        for batch in rng.sample(batches, _TIMES):
            shown.times.append((batch.max_timestamp, *await wire.offset_at(*key, batch.max_timestamp)))
    if key[0] != TRANSACTIONAL:
        await _produce(wire, key, batches, rng, shown)
    return shown


async def _read(
    wire: Wire, key: TopicPartition, start: int, end: int, batches: list[SentBatch], shown: Shown
) -> None:
    """Everything from `start` to `end`. After an error or no answer it continues at the next batch."""
    offset = start
    while offset < end:
        found = await _fetch(wire, key, offset, shown)
        if found is None:
            offset = next((batch.offset for batch in batches if batch.offset > offset), end)
        else:
            offset = found


async def _fetch(wire: Wire, key: TopicPartition, offset: int, shown: Shown) -> int | None:
    """Fetch once. Returns the offset after the batches, None if there were none."""
    result = await wire.read(*key, offset, _PIECE_BYTES)
    if result.error_code:
        shown.refused[offset] = int(result.error_code)
        return None
    served = _batches(records_of(result), offset)
    if not served:
        shown.silent.append(offset)
        return None
    shown.served += served
    return max(served[-1].end_offset, offset + 1)


async def _read_committed(wire: Wire, key: TopicPartition, shown: Shown) -> None:
    """What is committed, from the start up to the last stable offset; an error passes over one offset."""
    asked, stable = shown.start, shown.end
    while asked < stable:
        result = await wire.read(*key, asked, _PIECE_BYTES, isolation_level=1)
        data, offset = records_of(result), asked + 1
        if not result.error_code:
            stable = min(stable, result.last_stable_offset)
            hidden = AbortedTransactions(result.aborted_transactions or ())
            for position, header in iter_batches(data):
                offset = header.last_offset + 1
                if not hidden.hides(data, position, header) and not header.is_control:
                    content = data[position + 16 : position + header.size_bytes]
                    shown.committed.append(Served(asked, header.base_offset, offset, content))
        asked = offset


def _batches(data: bytes, asked: int) -> list[Served]:
    """The whole batches of an answer; each but the first was asked for at the end of the one before it."""
    served: list[Served] = []
    try:
        for position, header in iter_batches(data):
            is_good = batch_crc_is_valid(data, header, position)
            content = data[position + 16 : position + header.size_bytes] if is_good else None
            served.append(Served(asked, header.base_offset, header.last_offset + 1, content))
            asked = header.last_offset + 1
    except ProtocolError:
        served.append(Served(asked, asked, asked + 1, None))
    return served


async def _produce(
    wire: Wire, key: TopicPartition, batches: list[SentBatch], rng: random.Random, shown: Shown
) -> None:
    """Each producer sends its last batches again, as after lost answers; then one of them a new batch."""
    topic, partition = key
    by_producer: dict[int, list[SentBatch]] = {}
    for batch in batches:
        by_producer.setdefault(batch.producer_id, []).append(batch)
    lowest = batches[-1].end_offset
    for own in by_producer.values():
        for batch in own[-rng.randint(1, _RESENT) :]:
            result = (await wire.append(topic, {partition: batch.data}))[partition]
            shown.resent.append(Told(batch, int(result.error_code), int(result.base_offset)))
            lowest = min(lowest, batch.offset)
    last = batches[-1]
    first_sequence = max(batch.base_sequence + batch.record_count for batch in by_producer[last.producer_id])
    writer = sorted(by_producer).index(last.producer_id) % PRODUCERS
    new = batch_of(last.producer_id, writer, partition, first_sequence, 2, last.max_timestamp + 1)
    result = (await wire.append(topic, {partition: new.data}))[partition]
    shown.new = Told(new, int(result.error_code), int(result.base_offset))
    if shown.code:
        return
    code, start, end = await wire.ends(*key)
    if not code:
        after = Shown()
        await _read(wire, key, max(start, min(lowest, shown.end)), end, batches, after)
        shown.served_after = after.served
