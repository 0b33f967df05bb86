"""What producers are promised where their batches are refused, checked at each answer of each broker.

Owns which sequences were refused, and when, by each life of a broker. A gap before a batch is looked at
sequence by sequence; `find` is told of an answer that contradicts it.
"""

from collections.abc import Callable
from typing import Final

from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.hot import ProducePartitionResult
from tidelog.protocol.records import BatchHeader, read_batch_header
from tidelog.protocol.sequences import increment_sequence, sequence_distance
from tidelog.protocol.types import Buffer

_LONGEST_S: Final = 30.0
_LARGEST_GAP: Final = 10_000
_OF_A_GAP: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class RefusalChecks:
    """Of one life of a broker."""

    def __init__(self, services: Services, handler: ProduceHandler, find: Callable[[str], None]) -> None:
        self._services = services
        self._find = find
        self._loop = handler._loop
        self._refused: dict[tuple[object, ...], dict[int, float]] = {}
        self._answer = handler._refused
        handler._refused = self._checked  # type: ignore[method-assign]

    def _checked(
        self, context: RequestContext, topic: str, index: int, records: Buffer, error: ApiError
    ) -> ProducePartitionResult:
        result = self._answer(context, topic, index, records, error)
        try:
            header = read_batch_header(records)
        except ProtocolError:
            return result
        if header.producer_id >= 0:
            self._check(topic, index, header, error.code, ErrorCode(result.error_code))
        return result

    def _check(self, topic: str, index: int, sent: BatchHeader, code: ErrorCode, given: ErrorCode) -> None:
        place = topic, index, sent.producer_id, sent.producer_epoch
        refused = self._refused.setdefault(place, {})
        now = self._loop.time()
        if code in _OF_A_GAP and (replica := self._services.replicas.get((topic, index))) is not None:
            expected = replica.log.producers.next_sequence(sent)
            gap = 0 if expected is None else sequence_distance(expected, sent.base_sequence)
            if expected is not None and 0 < gap < _LARGEST_GAP:
                missing = [increment_sequence(expected, each) for each in range(gap)]
                is_refused = all(now - refused.get(each, -_LONGEST_S) < _LONGEST_S for each in missing)
                what = f"{topic}-{index}: sequence {sent.base_sequence} of producer {sent.producer_id}"
                if is_refused and given == code:
                    self._find(f"{what} is behind refused batches only, and gets {given.name}")
                if not is_refused and given != code:
                    self._find(f"{what} is behind what was not refused lately, and gets {given.name}")
        for number in range(sent.last_offset_delta + 1):
            sequence = increment_sequence(sent.base_sequence, number)
            if given.retriable:
                refused[sequence] = now
            else:
                refused.pop(sequence, None)
