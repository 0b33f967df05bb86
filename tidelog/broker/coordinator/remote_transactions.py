"""The requests of transactions to other brokers: markers for partitions, and partitions that take part.

Owns how they are joined: one request of a kind is in flight to each broker, and requests that arrive
meanwhile are joined in the next one. Invariant: each caller gets a code for each of its partitions; an answer
that does not match the request is an error, after which callers try again.

On the event loop. Source: KIP-98 (WriteTxnMarkers), KIP-890 (AddPartitionsToTxn 4), Kafka's
TransactionMarkerChannelManager and AddPartitionsToTxnManager.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from tidelog.broker.cluster.batcher import Batcher
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.peers.peers import Peers
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.records import TransactionMarker
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition

Codes: TypeAlias = dict[TopicPartition, ErrorCode]


class Marked(NamedTuple):
    """A transaction marker, and the partitions on which it is to be written."""

    marker: TransactionMarker
    partitions: Sequence[TopicPartition]


class Participation(NamedTuple):
    """Partitions that are to take part in a producer's transaction, or with `only_verify` are asked for."""

    transactional_id: str
    producer: Producer
    partitions: Sequence[TopicPartition]
    only_verify: bool


class RemoteTransactions:
    """Sends one broker's requests of transactions to others, and joins those to the same broker."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._markers: dict[int, Batcher[Marked, Codes]] = {}
        self._participations: dict[int, Batcher[Participation, Codes]] = {}

    async def write_markers(self, node_id: int, marked: Marked) -> Codes:
        """Let a broker write a marker on partitions that it leads; the code of each. Raises ApiError."""
        joined = self._markers.get(node_id)
        if joined is None:
            joined = self._markers[node_id] = Batcher(self._writer(node_id), asyncio.Lock())
        return await joined.run(marked)

    def _writer(self, node_id: int) -> Callable[[Sequence[Marked]], Any]:
        async def write(group: Sequence[Marked]) -> list[Codes]:
            markers: list[DictOf[types.WriteTxnMarkersRequestMarker]] = [
                {
                    "producer_id": each.marker.producer_id,
                    "producer_epoch": each.marker.producer_epoch,
                    "transaction_result": each.marker.is_commit,
                    "coordinator_epoch": each.marker.coordinator_epoch,
                    "transaction_version": each.marker.transaction_version,
                    "topics": [
                        {"name": topic, "partition_indexes": indexes}
                        for topic, indexes in _by_topic(each.partitions).items()
                    ],
                }
                for each in group
            ]
            answer: types.WriteTxnMarkersResponse = await self._peers.call(
                node_id, ApiKey.WRITE_TXN_MARKERS, {"markers": markers}
            )
            asked = [each.marker.producer_id for each in group]
            if [each.producer_id for each in answer.markers] != asked:
                raise _answers_something_else(node_id, ApiKey.WRITE_TXN_MARKERS)
            return [
                {
                    TopicPartition(topic.name, each.partition_index): error_code(each.error_code)
                    for topic in answered.topics
                    for each in topic.partitions
                }
                for answered in answer.markers
            ]

        return write

    async def take_part(self, node_id: int, asked: Participation) -> Codes:
        """Ask the coordinator of a transactional id; the code of each partition. Raises ApiError."""
        joined = self._participations.get(node_id)
        if joined is None:
            joined = self._participations[node_id] = Batcher(self._asker(node_id), asyncio.Lock())
        return await joined.run(asked)

    def _asker(self, node_id: int) -> Callable[[Sequence[Participation]], Any]:
        async def ask(group: Sequence[Participation]) -> list[Codes | Exception]:
            answers: dict[int, Codes | Exception] = {}
            for places in _each_id_once(group):
                try:
                    found = await self._ask_all(node_id, [group[place] for place in places])
                    answers.update(zip(places, found, strict=True))
                except ApiError as error:
                    answers.update(dict.fromkeys(places, error))
            return [answers[place] for place in range(len(group))]

        return ask

    async def _ask_all(self, node_id: int, group: Sequence[Participation]) -> list[Codes]:
        """`group` names each transactional id once."""
        transactions: list[DictOf[types.AddPartitionsToTxnRequestTransaction]] = [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer.producer_id,
                "producer_epoch": each.producer.epoch,
                "verify_only": each.only_verify,
                "topics": [
                    {"name": topic, "partitions": indexes}
                    for topic, indexes in _by_topic(each.partitions).items()
                ],
            }
            for each in group
        ]
        answer: types.AddPartitionsToTxnResponse = await self._peers.call(
            node_id, ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": transactions}
        )
        if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise self._peers.not_authorized(node_id, ApiKey.ADD_PARTITIONS_TO_TXN)
        if answer.error_code:
            raise ApiError(error_code(answer.error_code), f"broker {node_id} cannot say who takes part")
        codes = {
            answered.transactional_id: {
                TopicPartition(topic.name, each.partition_index): error_code(each.partition_error_code)
                for topic in answered.topic_results
                for each in topic.results_by_partition
            }
            for answered in answer.results_by_transaction
        }
        if not codes.keys() >= {each.transactional_id for each in group}:
            raise _answers_something_else(node_id, ApiKey.ADD_PARTITIONS_TO_TXN)
        return [codes[each.transactional_id] for each in group]


def _answers_something_else(node_id: int, api_key: ApiKey) -> ApiError:
    message = f"broker {node_id} answers {api_key.name} for other transactions than it was asked about"
    return ApiError(ErrorCode.NETWORK_EXCEPTION, message)


def _each_id_once(group: Sequence[Participation]) -> Iterator[list[int]]:
    """The places of the group, in runs that name a transactional id once: a request may not name it twice."""
    left = list(range(len(group)))
    while left:
        some: dict[str, int] = {}
        for place in left:
            some.setdefault(group[place].transactional_id, place)
        yield list(some.values())
        left = [place for place in left if place not in set(some.values())]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes
