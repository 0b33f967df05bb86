"""ApiVersions, Metadata and DescribeCluster: the first requests of every client.

Metadata creates topics that do not exist when both the client and `auto.create.topics.enable` allow it, and
answers with them at once, so that no client has to retry after LEADER_NOT_AVAILABLE.

Invariants: the name of an unknown id is never null: Kafka sends null there from Metadata 12 on, and clients
have crashed on it, so it is empty here; the name of a topic that the client may not see is null from then on,
as in Kafka, if it asked by id; a topic id decides, whatever name is sent with it, because Java's admin sends
an empty one; the address in an answer is the one advertised for the listener of the request.

Versions: ApiVersions has names of clients and features from 3 on. Metadata 0 asks for all topics by an empty
list; from 4 on the client says whether to create topics, from 8 on it may ask for authorized operations, from
10 on it names topics by id too. DescribeCluster has types of endpoints from 1 on, fenced brokers from 2 on.
Source: Kafka's KafkaApis.handleTopicMetadataRequest, KIP-430, KIP-516.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from tidelog.broker.cluster.catalog import NO_LEADER, Topic, check_topic_name
from tidelog.broker.features import api_versions_features
from tidelog.broker.handlers.access_control import AccessControl
from tidelog.broker.handlers.brokers import reachable
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.limits.client_quotas import MOST_CLIENT_ID_CHARACTERS
from tidelog.broker.security.required_access import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import ResourceType
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, Steps

NO_TOPIC_ID = UUID(int=0)
MAX_CREATED_AT_ONCE = 100
"""How many topics one Metadata request may create."""
_FIRST_WITHOUT_NAMES = 12
MAX_SOFTWARE_CHARACTERS = 100
"""Maximum length that is kept of a client's name and version."""


