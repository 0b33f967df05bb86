"""The batches that this broker refused a short time ago, which their producers may send again.

Owns what is answered for a batch whose sequence is not the next one, while only refused batches are missing
before it: their code instead of OUT_OF_ORDER_SEQUENCE_NUMBER. A producer that pipelines sent it before it
heard of the refusal, and sends all of them again, in order. After code 45 some clients raise their epoch and
send again what other partitions have stored: librdkafka's records are then stored twice (its issue 4953).

Invariants:
- a batch counts as behind refused ones only if each sequence from the next one up to it was in one of them,
  and each of these was refused within `REMEMBERED_MS`. So a producer that gave one up gets 45 then;
- only a code after which every producer sends the batch again unchanged is remembered, and only one that
  says that nothing was stored; the last code of a batch counts;
- at most `MOST_BATCHES` batches of a producer and partition are remembered, which is what clients have in
  flight, and at most `MOST_PRODUCERS` producers, each counted once per partition and epoch. The oldest are
  forgotten first: without them the answer is Kafka's.

A restart forgets them. Pure: takes facts and now_ms. Kafka answers 45 in all these cases.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import BatchHeader
from tidelog.protocol.sequences import increment_sequence, sequence_distance

REMEMBERED_MS: Final = 30_000
"""As long as a client waits for an answer (request.timeout.ms): what it has in flight arrives within this."""
MOST_BATCHES: Final = 5
MOST_PRODUCERS: Final = 10_000
_OF_A_GAP: Final = frozenset((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID))
"""What the rules of `producer_state` answer for a batch that is not the next one of its producer."""


class _Refused(NamedTuple):
    next_sequence: int
    """Of its producer, behind this batch."""
    code: ErrorCode
    at_ms: int


class RefusedBatches:
    """Remembers the batches that one broker refused, and finds the code for those behind them. Times are of a
    clock that does not go back."""

    def __init__(self) -> None:
        self._producers: OrderedDict[tuple[Hashable, int, int, int], dict[int, _Refused]] = OrderedDict()
        """By topic, partition, producer id and epoch, the last refused at the end: by first sequence, the
        last refused at the end."""

    def __len__(self) -> int:
        return len(self._producers)

    def answered(
        self,
        topic: Hashable,
        partition: int,
        sent: BatchHeader,
        code: ErrorCode,
        producers: ProducerStates | None,
        now_ms: int,
    ) -> ErrorCode:
        """The code with which a producer's batch is answered, which gets `code` by itself; it is remembered.
        `producers` are those of the partition, None while its log is not here."""
        expected = producers.next_sequence(sent) if code in _OF_A_GAP and producers is not None else None
        if expected is not None:
            code = self.code_before(topic, partition, sent, expected, now_ms) or code
        self.note(topic, partition, sent, code, now_ms)
        return code

    def note(
        self, topic: Hashable, partition: int, refused: BatchHeader, code: ErrorCode, now_ms: int
    ) -> None:
        """Remember a batch of a producer that gets this code, if its producer sends it again then."""
        producers, first = self._producers, refused.base_sequence
        key = topic, partition, refused.producer_id, refused.producer_epoch
        if not code.retriable or code is ErrorCode.CORRUPT_MESSAGE:
            producers.get(key, {}).pop(first, None)  # It is given up, or comes again as smaller batches.
            return
        batches = producers.setdefault(key, {})
        producers.move_to_end(key)
        if len(producers) > MOST_PRODUCERS:
            producers.popitem(last=False)
        batches.pop(first, None)
        next_sequence = increment_sequence(first, refused.last_offset_delta + 1)
        batches[first] = _Refused(next_sequence, code, now_ms)
        if len(batches) > MOST_BATCHES:
            del batches[next(iter(batches))]

    def code_before(
        self, topic: Hashable, partition: int, sent: BatchHeader, next_sequence: int, now_ms: int
    ) -> ErrorCode | None:
        """The code of the first refused batch, if refused ones fill the gap between the next sequence of a
        producer and its batch `sent`; else None."""
        key = topic, partition, sent.producer_id, sent.producer_epoch
        batches = self._producers.get(key, {})
        gap = sequence_distance(next_sequence, sent.base_sequence)
        code, filled = None, 0
        for _ in batches:  # No more steps, whatever clients say that their batches have.
            if filled >= gap:
                break
            refused = _covering(batches, increment_sequence(next_sequence, filled))
            if refused is None or now_ms - refused.at_ms >= REMEMBERED_MS:
                return None
            code, filled = code or refused.code, sequence_distance(next_sequence, refused.next_sequence)
        return code if filled >= gap else None


def _covering(batches: dict[int, _Refused], sequence: int) -> _Refused | None:
    """The batch with this sequence that was refused last. It need not be its first: its producer may send its
    records again in smaller batches, of which another broker has stored some."""
    for first, refused in reversed(batches.items()):
        if sequence_distance(first, sequence) < sequence_distance(first, refused.next_sequence):
            return refused
    return None
