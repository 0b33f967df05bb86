"""What the transactions of a ProduceRequest need: partitions that take part, and a coordinator that agrees.

Owns the codes that producers get for the coordinator's. Invariant: a batch begins a transaction only on a
partition that the coordinator has in that transaction, be that this broker, or another one that is asked
before the append.

Event loop only. Source: KIP-890.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from tidelog.broker.cluster.catalog import INTERNAL_TOPICS
from tidelog.broker.coordinator.participation import VerificationResult
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.handlers.access_control import AccessControl
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import WRITE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError, again
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.records import BATCH_HEADER_SIZE, BatchHeader, read_batch_header
from tidelog.protocol.steps import Pace, Steps
from tidelog.protocol.types import Buffer, TopicPartition

_FIRST_VERSION_WITH_ABORTABLE: Final = 11
_ADDS_PARTITIONS_FROM: Final = 12
_OF_THE_COORDINATOR = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""What producers get for the coordinator's code: one that each of them knows, and retries where it may."""


def for_producers(code: ErrorCode) -> ErrorCode:
    """The code that a producer gets for one of the coordinator."""
    return _OF_THE_COORDINATOR.get(code, code)


class Settled(NamedTuple):
    """What was settled with the coordinator of a request's transactions."""

    to_retry: dict[tuple[str, int], ApiError]
    """The partitions for which the producer is to try again."""
    words: dict[tuple[Producer, TopicPartition], VerificationResult]
    """What a coordinator on another broker says."""


NOTHING_SETTLED: Final = Settled({}, {})


class ProduceTransactions:
    """Asks the transaction coordinator for one handler."""

    def __init__(self, services: Services, access: AccessControl) -> None:
        self._access = access
        self._replicas = services.replicas
        self._services = services

    def lacking(
        self, context: RequestContext, request: ProduceRequest
    ) -> Steps[dict[Producer, list[TopicPartition]]]:
        """The partitions whose part in the transactions that batches of the request name must be settled
        before the append: those that do not take part yet, and where another broker coordinates the
        transactions, those on which batches begin one.

        Clients of older versions add partitions themselves.
        """
        pace = Pace()
        lacking: dict[Producer, list[TopicPartition]] = {}
        transactional_id = request.transactional_id
        if transactional_id is None:
            return lacking
        is_elsewhere = self._services.participation.is_asked_elsewhere(transactional_id)
        if not is_elsewhere and context.header.api_version < _ADDS_PARTITIONS_FROM:
            return lacking
        lacks = self._begins if is_elsewhere else partial(self._takes_no_part, transactional_id)
        for topic, partitions in request.topics:
            if not self._access.shows(context, WRITE_TOPIC, topic):
                continue  # The append refuses it.
            for index, batch in partitions:
                producer = _producer_of(batch)
                if producer is not None and (topic, index) in self._replicas and topic not in INTERNAL_TOPICS:
                    where = TopicPartition(topic, index)
                    if lacks(producer, where):
                        lacking.setdefault(producer, []).append(where)
                if pace.spent():
                    yield
            if pace.spent():
                yield
        return lacking

    def _begins(self, producer: Producer, where: TopicPartition) -> bool:
        return not self._replicas[where].log.producers.is_in_transaction(*producer)

    def _takes_no_part(self, transactional_id: str, producer: Producer, where: TopicPartition) -> bool:
        code = self._services.transactions.permits(transactional_id, *producer, *where)
        return code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS)

    async def settle(
        self, version: int, request: ProduceRequest, lacking: Mapping[Producer, Sequence[TopicPartition]]
    ) -> Settled:
        """Let partitions take part, or ask whether they do, as the version of the request says."""
        settled = Settled({}, {})
        transactional_id = request.transactional_id or ""
        participation = self._services.participation
        for producer, partitions in lacking.items():
            if participation.is_asked_elsewhere(transactional_id):
                adds = version >= _ADDS_PARTITIONS_FROM
                words = await participation.ask(transactional_id, producer, partitions, adds=adds)
                for where, word in words.items():
                    settled.words[producer, where] = word
                    if word.code.retriable:
                        settled.to_retry[where] = ApiError(word.code, "its coordinator is on another broker")
                continue
            try:
                await self._services.transactions.add_partitions(transactional_id, producer, partitions)
            except ApiError as error:
                # Else the append finds that they do not take part, and why. But what may be added later
                # may not be found then: the transaction before it may have ended meanwhile.
                if error.code.retriable:
                    settled.to_retry.update(dict.fromkeys(partitions, again(error)))
        return settled

    def permit(
        self,
        transactional_id: str,
        version: int,
        topic: str,
        index: int,
        settled: Settled,
        begins: BatchHeader,
    ) -> None:
        """Raise ApiError unless the coordinator has this partition in the transaction that a batch begins."""
        producer = Producer(begins.producer_id, begins.producer_epoch)
        if self._services.participation.is_asked_elsewhere(transactional_id):
            word = settled.words.get((producer, TopicPartition(topic, index)))
            # None: the transaction that was open when the request came has ended since.
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if word is None else word.now
        else:
            verifier = self._services.transaction_verifier
            code = verifier.permits(transactional_id, *producer, topic, index)
        if code == ErrorCode.NONE:
            return
        if code == ErrorCode.INVALID_TXN_STATE and version >= _FIRST_VERSION_WITH_ABORTABLE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        raise ApiError(
            for_producers(code),
            f"transactional id {transactional_id} has no ongoing transaction of producer {begins.producer_id}"
            f" epoch {begins.producer_epoch} with {topic}-{index}: {code.name}",
        )


def _producer_of(batch: Buffer | None) -> Producer | None:
    """The producer of a batch that belongs to a transaction; None for any other batch."""
    if batch is None or len(batch) < BATCH_HEADER_SIZE:
        return None
    try:
        header = read_batch_header(batch)
    except ProtocolError:
        return None
    if not header.is_transactional or header.producer_id < 0:
        return None
    return Producer(header.producer_id, header.producer_epoch)
