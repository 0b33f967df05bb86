"""The client's half of idempotence: which batch may be sent, with which sequence, and what an answer means.

Owns: the producer's identity (id and epoch), each partition's next sequence, and its in-flight batches. Pure:
it takes facts and returns verdicts.

Invariants, per partition:
- In-flight batches stay in sequence order, so a retry needs no sorting.
- A batch gets its sequence when it is first sent. It changes only with the identity, with none on the wire.
- A retry is sent alone: the oldest batch first, with no other batch of its partition on the wire. New batches
  are sent only after all retries are settled. So at most `max_in_flight` batches are ever unsettled. Within
  this window a broker recognises a duplicate.
- If each attempt of the oldest batch was refused, no later batch of the same identity is stored: a broker
  takes a sequence only after its predecessor. Then (and only then) all of them get new sequences.
- If the outcome of one attempt is unknown, the batch is retried with the same sequence only. If it is given
  up, it ends with `DeliveryUncertainError`. No new batch then follows under its identity, unless a later
  acknowledgement proves that it was stored.
- An identity is used once per partition, from sequence 0 on. Its sequence never goes back.
- In a session no batch gets a new sequence and none is skipped: the first that cannot be stored is fatal, so
  a partition holds a prefix of what was sent. In a transaction no identity changes, and a batch that is given
  up fails it. Without both, a partition that was idle for `lease_ms` starts under a new epoch.
- After the wrap, sequence 0 waits until all earlier batches are settled. A broker that forgot this producer
  would treat it as a first batch.

Source: KIP-98, KIP-360.
"""

from collections.abc import Iterable
from typing import Final

