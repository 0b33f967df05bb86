"""A producer's session in use: what each partition holds, and which records of a replay to skip.

Owns: the saved session, the records found in the log after it, and the progress of the replay.
Invariants:
- in a resumed session no record of a partition is numbered before the broker was asked what the log holds,
  and none in a cluster other than the session's;
- records are skipped in the order of `send`, exactly as many as are stored, and none after that;
- a session keeps each topic's first number of partitions, because keys must not move.
"""

import asyncio
from collections.abc import Mapping
from time import time

from tidelog.client.errors import ProducerFencedError, SessionError
from tidelog.client.producer.accumulator import Accumulator
from tidelog.client.producer.batch import Identity, Outcome, ProducerBatch
from tidelog.client.producer.delivery import Delivery
from tidelog.client.producer.session import Found, ProducerSession, SessionPartition
from tidelog.client.producer.session_lookup import find_stored
from tidelog.client.producer.state import ProducerState
from tidelog.protocol.sequences import increment_sequence
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import Cluster
from tidelog.wire.events import logger
from tidelog.wire.metadata import TopicInfo


class _Replay:
    """Records of one partition that are sent again although the log holds them."""

    __slots__ = ("_stand_ins", "found", "saved", "skipped")

    def __init__(self, key: TopicPartition, producer_id: int, saved: SessionPartition, found: Found) -> None:
        self.saved = saved
        self.found = found
        self.skipped = 0
        # One stored batch per run, and the number of records of the replay before it.
        self._stand_ins: list[tuple[int, ProducerBatch]] = []
        first = 0
        for run in found.runs:
            batch = ProducerBatch(key, 0, 0, 0)
            batch.number(Identity(producer_id, run.producer_epoch), run.base_sequence)
            batch.resolve(Outcome(-1, -1))
            self._stand_ins.append((first, batch))
            first += run.record_count

    def take(self, timestamp_ms: int) -> Delivery:
        if len(self._stand_ins) > 1 and self.skipped == self._stand_ins[1][0]:
            del self._stand_ins[0]
        first, batch = self._stand_ins[0]
        self.skipped += 1
        return Delivery.of(batch, self.skipped - 1 - first, timestamp_ms)


class SessionKeeper:
    """Keeps the session of one producer, and tells which records of a replay to skip. `saved` is the session
    to resume; None for a new one."""

    def __init__(
        self,
        cluster: Cluster,
        state: ProducerState,
        accumulator: Accumulator,
        saved: ProducerSession | None = None,
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._accumulator = accumulator
        self._saved = saved
        self._topics: dict[str, int] = dict(saved.topics) if saved else {}
        # Partitions whose state in the log is known, each with the rest of its replay.
        self._replays: dict[TopicPartition, _Replay | None] = {}
        self._lock = asyncio.Lock()
        state.is_session = True
        if saved is not None:
            state.set_producer_id(saved.producer_id, saved.producer_epoch)

    def pin(self, info: TopicInfo) -> TopicInfo:
        """The topic with the session's partitions. Raises SessionError if it has fewer partitions now."""
        count = self._topics.setdefault(info.name, len(info.partitions))
        if len(info.partitions) < count:
            raise SessionError(
                f"topic {info.name!r} has {len(info.partitions)} partitions, the session expects {count}"
            )
        return info._replace(partitions=info.partitions[:count])

    def must_prepare(self, key: TopicPartition, now_ms: int) -> bool:
        """Whether to await `prepare` before a record of this partition is taken or skipped."""
        if key not in self._replays:
            if self._saved is not None:
                return True
            self._replays[key] = None
        return self._state.is_stale(key, now_ms) and not self._accumulator.queue(key).batches

    async def prepare(self, key: TopicPartition, now_ms: int) -> None:
        """Find out what the log holds. Raises SessionError, ProducerFencedError or RequestTimeoutError."""
        async with self._lock:
            if not self.must_prepare(key, now_ms):
                return
            identity = self._state.identity
            if identity is None:
                return
            self._check_cluster()
            is_at_work = key in self._replays
            stood = self._place(key, identity)
            is_recent = not is_at_work and self._is_recent()
            found = await find_stored(self._cluster, key, identity.producer_id, stood, is_recent=is_recent)
            if is_at_work and found.record_count:
                what = f"{found.record_count} records of this session in {key.topic}-{key.partition}"
                raise ProducerFencedError(f"another process stored {what}")
            self._state.resume(key, Identity(identity.producer_id, found.producer_epoch), found.next_sequence)
            self._replays[key] = (
                _Replay(key, identity.producer_id, stood, found) if found.record_count else None
            )
            logger.info(
                "session_resumed",
                topic=key.topic,
                partition=key.partition,
                producer_id=identity.producer_id,
                producer_epoch=found.producer_epoch,
                next_sequence=found.next_sequence,
                already_stored=found.record_count,
            )

    def _check_cluster(self) -> None:
        saved, here = self._saved.cluster_id if self._saved else None, self._cluster.image.cluster_id
        if saved is not None and here is not None and saved != here:
            raise SessionError(
                f"the session belongs to cluster {saved}, but this is cluster {here}. Here its producer id"
                " belongs to another producer. Begin a new session"
            )

    def is_replaying(self, key: TopicPartition) -> bool:
        """Whether the partition's next record must be skipped."""
        return self._replays.get(key) is not None

    def skip(self, key: TopicPartition, timestamp_ms: int) -> Delivery | None:
        """The delivery of a record that the log holds already; None if the record must be sent."""
        replay = self._replays.get(key)
        if replay is None:
            return None
        delivery = replay.take(timestamp_ms)
        if replay.skipped == replay.found.record_count:
            self._replays[key] = None
        return delivery

    def snapshot(self, identity: Identity) -> ProducerSession:
        """The session after all records that were sent or skipped so far."""
        saved: Mapping[TopicPartition, SessionPartition] = self._saved.partitions if self._saved else {}
        places = {key: self._place(key, identity) for key in {**saved, **self._replays}}
        return ProducerSession(
            identity.producer_id,
            identity.epoch,
            int(time() * 1000),
            dict(self._topics),
            places,
            self._cluster.image.cluster_id,
        )

    def _place(self, key: TopicPartition, identity: Identity) -> SessionPartition:
        saved = self._saved.partitions.get(key) if self._saved else None
        if key not in self._replays and saved is not None:
            return saved
        replay = self._replays.get(key)
        if replay is not None:
            return SessionPartition(*replay.found.place(replay.skipped), replay.saved.end_offset)
        numbered_as, next_sequence = self._state.next_sequence(key)
        unsent = sum(batch.record_count for batch in self._accumulator.queue(key).batches)
        end_offset = self._state.end_offset(key)
        if end_offset < 0 and saved is not None:
            end_offset = saved.end_offset
        epoch = (numbered_as or identity).epoch
        return SessionPartition(epoch, increment_sequence(next_sequence, unsent), end_offset)

    def _is_recent(self) -> bool:
        """Whether nothing was stored since the save if a broker does not know the producer."""
        if self._saved is None or self._state.lease_ms is None:
            return False
        return 0 <= time() * 1000 - self._saved.saved_at_ms < self._state.lease_ms
