"""A producer's state machine with a producer id, and short words for what happens to its batches."""

from tidelog.client import TopicPartition
from tidelog.client.producer.batch import Identity, ProducerBatch
from tidelog.client.producer.state import ProducerState
from tidelog.client.producer.verdicts import Action, Verdict
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode

KEY = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
VIA = object()


def batch(records: int = 2, key: TopicPartition = KEY, deadline_ms: int = 1_000) -> ProducerBatch:
    made = ProducerBatch(key, 10_000, 0, deadline_ms)
    for number in range(records):
        made.builder.append(1_000, None, b"%d" % number)
    return made


class Lab:
    """A machine with a producer id, and short words for what happens to its batches."""

    def __init__(self, **settings: object) -> None:
        self.state = ProducerState(**settings)  # type: ignore[arg-type]
        self.state.set_producer_id(7, 0)

    def send(self, *records: int, key: TopicPartition = KEY, deadline_ms: int = 1_000) -> list[ProducerBatch]:
        sent = [batch(count, key, deadline_ms) for count in records]
        for each in sent:
            self.state.take_new(each, VIA)
            each.encode(Compression.NONE)
        return sent

    def answer(self, which: ProducerBatch, code: ErrorCode = ErrorCode.NONE, **more: int) -> Verdict:
        return self.state.on_answer(which, code, **more)

    def lose(self, *which: ProducerBatch) -> None:
        for each in which:
            assert self.state.on_lost(each, 0).action is Action.RETRY

    def retry(self) -> ProducerBatch | None:
        return self.state.take_retry(KEY, VIA, 0)

    def sequences(self) -> list[tuple[Identity | None, int]]:
        return [(each.identity, each.base_sequence) for each in self.state.in_flight(KEY)]
