"""CreateTopics, DeleteTopics and CreatePartitions: requests about topics, turned into changes of the catalog.

Invariants: each topic of a request succeeds or fails alone; one named twice is INVALID_REQUEST; validate_only
changes nothing and answers as if it had; an answer comes once the change is durable.

Versions: a client above its quota of changes is refused from CreateTopics 6, DeleteTopics 5 and
CreatePartitions 3 on, before that it waits. CreateTopics describes the new topic from 5 on, with its id from
7 on. DeleteTopics names topics by id too from 6 on. Source: Kafka's ReplicationControlManager and
ControllerApis; KIP-195, KIP-464, KIP-516, KIP-525, KIP-599.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar
from uuid import UUID

from tidelog.broker.cluster.catalog import Topic
from tidelog.broker.cluster.placement import MAX_PARTITIONS_PER_REQUEST
from tidelog.broker.configuration.topic_settings import check_number_of_settings
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.handlers.metadata import NO_TOPIC_ID
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.security.required_access import (
    ALTER_TOPIC,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
)
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, Steps, each

STEP_COST_TOPIC = 10
"""Planning a topic and describing its settings counts as this many elements (see `protocol.steps`)."""
STEP_COST_CHANGE = 2
_NamedT = TypeVar("_NamedT", "types.CreateTopicsRequestTopic", "types.CreatePartitionsRequestTopic")
_UNKNOWN_TOPIC = "This server does not host this topic-partition."


class TopicsHandler(GuardedHandler):
    """Serves CreateTopics 2-7, DeleteTopics 1-6 and CreatePartitions 0-3."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._topics = services.topics

    async def create_topics(
        self, context: RequestContext, request: types.CreateTopicsRequest
    ) -> DictOf[types.CreateTopicsResponse]:
        turns, pace = self._services.turns, Pace()
        quota = self._services.quotas.for_mutations(context.connection.principal.name, context.header)
        times, by_name, asked = await turns.run(_named(request.topics, _partitions_of, pace))

        async def create(
            named: tuple[str, types.CreateTopicsRequestTopic],
        ) -> DictOf[types.CreateTopicsResponseTopic]:
            name, wanted = named
            try:
                if asked > MAX_PARTITIONS_PER_REQUEST:
                    raise _too_many(asked)
                if times[name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                if not self._access.allows_one(context, (CREATE_CLUSTER, CREATE_TOPIC), name):
                    raise ApiError(CREATE_TOPIC.refusal, "Authorization failed.")
                new_topic = await turns.run(_new_topic(wanted, pace))
                if quota.is_limited and not request.validate_only:
                    planned = await self._topics.create(name, new_topic, validate_only=True)
                    quota.charge(len(planned.partitions))
                created = await self._topics.create(name, new_topic, validate_only=request.validate_only)
            except ApiError as error:
                code, message = error.code, error.message
                return {"name": name, "error_code": code, "error_message": message, "configs": None}
            return self._created(context, created, validate_only=request.validate_only)

        answers = await turns.together(create, by_name.items(), pace, STEP_COST_TOPIC)
        context.connection.above_mutation_quota = context.header if quota.is_exceeded else None
        return {"topics": answers}

    def _created(
        self, context: RequestContext, topic: Topic, *, validate_only: bool
    ) -> DictOf[types.CreateTopicsResponseTopic]:
        answer: DictOf[types.CreateTopicsResponseTopic] = {
            "name": topic.name,
            "topic_id": NO_TOPIC_ID if validate_only else topic.topic_id,
            "error_code": ErrorCode.NONE,
            "error_message": None,
        }
        if not self._access.shows(context, DESCRIBE_TOPIC_CONFIGS, topic.name):
            return {**answer, "topic_config_error_code": DESCRIBE_TOPIC_CONFIGS.refusal, "configs": None}
        return {
            **answer,
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

    async def delete_topics(
        self, context: RequestContext, request: types.DeleteTopicsRequest
    ) -> DictOf[types.DeleteTopicsResponse]:
        turns, pace = self._services.turns, Pace()
        quota = self._services.quotas.for_mutations(context.connection.principal.name, context.header)
        wanted = await turns.run(_to_delete(request, pace))

        async def delete(
            asked: tuple[tuple[str | None, UUID], int],
        ) -> DictOf[types.DeleteTopicsResponseResponse]:
            (name, topic_id), times = asked
            code: ErrorCode = ErrorCode.NONE
            message: str | None = None
            try:
                if times > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
                topic = self._find_for_deletion(context, name, topic_id)
                # The answer names a topic only if the request does, or once it is found by id.
                is_by_id = name is None
                if is_by_id and self._access.shows(context, DESCRIBE_TOPIC, topic.name):
                    name = topic.name
                if not self._access.allows_one(context, (DELETE_CLUSTER, DELETE_TOPIC), topic.name):
                    raise ApiError(DELETE_TOPIC.refusal)
                name, topic_id = topic.name, topic.topic_id
                quota.charge(len(topic.partitions))
                await self._topics.delete(topic.topic_id)
            except ApiError as error:
                code, message = error.code, error.message
            return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}

        answers = await turns.together(delete, wanted.items(), pace)
        context.connection.above_mutation_quota = context.header if quota.is_exceeded else None
        return {"responses": answers}

    def _find_for_deletion(self, context: RequestContext, name: str | None, topic_id: UUID) -> Topic:
        catalog = self._services.catalog
        if name is not None and topic_id != NO_TOPIC_ID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if name is not None:
            # Who may not describe a topic does not get to know whether it exists.
            if not self._access.shows(context, DELETE_CLUSTER, CLUSTER_NAME):
                self._access.check(context, DESCRIBE_TOPIC, name)
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

    async def create_partitions(
        self, context: RequestContext, request: types.CreatePartitionsRequest
    ) -> DictOf[types.CreatePartitionsResponse]:
        turns, pace = self._services.turns, Pace()
        quota = self._services.quotas.for_mutations(context.connection.principal.name, context.header)
        times, by_name, asked = await turns.run(_named(request.topics, attrgetter("count"), pace))

        async def grow(
            named: tuple[str, types.CreatePartitionsRequestTopic],
        ) -> DictOf[types.CreatePartitionsResponseResult]:
            name, wanted = named
            code, message = ErrorCode.NONE, None
            try:
                if asked > MAX_PARTITIONS_PER_REQUEST and len(by_name) > 1:
                    raise _too_many(asked)
                if times[name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                self._access.check(context, ALTER_TOPIC, name)
                assignments = await turns.run(_new_replicas(wanted, pace))
                if quota.is_limited and not request.validate_only:
                    await self._topics.add_partitions(name, wanted.count, assignments, validate_only=True)
                    quota.charge(wanted.count - self._partition_count(name))
                await self._topics.add_partitions(
                    name, wanted.count, assignments, validate_only=request.validate_only
                )
            except ApiError as error:
                code, message = error.code, error.message
            return {"name": name, "error_code": code, "error_message": message}

        answers = await turns.together(grow, by_name.items(), pace, STEP_COST_CHANGE)
        context.connection.above_mutation_quota = context.header if quota.is_exceeded else None
        return {"results": answers}

    def _partition_count(self, name: str) -> int:
        topic = self._services.catalog.topic(name)
        return 0 if topic is None else len(topic.partitions)


def _named(
    topics: Sequence[_NamedT], partitions_of: Callable[[_NamedT], int], pace: Pace
) -> Steps[tuple[Counter[str], dict[str, _NamedT], int]]:
    """How often each topic is named, what is requested for it, and the number of partitions in all."""
    times: Counter[str] = Counter()
    by_name: dict[str, _NamedT] = {}
    asked = 0
    for topic in topics:
        times[topic.name] += 1
        by_name[topic.name] = topic
        asked += max(partitions_of(topic), 1)
        if pace.spent():
            yield
    return times, by_name, asked


def _partitions_of(new_topic: types.CreateTopicsRequestTopic) -> int:
    return max(new_topic.num_partitions, len(new_topic.assignments))


def _to_delete(request: types.DeleteTopicsRequest, pace: Pace) -> Steps[Counter[tuple[str | None, UUID]]]:
    """How often each (name, id) is named."""
    times: Counter[tuple[str | None, UUID]] = Counter()
    named: Sequence[types.DeleteTopicsRequestTopic | str] = request.topics or request.topic_names
    for topic in named:
        times[(topic, NO_TOPIC_ID) if isinstance(topic, str) else (topic.name, topic.topic_id)] += 1
        if pace.spent():
            yield
    return times


def _too_many(asked: int) -> ApiError:
    return ApiError(
        ErrorCode.POLICY_VIOLATION,
        f"{asked} partitions in one request are too many: at most {MAX_PARTITIONS_PER_REQUEST} are allowed",
    )


def _new_topic(wanted: types.CreateTopicsRequestTopic, pace: Pace) -> Steps[NewTopic]:
    assignments: dict[int, list[int]] | None = None
    if wanted.assignments:
        assignments = {}
        for held in wanted.assignments:
            assignments[held.partition_index] = held.broker_ids
            if pace.spent():
                yield
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
    check_number_of_settings(len(wanted.configs))
    names = Counter(config.name for config in wanted.configs)
    if any(count > 1 for count in names.values()):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The request sets a topic setting more than once.")
    return NewTopic(
        num_partitions=wanted.num_partitions,
        replication_factor=wanted.replication_factor,
        assignments=assignments,
        configs={config.name: config.value for config in wanted.configs},
    )


def _new_replicas(wanted: types.CreatePartitionsRequestTopic, pace: Pace) -> Steps[list[list[int]] | None]:
    """The replicas of each new partition, or None if the broker chooses them."""
    if wanted.assignments is None:
        return None
    return (yield from each(attrgetter("broker_ids"), wanted.assignments, pace))
