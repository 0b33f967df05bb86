"""CreateTopics, DeleteTopics and CreatePartitions: requests about topics, turned into changes of the catalog.

Owns the three answers; what is allowed is decided by `broker.topics` and the catalog.

Invariants: each topic of a request succeeds or fails alone; one named twice is INVALID_REQUEST; validate_only
changes nothing and answers as if it had; an answer comes once the change is durable.

Called by dispatch on the event loop. Source: Kafka's ReplicationControlManager and ControllerApis,
KIP-464 (default partitions), KIP-516 (ids), KIP-525 (configs in the answer), KIP-195 (CreatePartitions).
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from tidelog.broker.cluster.catalog import MAX_PARTITIONS_PER_REQUEST, Topic
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.handlers.metadata import NO_TOPIC_ID
from tidelog.broker.services import Services
from tidelog.broker.topics import NewTopic
from tidelog.protocol.errors import ApiError, ErrorCode

_UNKNOWN_TOPIC = "This server does not host this topic-partition."


class TopicsHandler:
    """Serves CreateTopics 2-7, DeleteTopics 1-6 and CreatePartitions 0-3."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._topics = services.topics

    async def create_topics(self, context: RequestContext, request: Any) -> dict[str, Any]:
        times = Counter(topic.name for topic in request.topics)
        by_name = {topic.name: topic for topic in request.topics}
        answers = []
        asked = sum(max(topic.num_partitions, len(topic.assignments), 1) for topic in request.topics)
        if asked > MAX_PARTITIONS_PER_REQUEST:
            return {"topics": [_topic_refused(name, _too_many(asked)) for name in times]}
        for name, wanted in by_name.items():
            try:
                if times[name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                created = await self._topics.create(
                    name, _new_topic(wanted), validate_only=request.validate_only
                )
            except ApiError as error:
                answers.append(_topic_refused(name, error))
            else:
                answers.append(self._created(created, validate_only=request.validate_only))
        return {"topics": answers}

    def _created(self, topic: Topic, *, validate_only: bool) -> dict[str, Any]:
        return {
            "name": topic.name,
            "topic_id": NO_TOPIC_ID if validate_only else topic.topic_id,
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "num_partitions": len(topic.partitions),
            "replication_factor": len(topic.partitions[0].replicas),
            "configs": [
                {
                    "name": setting.name,
                    "value": setting.value,
                    "read_only": False,
                    "config_source": setting.source,
                    "is_sensitive": False,
                }
                for setting in self._topics.settings.describe(topic.configs)
            ],
        }

    async def delete_topics(self, context: RequestContext, request: Any) -> dict[str, Any]:
        wanted: list[tuple[str | None, UUID]]
        if request.topics:
            wanted = [(topic.name, topic.topic_id) for topic in request.topics]
        else:
            wanted = [(name, NO_TOPIC_ID) for name in request.topic_names or ()]
        answers = []
        for (name, topic_id), times in Counter(wanted).items():
            code: ErrorCode = ErrorCode.NONE
            message: str | None = None
            try:
                if times > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
                topic = self._find_for_deletion(name, topic_id)
                # The name of a topic is told only to who asked by name, or once it is found by id.
                name, topic_id = topic.name, topic.topic_id
                await self._topics.delete(topic.topic_id)
            except ApiError as error:
                code, message = error.code, error.message
            answers.append({"name": name, "topic_id": topic_id, "error_code": code, "error_message": message})
        return {"responses": answers}

    def _find_for_deletion(self, name: str | None, topic_id: UUID) -> Topic:
        catalog = self._services.catalog
        if name is not None and topic_id != NO_TOPIC_ID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if name is not None:
            topic = catalog.topic(name)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC)
            return topic
        if topic_id == NO_TOPIC_ID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        topic = catalog.topic_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        return topic

    async def create_partitions(self, context: RequestContext, request: Any) -> dict[str, Any]:
        times = Counter(topic.name for topic in request.topics)
        by_name = {topic.name: topic for topic in request.topics}
        answers = []
        asked = sum(max(topic.count, 1) for topic in request.topics)
        if asked > MAX_PARTITIONS_PER_REQUEST and len(times) > 1:
            error = _too_many(asked)
            return {
                "results": [
                    {"name": name, "error_code": error.code, "error_message": error.message} for name in times
                ]
            }
        for name, wanted in by_name.items():
            assignments = None
            if wanted.assignments is not None:
                assignments = [list(assignment.broker_ids) for assignment in wanted.assignments]
            try:
                if times[name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                await self._topics.add_partitions(
                    name, wanted.count, assignments, validate_only=request.validate_only
                )
            except ApiError as error:
                answers.append({"name": name, "error_code": error.code, "error_message": error.message})
            else:
                answers.append({"name": name, "error_code": ErrorCode.NONE, "error_message": None})
        return {"results": answers}


def _too_many(asked: int) -> ApiError:
    return ApiError(
        ErrorCode.POLICY_VIOLATION,
        f"{asked} partitions in one request are too many: at most {MAX_PARTITIONS_PER_REQUEST} are allowed",
    )


def _new_topic(wanted: Any) -> NewTopic:
    assignments: dict[int, list[int]] | None = None
    if wanted.assignments:
        assignments = {held.partition_index: list(held.broker_ids) for held in wanted.assignments}
        if len(assignments) != len(wanted.assignments):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "The manual assignment names a partition more than once.",
            )
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "With a manual assignment, num_partitions and replication_factor must both be -1.",
            )
    names = Counter(config.name for config in wanted.configs)
    if any(count > 1 for count in names.values()):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The request sets a topic setting more than once.")
    return NewTopic(
        num_partitions=wanted.num_partitions,
        replication_factor=wanted.replication_factor,
        assignments=assignments,
        configs={config.name: config.value for config in wanted.configs},
    )


def _topic_refused(name: str, error: ApiError) -> dict[str, Any]:
    return {
        "name": name,
        "error_code": error.code,
        "error_message": error.message,
        "configs": None,
    }
