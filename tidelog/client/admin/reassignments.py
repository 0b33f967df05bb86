"""Administration of reassignments: on which brokers the replicas of partitions are.

Owns: the requests of `Admin.reassignments`. Source: KIP-455.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidelog.client.admin.requests import Requests, itself
from tidelog.client.admin.types import Reassignment
from tidelog.protocol import message_types as types
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition


class ReassignmentAdmin:
    """The reassignments of a cluster. Every call raises ClientError."""

    def __init__(self, requests: Requests) -> None:
        self._ask = requests.to_controller

    async def alter(self, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Begin to give each partition the replicas on these brokers, the preferred leader first. None
        cancels a reassignment. The brokers complete it later: see `list`.

        Raises BrokerError, which names those that are refused, after it has asked for all partitions.
        """
        left = dict(replicas)
        what = ""

        def values(_: int) -> "DictOf[types.AlterPartitionReassignmentsRequest]":
            topics: defaultdict[str, list[DictOf[types.AlterPartitionReassignmentsRequestPartition]]]
            topics = defaultdict(list)
            for (topic, partition), brokers in left.items():
                wanted = None if brokers is None else list(brokers)
                topics[topic].append({"partition_index": partition, "replicas": wanted})
            return {"topics": [{"name": name, "partitions": some} for name, some in topics.items()]}

        def results(answer: "types.AlterPartitionReassignmentsResponse") -> Iterator[Any]:
            nonlocal what
            what = "the reassignments"
            yield answer
            for topic in answer.responses:
                for result in topic.partitions:
                    what = f"the reassignment of {topic.name}-{result.partition_index}"
                    if not result.error_code:  # A second cancellation would find nothing.
                        left.pop(TopicPartition(topic.name, result.partition_index), None)
                    yield result

        await self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, values, results, lambda _: what)

    async def list(self) -> dict[TopicPartition, Reassignment]:
        """The reassignments in progress."""
        answer: types.ListPartitionReassignmentsResponse = await self._ask(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            {"topics": None},
            itself,
            lambda _: "the list of reassignments",
        )
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }
