"""ApiVersions, Metadata and DescribeCluster: what a client asks before anything else.

Owns the answers about who is there and who leads what. Topics that do not exist are created on the way
when both the client and `auto.create.topics.enable` allow it, and are answered at once, so that no client
has to come back after LEADER_NOT_AVAILABLE.

Invariants: no topic's name is ever null, also for an id that nobody knows: Kafka's is, from Metadata 12 on,
and clients have died of it, so it is empty here; a topic id decides, whatever name stands beside it, because
Java's admin sends an empty one; the address in an answer is the one advertised for the
listener that the request came in by.

Called by dispatch on the event loop. Source: Kafka's KafkaApis.handleTopicMetadataRequest, KIP-430, KIP-516.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any
from uuid import UUID

from tidelog.broker.cluster.catalog import Topic, check_topic_name
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.served_apis import advertised_api_keys
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode

NO_LEADER = -1
NO_TOPIC_ID = UUID(int=0)
MAX_CREATED_AT_ONCE = 100
"""Topics that one Metadata request may create."""
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""Read, write, create, delete, alter, describe, describe and alter configs: with no ACLs, all are allowed."""
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""Create, alter, describe, cluster action, describe configs, alter configs, idempotent write."""


class MetadataHandler:
    """Serves ApiVersions 0-4, Metadata 0-12 and DescribeCluster 0-1."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._api_keys = advertised_api_keys()

    def api_versions(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """Every API that works here. A version out of range never comes this far: dispatch answers it."""
        return {"error_code": ErrorCode.NONE, "api_keys": self._api_keys}

    def metadata(self, context: RequestContext, request: Any) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        version = context.header.api_version
        wanted = request.topics
        if wanted is None or (version == 0 and not wanted):
            return self._response(context, request, self._all_topics(request))
        missing = self._missing(wanted)
        if missing and request.allow_auto_topic_creation and self._services.config.auto_create_topics_enable:
            return self._create_then_answer(context, request, missing)
        return self._response(context, request, self._topics(context, request, {}))

    def _missing(self, wanted: Sequence[Any]) -> list[str]:
        catalog = self._services.catalog
        names = (topic.name for topic in wanted if _is_by_name(topic))
        return [name for name in dict.fromkeys(names) if catalog.topic(name) is None]

    async def _create_then_answer(
        self, context: RequestContext, request: Any, missing: Sequence[str]
    ) -> dict[str, Any]:
        refused: dict[str, ErrorCode] = {}
        for name in missing[MAX_CREATED_AT_ONCE:]:
            refused[name] = ErrorCode.LEADER_NOT_AVAILABLE  # The client asks again, and finds more of them.
        for name in missing[:MAX_CREATED_AT_ONCE]:
            try:
                await self._services.topics.create(name)
            except ApiError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    refused[name] = error.code
        return self._response(context, request, self._topics(context, request, refused))

    def _all_topics(self, request: Any) -> list[dict[str, Any]]:
        return [self._topic(topic, request) for topic in self._services.catalog.topics()]

    def _topics(
        self, context: RequestContext, request: Any, refused: dict[str, ErrorCode]
    ) -> list[dict[str, Any]]:
        catalog = self._services.catalog
        answers = []
        seen: set[str | UUID] = set()
        for wanted in request.topics:
            by_name = _is_by_name(wanted)
            key: str | UUID = wanted.name if by_name else wanted.topic_id
            if key in seen:
                continue
            seen.add(key)
            topic = catalog.topic(wanted.name) if by_name else catalog.topic_by_id(wanted.topic_id)
            if topic is not None:
                answers.append(self._topic(topic, request))
            elif by_name:
                code = refused.get(wanted.name) or _code_of_unknown(wanted.name)
                answers.append({"error_code": code, "name": wanted.name})
            else:
                answers.append(
                    {
                        "error_code": ErrorCode.UNKNOWN_TOPIC_ID,
                        "name": "",
                        "topic_id": wanted.topic_id,
                    }
                )
        return answers

    def _topic(self, topic: Topic, request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "error_code": ErrorCode.NONE,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.is_internal,
            "partitions": [self._partition(topic, index) for index in range(len(topic.partitions))],
        }
        if request.include_topic_authorized_operations:
            answer["topic_authorized_operations"] = TOPIC_OPERATIONS
        return answer

    def _partition(self, topic: Topic, index: int) -> dict[str, Any]:
        assigned = topic.partitions[index]
        answer: dict[str, Any] = {
            "error_code": ErrorCode.NONE,
            "partition_index": index,
            "leader_id": assigned.leader_id,
            "leader_epoch": assigned.leader_epoch,
            "replica_nodes": list(assigned.replicas),
            "isr_nodes": list(assigned.isr),
            "offline_replicas": [],
        }
        if assigned.leader_id == self._services.node_id:
            replica = self._services.replicas.get((topic.name, index))
            if replica is None or replica.stopped is not None:
                answer["error_code"] = ErrorCode.LEADER_NOT_AVAILABLE
                answer["leader_id"] = NO_LEADER
                answer["offline_replicas"] = [self._services.node_id]
        return answer

    def _response(
        self, context: RequestContext, request: Any, topics: list[dict[str, Any]]
    ) -> dict[str, Any]:
        services, listener = self._services, context.listener
        answer: dict[str, Any] = {
            "brokers": [{"node_id": services.node_id, "host": listener.host, "port": listener.port}],
            "cluster_id": services.catalog.cluster_id,
            "controller_id": services.node_id,
            "topics": topics,
        }
        if request.include_cluster_authorized_operations:
            answer["cluster_authorized_operations"] = CLUSTER_OPERATIONS
        return answer

    def describe_cluster(self, context: RequestContext, request: Any) -> dict[str, Any]:
        services, listener = self._services, context.listener
        brokers_endpoint = 1
        asked = request.endpoint_type
        if asked != brokers_endpoint:
            return {
                "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "error_message": f"this listener serves brokers (endpoint type 1), not endpoint type {asked}",
                "endpoint_type": asked,
                "cluster_id": services.catalog.cluster_id,
            }
        answer: dict[str, Any] = {
            "cluster_id": services.catalog.cluster_id,
            "controller_id": services.node_id,
            "brokers": [{"broker_id": services.node_id, "host": listener.host, "port": listener.port}],
        }
        if request.include_cluster_authorized_operations:
            answer["cluster_authorized_operations"] = CLUSTER_OPERATIONS
        return answer


def _is_by_name(wanted: Any) -> bool:
    """Java's admin sends an empty name, not a null one, beside an id: the id decides, as it does in Kafka."""
    return wanted.name is not None and wanted.topic_id == NO_TOPIC_ID


def _code_of_unknown(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