from tidelog.client.errors import DeliveryTimeoutError
from tidelog.client.producer.batch import Identity, ProducerBatch
from tidelog.client.producer.verdicts import (
    REFUSED_BEFORE_APPEND,
    SEQUENCE_REFUSALS,
    SPLITTABLE,
    Action,
    Verdict,
    refusal,
    session_refusal,
    transaction_refusal,
    uncertain,
    with_last_code,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.sequences import decrement_sequence, increment_sequence, sequence_distance
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import ClientError


class PartitionState:
    """One partition's sequence and in-flight batches, oldest first."""

    __slots__ = (
        "end_offset", "identity", "in_flight", "is_resetting", "is_unresolved", "last_acked",
        "next_sequence", "on_wire", "route", "sent_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.last_acked: int | None = None
        # When a batch was last sent for the first time.
        self.sent_ms: int | None = None
        self.end_offset = -1
        self.in_flight: list[ProducerBatch] = []
        self.on_wire = 0
        # The route of the batches on the wire; only one connection keeps their order.
        self.route: object = None
        # A numbered batch was given up: no new batch under this identity until that is settled.
        self.is_unresolved = False
        # The identity is retired; in-flight batches get new sequences once none is on the wire.
        self.is_resetting = False

    def start(self, identity: Identity) -> None:
        """Start at sequence 0 under `identity`. In-flight batches come first, in their order."""
        self.identity = identity
        self.last_acked = None
        self.is_unresolved = self.is_resetting = False
        sequence = 0
        for batch in self.in_flight:
            batch.number(identity, sequence)
            sequence = increment_sequence(sequence, batch.record_count)
        self.next_sequence = sequence

    def resume(self, identity: Identity, next_sequence: int) -> None:
        """Continue where an earlier process stopped. No batch may be in flight."""
        self.identity = identity
        self.next_sequence = next_sequence
        self.last_acked = decrement_sequence(next_sequence, 1)
        self.sent_ms = None

    def begin_reset(self) -> None:
        """The oldest batch was never stored, so no batch in flight is stored."""
        self.is_resetting = True
        for batch in self.in_flight:
            batch.may_be_stored = False


MAX_EPOCH: Final = 32767
_HALF_RING: Final = 2**30


class ProducerState:
    """The state machine; one per producer. Times are milliseconds of the client's monotonic clock.

    Without idempotence batches have no sequences. Then at most one batch per partition is on the wire, so
    retries keep the order; a retry may store a batch twice.
    """

    def __init__(
        self, *, is_idempotent: bool = True, max_in_flight: int = 5, lease_ms: int | None = None
    ) -> None:
        self.lease_ms = lease_ms
        """How long a partition may be idle before it gets a new identity; None: forever."""
        self.is_session = False
        """Whether sequences outlive the process. Must be set before the first batch is numbered."""
        self.is_transactional = False
        """Whether the coordinator gives all epochs. Must be set before the first batch is numbered."""
        self._is_idempotent = is_idempotent
        self._max_in_flight = max_in_flight if is_idempotent else 1
        self._identity: Identity | None = None
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._unsettled: dict[TopicPartition, None] = {}

    @property
    def identity(self) -> Identity | None:
        """The identity for partitions that start again; None while a producer id must be requested."""
        return self._identity

    @property
    def needs_producer_id(self) -> bool:
        """Whether InitProducerId must be called. Pass its answer to `set_producer_id`."""
        return self._is_idempotent and self._identity is None

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """A broker gave this id. It must never have been used by this machine before."""
        self._identity = Identity(producer_id, epoch)

    def resume(self, key: TopicPartition, identity: Identity, next_sequence: int) -> None:
        """The partition holds everything before `next_sequence` under `identity`; nothing is in flight."""
        state = self._partitions.setdefault(key, PartitionState())
        if state.in_flight or not self.is_session:
            raise RuntimeError(f"{key} cannot be resumed: it has batches in flight, or there is no session")
        state.resume(identity, next_sequence)

    def next_sequence(self, key: TopicPartition) -> tuple[Identity | None, int]:
        """Identity and sequence of the partition's next new batch; (None, 0) if none was numbered yet."""
        state = self._partitions.get(key)
        return (None, 0) if state is None else (state.identity, state.next_sequence)

    def end_offset(self, key: TopicPartition) -> int:
        """The offset after the last batch that was acknowledged with an offset, -1 if there is none."""
        state = self._partitions.get(key)
        return -1 if state is None else state.end_offset

    def in_flight(self, key: TopicPartition) -> list[ProducerBatch]:
        """The partition's unsettled batches, oldest first."""
        state = self._partitions.get(key)
        return [] if state is None else list(state.in_flight)

    def unsettled_partitions(self) -> Iterable[TopicPartition]:
        """A copy of the list of partitions with batches in flight, the longest unsettled first."""
        return list(self._unsettled)

    def retry_due_ms(self, key: TopicPartition) -> int | None:
        """When the partition's oldest batch may be retried; None if it may not be or has other conditions."""
        state = self._partitions.get(key)
        if state is None or not state.in_flight or state.on_wire:
            return None
        if state.is_resetting and self._identity is None:
            return None
        return state.in_flight[0].retry_at_ms

    def accepts_new(self, key: TopicPartition, route: object) -> bool:
        """Whether a batch that was never sent may be sent by `route` now."""
        state = self._partitions.get(key)
        if state is None:
            return not self.needs_producer_id
        if not state.in_flight:
            return self._is_current(state) or not self.needs_producer_id
        if len(state.in_flight) >= self._max_in_flight or state.on_wire < len(state.in_flight):
            return False
        if state.is_resetting or state.is_unresolved or state.route is not route:
            return False
        # The last condition holds back sequence 0 after the wrap.
        return self._is_current(state) and state.next_sequence != 0

    def _is_current(self, state: PartitionState) -> bool:
        return self.is_session or state.identity == self._identity

    def take_retry(self, key: TopicPartition, route: object, now_ms: int) -> ProducerBatch | None:
        """Put the batch that must be retried now on the wire and return it; None if there is none."""
        due_ms = self.retry_due_ms(key)
        if due_ms is None or due_ms > now_ms:
            return None
        state = self._partitions[key]
        if state.is_resetting and self._identity is not None:
            state.start(self._identity)
        return self._put_on_wire(state, state.in_flight[0], route)

    def is_stale(self, key: TopicPartition, now_ms: int) -> bool:
        """Whether the partition was idle for `lease_ms`, so brokers may soon forget this producer there."""
        state = self._partitions.get(key)
        if state is None or self.lease_ms is None or state.in_flight or state.sent_ms is None:
            return False
        return now_ms - state.sent_ms >= self.lease_ms

    def renew(self, key: TopicPartition, now_ms: int) -> None:
        """Retire the partition's identity if it is stale; before `accepts_new`. In a session do nothing."""
        if self._is_idempotent and self.is_stale(key, now_ms):
            self._retire(self._partitions[key], needs_new_id=False)

    def take_new(self, batch: ProducerBatch, route: object, now_ms: int = 0) -> ProducerBatch:
        """Number `batch` and put it on the wire. Only if `accepts_new` is true."""
        if not self.accepts_new(batch.key, route):
            raise RuntimeError(f"{batch!r} may not be sent now: call accepts_new first")
        state = self._partitions.get(batch.key)
        if state is None:
            state = self._partitions[batch.key] = PartitionState()
        if self._is_idempotent and self._identity is not None:
            if not state.in_flight and (state.identity is None or not self._is_current(state)):
                state.start(self._identity)
            batch.number(state.identity or self._identity, state.next_sequence)
            state.next_sequence = increment_sequence(state.next_sequence, batch.record_count)
        # A retry does not change this: the broker counts from the append, which may be the first attempt's.
        state.sent_ms = now_ms
        state.in_flight.append(batch)
        self._unsettled[batch.key] = None
        return self._put_on_wire(state, batch, route)

    def _put_on_wire(self, state: PartitionState, batch: ProducerBatch, route: object) -> ProducerBatch:
        batch.is_on_wire = True
        batch.attempts += 1
        state.on_wire += 1
        state.route = route
        return batch

    def on_not_sent(self, batch: ProducerBatch, retry_at_ms: int) -> Verdict:
        """No byte of the attempt left this process."""
        state = self._landed(batch)
        batch.attempts -= 1
        return self._retry_or_drop(state, batch, retry_at_ms)

    def on_lost(self, batch: ProducerBatch, retry_at_ms: int) -> Verdict:
        """The connection broke or the request timed out: the broker may have stored the batch."""
        state = self._landed(batch)
        if not state.is_resetting:
            batch.may_be_stored = True
        return self._retry_or_drop(state, batch, retry_at_ms)

    def on_answer(
        self,
        batch: ProducerBatch,
        code: ErrorCode,
        *,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        message: str | None = None,
        retry_at_ms: int = 0,
    ) -> Verdict:
        """The broker answered the attempt. `retry_at_ms` is when a retry may be sent, if one is needed."""
        state = self._landed(batch)
        if code is ErrorCode.NONE:
            return self._acked(state, batch, base_offset, log_append_time_ms)
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and self._is_idempotent:
            return self._known_to_broker(state, batch)
        batch.last_code = code
        if code not in REFUSED_BEFORE_APPEND and not state.is_resetting:
            batch.may_be_stored = True
        if code in SEQUENCE_REFUSALS and self._is_idempotent:
            return self._refused_for_sequence(state, batch, code, retry_at_ms)
        if code.retriable:
            return self._retry_or_drop(state, batch, retry_at_ms)
        if code in SPLITTABLE and batch.record_count > 1 and not batch.is_abandoned:
            return Verdict(Action.SPLIT, batch)
        return self._give_up(state, batch, refusal(batch, code, message), code)

    def split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """After the verdict SPLIT: replace `batch` by `parts`, which share its sequences in order."""
        state = self._partitions[batch.key]
        at = state.in_flight.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            if batch.identity is not None:
                part.number(batch.identity, sequence)
                sequence = increment_sequence(sequence, part.record_count)
        state.in_flight[at : at + 1] = parts

    def expire(self, key: TopicPartition, now_ms: int) -> list[Verdict]:
        """FAILED for every numbered batch of the partition whose deadline has passed, oldest first."""
        state = self._partitions.get(key)
        if state is None:
            return []
        late = [each for each in state.in_flight if each.deadline_ms <= now_ms and not each.is_abandoned]
        return [self._abandon(state, batch, "delivery_timeout_ms has passed") for batch in late]

    def abandon_all(self, reason: str) -> list[Verdict]:
        """FAILED for every numbered batch, because the producer is being closed."""
        return [
            self._abandon(state, batch, reason)
            for state in self._partitions.values()
            for batch in list(state.in_flight)
            if not batch.is_abandoned
        ]

    def _abandon(self, state: PartitionState, batch: ProducerBatch, reason: str) -> Verdict:
        if batch.is_on_wire:
            # It stays in flight until the answer comes, which may still prove that it is stored.
            batch.is_abandoned = True
            error: ClientError = uncertain(batch, f"{reason} before the broker answered")
            return Verdict(self._failed, batch, error=error)
        if batch.may_be_stored:
            error = uncertain(batch, f"{reason}, and the outcome of an earlier attempt is unknown")
        else:
            error = DeliveryTimeoutError(with_last_code(reason, batch), *batch.key, batch.last_code)
        self._drop(state, batch)
        return Verdict(self._failed, batch, error=error)

    @property
    def _failed(self) -> Action:
        return Action.FATAL if self.is_session else Action.FAILED

    def _landed(self, batch: ProducerBatch) -> PartitionState:
        state = self._partitions.get(batch.key)
        if state is None or not batch.is_on_wire:
            raise RuntimeError(f"{batch!r} is not on the wire, but an attempt must end exactly once")
        batch.is_on_wire = False
        state.on_wire -= 1
        return state

    def _acked(self, state: PartitionState, batch: ProducerBatch, base_offset: int, time_ms: int) -> Verdict:
        self._remove(state, batch)
        if base_offset >= 0:
            state.end_offset = base_offset + batch.record_count
        if self._is_idempotent:
            last, acked = batch.last_sequence, state.last_acked
            if acked is None or sequence_distance(acked, last) < _HALF_RING:
                state.last_acked = last
        self._settle(state)
        action = Action.IGNORED if batch.is_abandoned else Action.STORED
        return Verdict(action, batch, base_offset, time_ms)

    def _known_to_broker(self, state: PartitionState, batch: ProducerBatch) -> Verdict:
        """DUPLICATE_SEQUENCE_NUMBER: an earlier attempt stored the batch, if one may have stored it."""
        if batch.may_be_stored or batch.is_abandoned or self.is_session:
            return self._acked(state, batch, -1, -1)
        # No attempt of this producer can have stored it, so another one writes under the same identity.
        batch.may_be_stored = True
        self._retire(state, needs_new_id=True)
        error = uncertain(batch, "another producer sent these sequences to the broker before")
        return self._give_up(state, batch, error, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)

    def _refused_for_sequence(
        self, state: PartitionState, batch: ProducerBatch, code: ErrorCode, retry_at_ms: int
    ) -> Verdict:
        """Error 45, 47 or 59. Only that of the oldest batch counts: the others may follow from it."""
        if batch.is_abandoned or state.is_resetting:
            return self._retry_or_drop(state, batch, retry_at_ms)
        if batch is not state.in_flight[0]:
            return self._retry_or_drop(state, batch, 0)
        if self.is_session:
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.record_count > 1:
                # The log may hold its first records. Splitting finds them, if necessary down to one record.
                return Verdict(Action.SPLIT, batch)
            return self._give_up(state, batch, session_refusal(batch, code), code)
        if self.is_transactional:
            return self._give_up(state, batch, transaction_refusal(batch, code), code)
        # A new epoch fences requests of the old one that are still in flight; a new id does not. So a new id
        # is taken only if the old one is useless: another producer has it, or no broker has issued it.
        needs_new_id = code is ErrorCode.INVALID_PRODUCER_EPOCH or (
            code is ErrorCode.UNKNOWN_PRODUCER_ID and batch.base_sequence == 0
        )
        if batch.may_be_stored:
            if needs_new_id:
                self._retire(state, needs_new_id=True)
            reason = f"an acknowledgement was lost, and then the broker answered {code.name}"
            return self._give_up(state, batch, uncertain(batch, reason), code)
        # No batch in flight is stored, even if the broker lost or forgot earlier ones.
        self._retire(state, needs_new_id=needs_new_id)
        state.begin_reset()
        return self._retry_or_drop(state, batch, retry_at_ms)

    def _retry_or_drop(self, state: PartitionState, batch: ProducerBatch, retry_at_ms: int) -> Verdict:
        if batch.is_abandoned:
            self._drop(state, batch)
            return Verdict(Action.IGNORED, batch)
        batch.retry_at_ms = retry_at_ms
        return Verdict(Action.RETRY, batch)

    def _give_up(
        self, state: PartitionState, batch: ProducerBatch, error: ClientError, code: ErrorCode
    ) -> Verdict:
        was_told = batch.is_abandoned
        self._drop(state, batch)
        is_fenced = self.is_transactional and code is ErrorCode.INVALID_PRODUCER_EPOCH
        if code.fatal or is_fenced or self.is_session:
            return Verdict(Action.FATAL, batch, error=error)
        return Verdict(Action.IGNORED if was_told else Action.FAILED, batch, error=error)

    def _drop(self, state: PartitionState, batch: ProducerBatch) -> None:
        """Remove an unacknowledged batch from flight, which leaves a gap in the sequence."""
        is_oldest = batch is state.in_flight[0]
        self._remove(state, batch)
        if not self._is_idempotent or state.is_resetting:
            return
        if is_oldest and not batch.may_be_stored and not self.is_transactional:
            self._retire(state, needs_new_id=False)
            state.begin_reset()
        else:
            # Later batches keep their sequences: the broker's answers show whether this one was stored.
            state.is_unresolved = True
            self._settle(state)

    def _remove(self, state: PartitionState, batch: ProducerBatch) -> None:
        state.in_flight.remove(batch)
        if not state.in_flight:
            del self._unsettled[batch.key]

    def _settle(self, state: PartitionState) -> None:
        """If nothing is in flight, an unresolved partition is proven complete or starts a new identity."""
        if state.in_flight or not state.is_unresolved:
            return
        state.is_unresolved = False
        acked = state.last_acked
        if acked is None or increment_sequence(acked, 1) != state.next_sequence:
            self._retire(state, needs_new_id=False)
            state.is_resetting = True

    def _retire(self, state: PartitionState, *, needs_new_id: bool) -> None:
        """Use the partition's identity no more. Other partitions change theirs once they have nothing in
        flight."""
        identity = self._identity
        if identity is None or identity != state.identity or self.is_session or self.is_transactional:
            return
        if needs_new_id or identity.epoch >= MAX_EPOCH:
            self._identity = None
        else:
            self._identity = Identity(identity.producer_id, identity.epoch + 1)
