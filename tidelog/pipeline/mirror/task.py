"""One task of a mirror: its input is rows with their source positions; it stores or skips each row.

Owns the order in which a source partition's rows may come, the search for the last stored row in each
destination partition, and the producers that continue from there, one per source partition.

Invariants: a row at or before the last stored row is skipped. The next row gets the next sequence number. No
row is left out. Whatever would break this raises MirrorError before the row is sent.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.client import ClientError, ProducerSession, SessionPartition, TopicPartition
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.errors import is_fenced
from tidelog.pipeline.arrow import arrays
from tidelog.pipeline.arrow.encoding import RecordColumns, encode
from tidelog.pipeline.arrow.vectors import Integers
from tidelog.pipeline.mirror import session_folder
from tidelog.pipeline.mirror.tail import SOURCE_HEADER, find_tail, source_headers
from tidelog.pipeline.offsets import OptionError, Place
from tidelog.pipeline.options.sink import SinkOptions
from tidelog.pipeline.sink.rows import SinkRows, chunks, dictionary, flat, groups, read_rows
from tidelog.pipeline.sink.sending import BatchSender, LoopThread, make_producer
from tidelog.wire.cluster import Cluster

# Source partitions whose producers are open at the same time. In a task they follow one another.
_MOST_OPEN = 16


class TaskPlace(NamedTuple):
    """Identifies a task: its write, query and run, and its batch if it belongs to a stream."""

    write_id: str
    query: str
    run: str
    batch_id: int | None
    task: int


class MirroredRows(NamedTuple):
    """What a task did. `sources` holds the new position of each of its source partitions."""

    sources: dict[Place, session_folder.SourceFacts]
    read: int
    written: int
    skipped: int


def check_order(source: Place, offsets: Integers, before: int | None, *, allows_gaps: bool) -> None:
    """Raises MirrorError unless the offsets increase and start after `before` (None: anywhere). If gaps are
    not allowed, each must be one more than the last."""
    if before is not None:
        offsets = np.concatenate([[before], offsets])
    steps = np.diff(offsets)
    wrong = np.flatnonzero(steps < 1 if allows_gaps else steps != 1)
    if not wrong.size:
        return
    first, second = int(offsets[wrong[0]]), int(offsets[wrong[0] + 1])
    if second <= first:
        raise session_folder.MirrorError(
            f"offset {second} of {source} comes after {first} in one task: rows of a source partition must"
            " keep its order. Do not repartition, sort, join or union between source and sink"
        )
    raise session_folder.MirrorError(
        f"offset {second} of {source} follows {first}: rows between them are missing. If a filter or the"
        " topic itself leaves them out, and one task reads each source partition, set option"
        " mirror.gaps=allow"
    )


def mirror_rows(
    options: SinkOptions, session: session_folder.MirrorSession, place: TaskPlace, batches: Iterable[Any]
) -> MirroredRows:
    """Store the rows of Arrow batches. Raises MirrorError, OptionError, ClientError."""
    with LoopThread() as loop:
        task = _Task(options, session, place, loop)
        try:
            for table in chunks(batches):
                task.write(table)
            return task.finish()
        except ClientError as error:
            if not is_fenced(error):
                raise
            raise session_folder.MirrorError(
                f"another driver runs this query: it has continued with the session in {session.path}. Every"
                " row is stored once. Let one driver run: stop the others, then start the query again"
            ) from error
        finally:
            task.close()


class _Source:
    """One source partition in this task, and the destination partitions of its rows."""

    def __init__(
        self, place: Place, first_offset: int, producer_id: int, known: session_folder.SourceFacts | None
    ) -> None:
        self.place = place
        self.first_offset = first_offset
        self.producer_id = producer_id
        self.producer_epoch = known.producer_epoch if known else 0
        self.last_offset: int | None = None
        self.places: dict[TopicPartition, session_folder.StoredPlace] = dict(known.places) if known else {}
        # For the destinations that were looked up: the last offset stored or sent there, and the sender.
        self.stored: dict[TopicPartition, int] = {}
        self.senders: dict[TopicPartition, BatchSender] = {}

    def facts(self) -> session_folder.SourceFacts:
        epochs = [each.producer_epoch for each in self.places.values()]
        last_offset = -1 if self.last_offset is None else self.last_offset
        return session_folder.SourceFacts(
            self.producer_id, max([self.producer_epoch, *epochs]), last_offset, dict(self.places)
        )


class _Task:
    def __init__(
        self, options: SinkOptions, session: session_folder.MirrorSession, place: TaskPlace, loop: LoopThread
    ) -> None:
        self._options = options
        self._session = session
        self._place = place
        self._loop = loop
        self._facts: session_folder.BatchFacts | None = None
        self._is_announced = False
        self._sources: dict[Place, _Source] = {}
        self._cluster = Cluster(options.cluster, ASKED_APIS)
        self._read = self._written = self._skipped = 0

    def write(self, table: Any) -> None:
        """Send those rows that are not stored yet."""
        if self._facts is None:
            self._loop.run(self._cluster.start())
            self._session.check(self._place.query, self._cluster.image.cluster_id)
            self._facts = self._session.facts(self._place.batch_id)
        parts = [(source, part, _offsets(part)) for source, part in _by_source(table)]
        if not self._is_announced:
            self._claim({source: int(offsets[0]) for source, _, offsets in parts})
        for source, part, offsets in parts:
            known = self._sources.get(source) or self._begin(source, int(offsets[0]), self._facts)
            check_order(source, offsets, known.last_offset, allows_gaps=self._options.allows_gaps)
            self._send(known, read_rows(part, self._options.topic), offsets, flat(part, "source_offset"))
            known.last_offset = int(offsets[-1])
            self._read += len(offsets)

    def finish(self) -> MirroredRows:
        """Wait until all is stored."""
        self._announce()
        for source in self._sources.values():
            self._settle(source)
        facts = {place: source.facts() for place, source in self._sources.items()}
        return MirroredRows(facts, self._read, self._written, self._skipped)

    def close(self) -> None:
        """Abandon the rows that are not stored yet."""
        for source in self._sources.values():
            for sender in set(source.senders.values()):
                self._loop.run(sender.producer.stop(0))
        if self._facts is not None:
            self._loop.run(self._cluster.close())

    def _claim(self, first_offsets: dict[Place, int]) -> None:
        """Claim the sources of the first rows. All are claimed even if one is refused, because other tasks
        wait for these claims."""
        refusals = []
        for source, first_offset in first_offsets.items():
            try:
                self._session.claim(self._place.write_id, source, self._place.task, first_offset)
            except session_folder.MirrorError as error:
                refusals.append(error)
        self._announce()
        if refusals:
            raise refusals[0]

    def _begin(self, source: Place, first_offset: int, facts: session_folder.BatchFacts) -> _Source:
        self._session.claim(self._place.write_id, source, self._place.task, first_offset)
        known = facts.sources.get(source)
        producer_id = known.producer_id if known else self._session.producer(source)
        if producer_id is None:
            producer_id = self._session.keep_producer(source, self._loop.run(self._new_producer_id()))
        begun = _Source(source, first_offset, producer_id, known)
        last_read = known.last_offset if known else -1
        if last_read >= 0 and first_offset > last_read and not self._options.allows_gaps:
            check_order(source, np.array([first_offset]), last_read, allows_gaps=False)
        elif self._place.task and (last_read < 0 or first_offset > last_read + 1):
            # The earlier rows may be filtered out. If the source was split, they are in the previous task,
            # which then has claimed them.
            self._session.await_task(self._place.write_id, self._place.task - 1)
        for open_source in list(self._sources.values()):
            if sum(bool(each.senders) for each in self._sources.values()) < _MOST_OPEN:
                break
            self._settle(open_source)
        self._sources[source] = begun
        return begun

    def _announce(self) -> None:
        if not self._is_announced:
            self._session.announce(self._place.write_id, self._place.task)
            self._is_announced = True

    async def _new_producer_id(self) -> int:
        async with make_producer(self._options) as producer:
            return (await producer.session()).producer_id

    def _send(self, source: _Source, rows: SinkRows, offsets: Integers, numbers: Any) -> None:
        columns = RecordColumns(
            rows.columns.timestamps_ms,
            rows.columns.keys,
            rows.columns.values,
            rows.columns.headers,
            (SOURCE_HEADER, source_headers(source.place, numbers.cast(pa.int64()))),
        )
        partitions = np.where(rows.partitions >= 0, rows.partitions, source.place.partition)
        parts = list(groups(rows, partitions))
        new = [key for place, _ in parts if (key := TopicPartition(*place)) not in source.senders]
        if new:
            self._open(source, new)
        for place, chosen in parts:
            key = TopicPartition(*place)
            wanted = np.arange(len(offsets)) if chosen is None else chosen
            first = int(np.searchsorted(offsets[wanted], source.stored[key], "right"))
            self._skipped += first
            self._written += len(wanted) - first
            if first == len(wanted):
                continue
            selected = columns if chosen is None and not first else columns.take(wanted[first:])
            for batch in encode(selected, self._options.batch_bytes):
                self._loop.run(source.senders[key].send(*key, batch))
            source.stored[key] = int(offsets[wanted[-1]])

    def _open(self, source: _Source, keys: list[TopicPartition]) -> None:
        """Look up the source's position in these partitions, and start a producer that continues there."""
        partitions = {key: self._loop.run(self._look_up(source, key)) for key in keys}
        for key in keys:
            self._session.check_refused(source.place, source.stored[key])
        # Again, right before the first record: another task may have claimed it in the meantime.
        self._session.claim(self._place.write_id, source.place, self._place.task, source.first_offset)
        saved = ProducerSession(
            source.producer_id, source.producer_epoch, int(time.time() * 1000), {}, partitions
        )
        sender = BatchSender(make_producer(self._options, saved))
        source.senders |= dict.fromkeys(keys, sender)
        self._loop.run(sender.producer.start())

    async def _look_up(self, source: _Source, key: TopicPartition) -> SessionPartition:
        info = await self._cluster.topic(key.topic)
        if key.partition >= len(info.partitions):
            raise OptionError(
                f"rows of {source.place} go to partition {key.partition} of {key.topic!r}, which has"
                f" {len(info.partitions)} partitions: create it with as many as the source"
                " has, or name others in a column partition"
            )
        self._session.keep_topic("to", key.topic, info.topic_id)
        known = source.places.get(key)
        tail = await find_tail(self._cluster, key, source.place, source.producer_id, known)
        source.stored[key] = -1 if tail.place is None else tail.place.position
        if tail.place is not None:
            source.places[key] = tail.place
        if tail.place is None or tail.place.producer_epoch < source.producer_epoch:
            return SessionPartition(source.producer_epoch, 0, tail.end_offset)
        return SessionPartition(tail.place.producer_epoch, tail.place.next_sequence, tail.end_offset)

    def _settle(self, source: _Source) -> None:
        """Wait until all sent rows of a source are stored. Then note its positions, close its producers."""
        for sender in dict.fromkeys(source.senders.values()):
            self._loop.run(self._settle_sender(source, sender))
        source.senders = {}

    async def _settle_sender(self, source: _Source, sender: BatchSender) -> None:
        await sender.finish()
        saved = await sender.producer.session()
        await sender.producer.stop()
        for key, stands in saved.partitions.items():
            before = source.places.get(key)
            # If nothing was sent, the position found in the log is better than the producer's.
            if before is None or before.position != source.stored[key]:
                source.places[key] = session_folder.StoredPlace(*stands, source.stored[key])


def _by_source(table: Any) -> Iterator[tuple[Place, Any]]:
    """The rows of each source partition, in their order."""
    topics, numbers = dictionary(flat(table, "source_topic"), "source_topic")
    column = flat(table, "source_partition")
    if column.null_count or flat(table, "source_offset").null_count:
        raise OptionError("source_partition and source_offset must not be null: they name a record's origin")
    partitions = arrays.integers(column.cast(pa.int64()))
    rows = SinkRows(RecordColumns(partitions), topics, numbers, partitions)
    for place, chosen in groups(rows, partitions):
        yield place, table if chosen is None else table.take(arrays.numbers(chosen))


def _offsets(table: Any) -> Integers:
    return arrays.integers(flat(table, "source_offset").cast(pa.int64()))
