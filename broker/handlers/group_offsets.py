"""OffsetFetch and OffsetCommit: what groups have committed, which is nothing as long as there are no groups.

Owns the two answers. Every partition that is asked for has offset -1, so a consumer with a group.id begins
where its auto.offset.reset says. A commit is refused with UNKNOWN_MEMBER_ID: clients report a failed commit,
and read on when that was an automatic one. librdkafka takes it for granted that a coordinator serves
OffsetFetch: without it, the process of the client ends.

Invariants: each group is answered with its topics and partitions as they were asked for; a topic that is
unknown by name has nothing committed, as in Kafka, and one that is unknown by id has UNKNOWN_TOPIC_ID.

Source: Kafka's OffsetMetadataManager.fetchOffsets, KIP-709 (several groups), KIP-848 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_OFFSET

_TOPIC_IDS_FROM = 10


class GroupOffsetsHandler:
    """Serves OffsetFetch 1-10 and OffsetCommit 2-10."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._said_that_commits_fail = False

    def offset_fetch(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """An answer for each group, or for the one that older versions name; all topics (null) gives none."""
        by_id = context.header.api_version >= _TOPIC_IDS_FROM
        answer = self._nothing_by_id if by_id else _nothing_by_name
        return {
            "topics": _of_each(request.topics, answer),
            "groups": [
                {"group_id": group.group_id, "topics": _of_each(group.topics, answer)}
                for group in request.groups
            ],
        }

    def _nothing_by_id(self, topic: Any) -> dict[str, Any]:
        is_known = self._services.catalog.topic_by_id(topic.topic_id) is not None
        code = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_ID
        return {"topic_id": topic.topic_id, "partitions": _nothing(topic.partition_indexes, code)}

    def offset_commit(self, context: RequestContext, request: Any) -> dict[str, Any]:
        if not self._said_that_commits_fail:
            # The answer has no room for words. Once, for clients commit again and again.
            self._said_that_commits_fail = True
            self._services.events.warning(
                "offset_commit_refused",
                context.client_host,
                group_id=request.group_id,
                client_id=context.header.client_id,
                client_host=context.client_host,
                advice="this broker has no consumer groups yet: keep offsets in the application, or set "
                "enable.auto.commit=false",
            )
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)


def _of_each(topics: Sequence[Any] | None, answer: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    return [answer(topic) for topic in topics or ()]


def _nothing_by_name(topic: Any) -> dict[str, Any]:
    return {"name": topic.name, "partitions": _nothing(topic.partition_indexes, ErrorCode.NONE)}


def _nothing(partition_indexes: Sequence[int], code: ErrorCode) -> list[dict[str, Any]]:
    return [
        {
            "partition_index": index,
            "committed_offset": NO_OFFSET,
            "committed_leader_epoch": NO_LEADER_EPOCH,
            "metadata": "",
            "error_code": code,
        }
        for index in partition_indexes
    ]
