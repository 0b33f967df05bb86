"""The state of one connection of the load generator: what is in flight, how long each answer took.

Pure: times are given, in seconds of one clock. Invariants: answers must come in the order of the requests,
with their correlation ids, and without an error; only answers to requests sent at or after `measure_from` are
counted.
"""

from collections import deque
from struct import Struct

_SIZE = Struct(">i")


class AnswerError(RuntimeError):
    """An answer after which a load cannot continue: out of order, refused, or not a Produce response."""


class Window:
    """Requests in flight on one connection, each with a batch for as many `partitions` of one topic."""

    def __init__(self, topic: str, partitions: int, measure_from: float) -> None:
        # Correlation id, topic count, topic name, partition count, then index, error code, base offset,
        # append time, log start offset of each: Produce versions 5 to 7.
        self._answer = Struct(f">ii{2 + len(topic)}xi" + "4xh24x" * partitions)
        self._accepted = (1, partitions, *(0,) * partitions)
        self.latencies: list[float] = []
        """Seconds from sending to the answer, of every request that counts."""
        self._measure_from = measure_from
        self._sent: deque[float] = deque()
        self.answers = 0
        """How many came, those before the measurement included."""
        self._rest = b""

    @property
    def in_flight(self) -> int:
        return len(self._sent)

    def sent(self, count: int, now: float) -> None:
        """`count` requests leave now."""
        self._sent.extend((now,) * count)

    def received(self, data: bytes, now: float) -> int:
        """Bytes came: how many answers they complete. Raises AnswerError."""
        if self._rest:
            data = self._rest + data
        position, end, answers = 0, len(data), 0
        while end - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, position)
            if end - position - _SIZE.size < size:
                break
            self._answered(data, position + _SIZE.size, size, now)
            position += _SIZE.size + size
            answers += 1
        self._rest = data[position:]
        return answers

    def _answered(self, data: bytes, position: int, size: int, now: float) -> None:
        if size < self._answer.size:
            raise AnswerError(f"expected an answer of {self._answer.size} bytes or more, got {size}")
        correlation_id, *found = self._answer.unpack_from(data, position)
        if correlation_id != self.answers or not self._sent:
            raise AnswerError(f"expected answer {self.answers}, got {correlation_id}")
        if tuple(found) != self._accepted:
            raise AnswerError(f"request {correlation_id} was refused with errors {sorted(set(found[2:]))}")
        self.answers += 1
        moment = self._sent.popleft()
        if moment >= self._measure_from:
            self.latencies.append(now - moment)
