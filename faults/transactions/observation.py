"""What is visible of transactions: the ends of the logs while they move, and the committed records.

Owns the readers of this trial, which return facts for `checker`. `committed_in_files` reads the segment files
of a stopped broker with `protocol` alone, by the markers, without the broker's code.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from faults.checker import Stored
from faults.foreign_readers import READERS, Reading
from faults.readback import COMMITTED, Follower, read_all, segment_files
from faults.site import Node, Site
from faults.transactions.client import Job
from faults.transactions.history import PARTITIONS, PLACES, Ends, Place, output_of
from faults.wire import Wire
from tidelog.client import ClientError, Consumer, TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import decode_batch, iter_batches, read_marker

READ_COMMITTED: Final = 1
_LOOK_S: Final = 0.02
_ASK_S: Final = 0.5
_ANSWER_S: Final = 10.0
_RETRY_S: Final = 0.05
_READ_AGAIN_S: Final = 1.0
Logs = dict[Place, list[Stored]]


class EndsWatcher:
    """Looks at the ends of all places again and again, through all starts of the brokers."""

    def __init__(self, site: Site) -> None:
        self.ends: dict[str, list[Ends]] = defaultdict(list)
        """By place; of replicas by place, broker and start: each follows the end of its leader late."""
        self._latest: dict[Place, Ends] = {}
        self._looks: Counter[Place] = Counter()
        self._site = site
        self._watching = [asyncio.create_task(self._watch(node)) for node in site.nodes]

    async def stop(self) -> None:
        for each in self._watching:
            each.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    @property
    def is_stable(self) -> bool:
        """Whether no transaction was open in the last look."""
        return all(
            place in self._latest and self._latest[place].last_stable == self._latest[place].high_watermark
            for place in PLACES
        )

    async def look_again(self) -> None:
        """Return after a look that began later than this call."""
        seen = {place: self._looks[place] for place in PLACES}
        while any(self._looks[place] < count + 2 for place, count in seen.items()):
            for each in self._watching:
                if each.done():
                    each.result()
            await asyncio.sleep(_LOOK_S)

    async def _watch(self, node: Node) -> None:
        replicated = self._site.replicas > 1
        while True:
            try:
                async with Wire.connected(node.broker.port, node.broker.host) as wire:
                    while True:
                        async with asyncio.timeout(_ANSWER_S):
                            for place in PLACES:
                                of = f", {node.broker.host} {node.broker.starts}" if replicated else ""
                                await self._look(wire, place, f"{place}{of}")
                        await asyncio.sleep(_LOOK_S)
            except (OSError, EOFError, TimeoutError):
                await asyncio.sleep(_RETRY_S)

    async def _look(self, wire: Wire, place: Place, name: str) -> None:
        # A Fetch at the end answers no record, and both ends as of one moment.
        offset = self.ends[name][-1].high_watermark if self.ends[name] else 0
        found = await wire.read(*place, offset, 1, READ_COMMITTED)
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # The end went back.
            found = await wire.read(*place, 0, 1, READ_COMMITTED)
        if not found.error_code:
            self._latest[place] = Ends(found.last_stable_offset, found.high_watermark)
            self._looks[place] += 1
            self.ends[name].append(self._latest[place])


class PositionsWatcher:
    """Asks again and again which offsets the groups have committed, through all starts of the brokers."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.positions: dict[int, list[int]] = defaultdict(list)
        self._jobs = jobs
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            with suppress(ClientError):
                for partition, position in (await committed_positions(self._jobs)).items():
                    self.positions[partition].append(position)
            await asyncio.sleep(_ASK_S)


class CommittedFollowers:
    """Our consumer on each topic, at read_committed, through all faults."""

    def __init__(self, address: str, client_rack: str | None = None) -> None:
        self._of_topic = {
            topic: Follower(address, topic, count, output_of, COMMITTED, client_rack)
            for topic, count in PARTITIONS.items()
        }
        for follower in self._of_topic.values():
            follower.start()

    async def stop(self, at_end_of: Logs | None = None) -> None:
        """Stop; with `at_end_of` only once they have read as far. Raises ClientError if one broke."""
        for topic, follower in self._of_topic.items():
            of_topic = None
            if at_end_of is not None:
                of_topic = {place.partition: log for place, log in at_end_of.items() if place.topic == topic}
            await follower.stop(of_topic)

    @property
    def logs(self) -> Logs:
        return {
            Place(topic, index): log
            for topic, follower in self._of_topic.items()
            for index, log in follower.logs.items()
        }


class ForeignReads:
    """Other projects' clients read again and again, through all faults, what `followers` have of one topic,
    from its begin on. `logs` has what each read that succeeded found, by its name."""

    def __init__(self, address: str, followers: CommittedFollowers, rng: random.Random) -> None:
        self.logs: dict[str, Logs] = {}
        self._address = address
        self._followers = followers
        self._rng = rng
        self._reading = asyncio.create_task(self._read_on())

    async def stop(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(_READ_AGAIN_S)
            topic, client = self._rng.choice(list(PARTITIONS)), self._rng.choice(list(READERS))
            bounds = {
                place.partition: (log[0].offset, log[-1].offset + 1)
                for place, log in self._followers.logs.items()
                if place.topic == topic and log
            }
            if not bounds:
                continue
            wanted = Reading(self._address, topic, bounds, _ANSWER_S, output_of, COMMITTED)
            # Whatever a library raises while brokers are down.
            with suppress(Exception):
                found = await READERS[client](wanted)
                name = f"{client}, read {len(self.logs)}"
                self.logs[name] = {Place(topic, index): log for index, log in found.items()}


async def read_committed(address: str, timeout_s: float) -> Logs:
    """What our consumer finds of all places now. Raises ClientError, TimeoutError."""
    logs: Logs = {}
    for topic, count in PARTITIONS.items():
        found = await read_all(address, topic, count, timeout_s, output_of, COMMITTED)
        logs |= {Place(topic, index): log for index, log in found.items()}
    return logs


async def committed_positions(jobs: Sequence[Job]) -> dict[int, int]:
    """Input partition -> the offset that its group has committed, 0 if none. Raises ClientError."""
    positions: dict[int, int] = {}
    for job in jobs:
        async with Consumer(
            bootstrap_servers=job.address, group_id=job.group, isolation_level=COMMITTED
        ) as consumer:
            for partition in job.partitions:
                key = TopicPartition(job.input_topic, partition)
                positions[partition] = await consumer.committed(key) or 0
    return positions


def committed_in_files(data_dir: Path, place: Place) -> list[Stored]:
    """The records of one partition whose producers' markers commit them, by offset. Blocking; raises
    ProtocolError."""
    pending: Mapping[int, list[Stored]] = defaultdict(list)
    committed: list[Stored] = []
    for path in segment_files(data_dir, *place):
        data = path.read_bytes()
        for position, header in iter_batches(data):
            waiting = pending[header.producer_id]
            if not header.is_control:
                records = decode_batch(data, position)
                waiting += [Stored(each.offset, output_of(each.key, each.value)) for each in records]
                continue
            if read_marker(data, position).is_commit:
                committed += waiting
            waiting.clear()
    return sorted(committed, key=lambda stored: stored.offset)