class MetadataHandler:
    """Serves ApiVersions 0-4, Metadata 0-13 and DescribeCluster 0-2."""

    def __init__(
        self, services: Services, api_keys: Sequence[DictOf[types.ApiVersionsResponseApiKey]]
    ) -> None:
        """`api_keys` are those of an ApiVersions response."""
        self._services = services
        self._access = AccessControl(services)
        self._api_keys = api_keys
        self._features = api_versions_features()

    def api_versions(
        self, context: RequestContext, request: types.ApiVersionsRequest
    ) -> DictOf[types.ApiVersionsResponse]:
        """Every API that is served. Dispatch answers a request whose version is out of range."""
        context.connection.client_id = (context.header.client_id or "")[:MOST_CLIENT_ID_CHARACTERS]
        if request.client_software_name:
            software = f"{request.client_software_name} {request.client_software_version}"
            context.connection.client_software = software[:MAX_SOFTWARE_CHARACTERS]
        return {"error_code": ErrorCode.NONE, "api_keys": self._api_keys, **self._features}

    def metadata(
        self, context: RequestContext, request: types.MetadataRequest
    ) -> Steps[DictOf[types.MetadataResponse] | Awaitable[DictOf[types.MetadataResponse]]]:
        version = context.header.api_version
        wanted = request.topics
        pace = Pace()
        if wanted is None or (version == 0 and not wanted):
            return self._response(context, request, (yield from self._all_topics(context, request, pace)))
        if request.allow_auto_topic_creation and self._services.config.auto_create_topics_enable:
            missing = yield from self._missing(context, wanted, pace)
            if missing:
                return self._create_then_answer(context, request, missing)
        topics = yield from self._topics(context, request, code_of_unknown, pace)
        return self._response(context, request, topics)

    def _missing(
        self, context: RequestContext, wanted: Sequence[types.MetadataRequestTopic], pace: Pace
    ) -> Steps[list[str]]:
        """The first names of unknown topics that the client may know of, as many as may be created at
        once."""
        catalog = self._services.catalog
        missing: dict[str, None] = {}
        for topic in wanted:
            name = _name_of(topic)
            if (
                name is not None
                and catalog.topic(name) is None
                and self._access.shows(context, DESCRIBE_TOPIC, name)
            ):
                missing[name] = None
                if len(missing) == MAX_CREATED_AT_ONCE:
                    break
            if pace.spent():
                yield
        return list(missing)

    async def _create_then_answer(
        self, context: RequestContext, request: types.MetadataRequest, missing: Sequence[str]
    ) -> DictOf[types.MetadataResponse]:
        refused: dict[str, ErrorCode] = {}
        quota = self._services.quotas.for_mutations(context.connection.principal.name, context.header)

        async def create(name: str) -> None:
            try:
                if not self._access.allows_one(context, (CREATE_CLUSTER, CREATE_TOPIC), name):
                    raise ApiError(CREATE_TOPIC.refusal)
                created = await self._services.topics.create(name)
                quota.charge(len(created.partitions))
            except ApiError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    refused[name] = error.code

        await self._services.turns.together(create, missing, Pace())
        context.connection.above_mutation_quota = context.header if quota.is_exceeded else None

        def code_of_missing(name: str) -> ErrorCode:
            # If not all could be created at once, the client asks again, and more of them exist then.
            return refused.get(name, ErrorCode.LEADER_NOT_AVAILABLE)

        topics = await self._services.turns.run(self._topics(context, request, code_of_missing, Pace()))
        return self._response(context, request, topics)

    def _all_topics(
        self, context: RequestContext, request: types.MetadataRequest, pace: Pace
    ) -> Steps[list[DictOf[types.MetadataResponseTopic]]]:
        answers = []
        for topic in list(self._services.catalog.topics()):  # The catalog may change between two steps.
            if self._access.shows(context, DESCRIBE_TOPIC, topic.name):
                answers.append((yield from self._topic(context, topic, request, pace)))
            if pace.spent():
                yield
        return answers

    def _topics(
        self,
        context: RequestContext,
        request: types.MetadataRequest,
        code_for: Callable[[str], ErrorCode],
        pace: Pace,
    ) -> Steps[list[DictOf[types.MetadataResponseTopic]]]:
        catalog = self._services.catalog
        answers: list[DictOf[types.MetadataResponseTopic]] = []
        seen: set[str | UUID] = set()
        for wanted in request.topics or ():
            if pace.spent():
                yield
            wanted_name = _name_of(wanted)
            key = wanted.topic_id if wanted_name is None else wanted_name
            if key in seen:
                continue
            seen.add(key)
            if wanted_name is None:
                topic = catalog.topic_by_id(wanted.topic_id)
                name = None if topic is None else topic.name
            else:
                topic, name = catalog.topic(wanted_name), wanted_name
            # An answer names nothing but what the request named.
            if name is not None and not self._access.allows(context, DESCRIBE_TOPIC, name):
                refused: DictOf[types.MetadataResponseTopic] = {
                    "error_code": DESCRIBE_TOPIC.refusal,
                    **_as_named(wanted),
                }
                if wanted_name is None and context.header.api_version >= _FIRST_WITHOUT_NAMES:
                    refused["name"] = None
                answers.append(refused)
            elif topic is not None:
                answers.append((yield from self._topic(context, topic, request, pace)))
            else:
                code = ErrorCode.UNKNOWN_TOPIC_ID if wanted_name is None else code_for(wanted_name)
                answers.append({"error_code": code, **_as_named(wanted)})
        return answers

    def _topic(
        self, context: RequestContext, topic: Topic, request: types.MetadataRequest, pace: Pace
    ) -> Steps[DictOf[types.MetadataResponseTopic]]:
        partitions: list[DictOf[types.MetadataResponsePartition]] = []
        for index in range(len(topic.partitions)):
            partitions.append(described_partition(self._services, topic, index))
            if pace.spent():
                yield
        answer: DictOf[types.MetadataResponseTopic] = {
            "error_code": ErrorCode.NONE,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.is_internal,
            "partitions": partitions,
        }
        if request.include_topic_authorized_operations:
            operations = self._access.operations(context, ResourceType.TOPIC, topic.name)
            answer["topic_authorized_operations"] = operations
        return answer

    def _response(
        self,
        context: RequestContext,
        request: types.MetadataRequest,
        topics: list[DictOf[types.MetadataResponseTopic]],
    ) -> DictOf[types.MetadataResponse]:
        services = self._services
        answer: DictOf[types.MetadataResponse] = {
            "brokers": [
                {"node_id": node_id, "host": listener.host, "port": listener.port, "rack": rack}
                for node_id, listener, rack, _ in reachable(services, context)
            ],
            "cluster_id": services.catalog.cluster_id,
            "controller_id": services.controller_id,
            "topics": topics,
        }
        if request.include_cluster_authorized_operations:
            answer["cluster_authorized_operations"] = self._access.cluster_operations(context)
        return answer

    def describe_cluster(
        self, context: RequestContext, request: types.DescribeClusterRequest
    ) -> DictOf[types.DescribeClusterResponse]:
        services = self._services
        brokers_endpoint = 1
        asked = request.endpoint_type
        if asked != brokers_endpoint:
            return {
                "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "error_message": f"this listener serves brokers (endpoint type 1), not endpoint type {asked}",
                "endpoint_type": asked,
                "cluster_id": services.catalog.cluster_id,
            }
        answer: DictOf[types.DescribeClusterResponse] = {
            "cluster_id": services.catalog.cluster_id,
            "controller_id": services.controller_id,
            "brokers": [
                {
                    "broker_id": each.node_id,
                    "host": each.listener.host,
                    "port": each.listener.port,
                    "rack": each.rack,
                    "is_fenced": each.is_fenced,
                }
                for each in reachable(services, context, with_fenced=request.include_fenced_brokers)
            ],
        }
        if request.include_cluster_authorized_operations:
            answer["cluster_authorized_operations"] = self._access.cluster_operations(context)
        return answer


def described_partition(
    services: Services, topic: Topic, index: int
) -> DictOf[types.MetadataResponsePartition]:
    """A partition as Metadata and DescribeTopicPartitions answer it."""
    assigned = topic.partitions[index]
    own_id = services.node_id
    leader_id = services.served_leader(topic.name, index, assigned.leader_id)
    is_lone = assigned.replicas == (own_id,)
    offline = (
        []
        if is_lone
        else [each for each in assigned.replicas if services.is_offline(each, topic.topic_id, index)]
    )
    if leader_id == NO_LEADER and assigned.leader_id == own_id and own_id not in offline:
        offline.append(own_id)
    return {
        "error_code": ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NO_LEADER else ErrorCode.NONE,
        "partition_index": index,
        "leader_id": leader_id,
        "leader_epoch": assigned.leader_epoch,
        "replica_nodes": assigned.replicas,
        "isr_nodes": assigned.isr,
        "offline_replicas": offline,
    }


def code_of_unknown(name: str) -> ErrorCode:
    """The code for a topic that does not exist: whether such a name could exist."""
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _as_named(wanted: types.MetadataRequestTopic) -> DictOf[types.MetadataResponseTopic]:
    """A topic of which the answer has no more than the request: its name, or its id."""
    name = _name_of(wanted)
    return {"name": "", "topic_id": wanted.topic_id} if name is None else {"name": name}


def _name_of(wanted: types.MetadataRequestTopic) -> str | None:
    """None if the id decides. Java's admin sends an empty name, not a null one, beside an id: the id
    decides, as it does in Kafka."""
    return wanted.name if wanted.topic_id == NO_TOPIC_ID else None
