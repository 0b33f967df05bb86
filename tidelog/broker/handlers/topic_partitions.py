"""DescribeTopicPartitions: topics in the order of their names, with a limited number of partitions per
answer.

Owns which partitions one answer has, and the cursor at which the next answer begins. An answer has at most
`response_partition_limit` partitions, at most `max.request.partition.size.limit`, and at least one.

Invariants: a topic is answered once, however often it is named. With cursors, a client gets each partition
that existed all the time exactly once.

Source: KIP-966, Kafka's DescribeTopicPartitionsRequestHandler and KRaftMetadataCache.describeTopicResponse.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from heapq import heapify, heappop

from tidelog.broker.cluster.catalog import Topic
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.handlers.metadata import code_of_unknown, described_partition
from tidelog.broker.security.required_access import DESCRIBE_TOPIC
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import ResourceType
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, Steps, each


class TopicPartitionsHandler(GuardedHandler):
    """Serves DescribeTopicPartitions 0."""

    def describe_topic_partitions(
        self, context: RequestContext, request: types.DescribeTopicPartitionsRequest
    ) -> Steps[DictOf[types.DescribeTopicPartitionsResponse]]:
        pace = Pace()
        cursor = request.cursor
        names = yield from self._names(context, request, pace)
        left = min(request.response_partition_limit, self._services.config.max_request_partition_size_limit)
        left = max(1, left)
        answers: list[DictOf[types.DescribeTopicPartitionsResponseTopic]] = []
        while names:
            name = heappop(names)
            if left == 0:
                return _answer(answers, name, 0)
            topic = self._services.catalog.topic(name)
            if request.topics and not self._access.allows(context, DESCRIBE_TOPIC, name):
                answers.append({"error_code": DESCRIBE_TOPIC.refusal, "name": name})
            elif topic is not None:
                begin = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
                end = min(begin + left, len(topic.partitions))
                partitions = yield from each(partial(self._partition, topic), range(begin, end), pace)
                operations = self._access.operations(context, ResourceType.TOPIC, name)
                answers.append(_described_topic(topic, partitions, operations))
                left -= len(partitions)
                if end < len(topic.partitions):
                    return _answer(answers, name, end)
            elif request.topics:
                answers.append({"error_code": code_of_unknown(name), "name": name})
            if pace.spent():
                yield
        return _answer(answers)

    def _names(
        self, context: RequestContext, request: types.DescribeTopicPartitionsRequest, pace: Pace
    ) -> Steps[list[str]]:
        """A heap of the names to answer: none before the cursor. Raises ApiError for a bad cursor."""
        cursor = request.cursor
        first = "" if cursor is None else cursor.topic_name
        names: set[str] = set()
        candidates: Sequence[Topic | types.DescribeTopicPartitionsRequestTopic] = request.topics or list(
            self._services.catalog.topics()
        )
        for topic in candidates:
            is_named = bool(request.topics)
            if topic.name >= first and (is_named or self._access.shows(context, DESCRIBE_TOPIC, topic.name)):
                names.add(topic.name)
            if pace.spent():
                yield
        if cursor is not None and cursor.partition_index < 0:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the cursor's partition index: expected 0 or more, got {cursor.partition_index}",
            )
        if cursor is not None and request.topics and first not in names:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the cursor's topic {first} is not among the topics")
        heap = list(names)
        heapify(heap)
        return heap

    def _partition(self, topic: Topic, index: int) -> DictOf[types.DescribeTopicPartitionsResponsePartition]:
        described = described_partition(self._services, topic, index)
        eligible, none = list(topic.partitions[index].elr), list[int]()
        return {**described, "eligible_leader_replicas": eligible, "last_known_elr": none}


def _described_topic(
    topic: Topic, partitions: list[DictOf[types.DescribeTopicPartitionsResponsePartition]], operations: int
) -> DictOf[types.DescribeTopicPartitionsResponseTopic]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": partitions,
        "topic_authorized_operations": operations,
    }


def _answer(
    topics: list[DictOf[types.DescribeTopicPartitionsResponseTopic]],
    next_topic: str | None = None,
    next_partition: int = 0,
) -> DictOf[types.DescribeTopicPartitionsResponse]:
    """`next_topic`: the topic and partition at which the next answer begins; None after the last."""
    if next_topic is None:
        return {"topics": topics, "next_cursor": None}
    return {"topics": topics, "next_cursor": {"topic_name": next_topic, "partition_index": next_partition}}
