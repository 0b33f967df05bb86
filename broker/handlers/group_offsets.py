"""OffsetFetch and OffsetCommit: what groups have committed, which is nothing as long as there are no groups.

Owns the two answers. Every partition that is asked for has offset -1, so a consumer with a group.id begins
where its auto.offset.reset says. A commit is refused with UNKNOWN_MEMBER_ID: clients report a failed commit,
and read on when that was an automatic one. librdkafka takes it for granted that a coordinator serves
OffsetFetch: without it, the process of the client ends.

Invariants: each group is answered with its topics and partitions as they were asked for, each once; a topic
that is unknown by name has nothing committed, as in Kafka, one that is unknown by id has UNKNOWN_TOPIC_ID.

Source: Kafka's OffsetMetadataManager.fetchOffsets, KIP-709 (several groups), KIP-848 (topic ids).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.steps import NUMBERS_AN_ELEMENT, Pace, Steps, each
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_OFFSET

_TOPIC_IDS_FROM = 10


class GroupOffsetsHandler:
    """Serves OffsetFetch 1-10 and OffsetCommit 2-10."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._said_that_commits_fail = False

    def offset_fetch(self, context: RequestContext, request: Any) -> Steps[dict[str, Any]]:
        """An answer for each group, or for the one that older versions name; all topics (null) gives none."""
        pace = Pace()
        field = "topic_id" if context.header.api_version >= _TOPIC_IDS_FROM else "name"
        wanted: dict[str, list[Any]] = {}
        for group in request.groups:
            wanted.setdefault(group.group_id, []).extend(group.topics or ())
            if pace.spent():
                yield
        groups = []
        for group_id, group_topics in wanted.items():
            topics = yield from self._nothing(group_topics, field, pace)
            groups.append({"group_id": group_id, "topics": topics})
            if pace.spent():
                yield
        return {"topics": (yield from self._nothing(request.topics or (), field, pace)), "groups": groups}

    def _nothing(self, topics: Sequence[Any], field: str, pace: Pace) -> Steps[list[dict[str, Any]]]:
        """That nothing is committed in the partitions of these topics, which `field` names."""
        wanted: dict[str | UUID, dict[int, None]] = {}
        for topic in topics:
            wanted.setdefault(topic[field], {}).update(dict.fromkeys(topic.partition_indexes))
            if pace.spent(1 + len(topic.partition_indexes) // NUMBERS_AN_ELEMENT):
                yield
        answers = []
        for key, indexes in wanted.items():
            is_unknown = isinstance(key, UUID) and self._services.catalog.topic_by_id(key) is None
            code = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown else ErrorCode.NONE
            partitions = yield from each(partial(_nothing_in, code), indexes, pace)
            answers.append({field: key, "partitions": partitions})
            if pace.spent():
                yield
        return answers

    def offset_commit(self, context: RequestContext, request: Any) -> dict[str, Any]:
        if not self._said_that_commits_fail:
            # The answer has no room for words. Once, for clients commit again and again.
            self._said_that_commits_fail = True
            self._services.events.warning(
                "offset_commit_refused",
                context.connection.client_host,
                group_id=request.group_id,
                client_id=context.header.client_id,
                client_host=context.connection.client_host,
                advice="this broker has no consumer groups yet: keep offsets in the application, or set "
                "enable.auto.commit=false",
            )
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)


def _nothing_in(code: ErrorCode, index: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_LEADER_EPOCH,
        "metadata": "",
        "error_code": code,
    }
