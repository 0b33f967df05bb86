"""Administration of a cluster: folders, leaders, replicas, quorum, features.

Invariants: nothing but leaders and replicas is changed here; a request that would need another folder or
feature is refused with Kafka's code. What a request names twice is answered once.

Versions: ElectLeaders elects uncleanly from 1 on; AlterPartitionReassignments may forbid another number of
replicas from 1 on (KIP-860); DescribeLogDirs shows the disk from 4 on; ListConfigResources 0 asks for client
metrics only; DescribeQuorum names the brokers from 2 on; UpdateFeatures 2 has no result per feature. Source:
Kafka's KafkaApis, ReplicaManager, ReplicationControlManager, FeatureControlManager and ClientMetricsManager.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Iterable
from functools import partial
from operator import attrgetter

from tidelog.broker.cluster.catalog import NO_LEADER, PartitionAssignment
from tidelog.broker.cluster.store import StoreConflict, StoreError
from tidelog.broker.configuration.resource_settings import CLIENT_METRICS, KINDS
from tidelog.broker.features import FINALIZED_FEATURES
from tidelog.broker.handlers.by_topic import NamedPartitions, answers_by_topic, named_once
from tidelog.broker.handlers.configs import BROKER_RESOURCE, TOPIC_RESOURCE
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.handlers.metadata import NO_TOPIC_ID
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import NUMBERS_PER_ELEMENT, Pace, Steps, each

PREFERRED_ELECTION = 0
METADATA_TOPIC = "__cluster_metadata"
_LONGEST_MOVABLE = 215
"""Characters of a partition's folder to whose name Kafka can add what marks its copy in another folder."""
_RESOURCE_TYPES = frozenset((TOPIC_RESOURCE, BROKER_RESOURCE, *KINDS))
_REASSIGNED_AT_ONCE = 500
"""Partitions whose reassignment begins with one commit, which is planned in one step of the loop."""
_partition_index = attrgetter("partition_index")


class ClusterAdminHandler:
    """Serves the nine APIs in all versions that `served_apis` lists."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def alter_replica_log_dirs(
        self, context: RequestContext, request: types.AlterReplicaLogDirsRequest
    ) -> Steps[DictOf[types.AlterReplicaLogDirsResponse]]:
        """Each partition is in the one data folder, and can be in no other. Of several folders for one
        partition the last counts, as in Kafka."""
        pace = Pace()
        wanted: dict[str, dict[int, str]] = {}
        for folder in request.dirs:
            for topic in folder.topics:
                wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, folder.path))
                if pace.spent(1 + len(topic.partitions) // NUMBERS_PER_ELEMENT):
                    yield
            if pace.spent():
                yield
        asked = ((name, folders.items()) for name, folders in wanted.items())
        results = yield from answers_by_topic(asked, self._in_folder, pace, name="topic_name")
        return {"results": results}

    def _in_folder(self, topic: str, wanted: tuple[int, str]) -> DictOf[types.PartitionError]:
        index, path = wanted
        replica = self._services.replicas.get((topic, index))
        code = ErrorCode.NONE
        if len(f"{topic}-{index}") > _LONGEST_MOVABLE:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif path != str(self._services.config.data_dir.absolute()):
            code = ErrorCode.LOG_DIR_NOT_FOUND
        elif replica is None:
            is_known = self._services.catalog.assigned(topic, index) is not None
            code = ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not replica.is_running:
            code = ErrorCode.KAFKA_STORAGE_ERROR
        return {"partition_index": index, "error_code": code}

    def describe_log_dirs(
        self, context: RequestContext, request: types.DescribeLogDirsRequest
    ) -> Steps[DictOf[types.DescribeLogDirsResponse] | Awaitable[DictOf[types.DescribeLogDirsResponse]]]:
        """The one data folder: the size of each partition in it, and of its disk. `offset_lag` is 0, because
        no replica is behind another.
        """
        pace = Pace()
        named = yield from self._partitions(request.topics, pace)
        topics: list[DictOf[types.DescribeLogDirsResponseTopic]] = []
        for name, indexes in named.items():
            partitions: list[DictOf[types.DescribeLogDirsResponsePartition]] = []
            for index in indexes:
                replica = self._services.replicas.get((name, index))
                if replica is not None:
                    size = replica.log.size_bytes
                    partitions.append({"partition_index": index, "partition_size": size, "offset_lag": 0})
                if pace.spent():
                    yield
            if partitions:
                topics.append({"name": name, "partitions": partitions})
        return self._with_disk(topics)

    async def _with_disk(
        self, topics: list[DictOf[types.DescribeLogDirsResponseTopic]]
    ) -> DictOf[types.DescribeLogDirsResponse]:
        folder = self._services.config.data_dir.absolute()
        result: DictOf[types.DescribeLogDirsResponseResult] = {
            "error_code": ErrorCode.NONE,
            "log_dir": str(folder),
            "topics": topics,
        }
        try:
            disk = await asyncio.to_thread(shutil.disk_usage, folder)
        except OSError:
            result["error_code"] = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            result |= {"total_bytes": disk.total, "usable_bytes": disk.free}
        return {"error_code": ErrorCode.NONE, "results": [result]}

    def elect_leaders(
        self, context: RequestContext, request: types.ElectLeadersRequest
    ) -> Steps[Awaitable[DictOf[types.ElectLeadersResponse]]]:
        """The first replica leads again, or with an unclean election one that may lack records."""
        named = yield from self._partitions(request.topic_partitions, Pace())
        return self._elect(named, request.election_type, is_for_all=request.topic_partitions is None)

    async def _elect(
        self, named: NamedPartitions, election_type: int, *, is_for_all: bool
    ) -> DictOf[types.ElectLeadersResponse]:
        from tidelog.broker.cluster.controller import elected_as_preferred

        results: list[DictOf[types.ElectLeadersResponseReplicaElectionResult]] = []
        pace = Pace()
        for topic, indexes in named.items():
            if pace.spent():
                await self._services.turns.next()
            codes = await self._services.turns.run(self._elections(topic, indexes, election_type))
            wanted = [index for index, code in codes.items() if code == ErrorCode.NONE]
            known, membership = self._services.catalog.topic(topic), self._services.membership
            if wanted and known is not None and membership is not None:
                try:
                    if election_type == PREFERRED_ELECTION:
                        await membership.elect(known.topic_id, wanted, elected_as_preferred)
                    else:
                        await membership.elect_uncleanly(known, wanted)
                except (StoreError, StoreConflict, OSError):
                    codes.update(dict.fromkeys(wanted, ErrorCode.KAFKA_STORAGE_ERROR))
            # As in Kafka, a request for all partitions names only those that had an election.
            partitions: list[DictOf[types.ElectLeadersResponsePartitionResult]] = [
                {"partition_id": index, "error_code": code, "error_message": code.message if code else None}
                for index, code in codes.items()
                if not (is_for_all and code == ErrorCode.ELECTION_NOT_NEEDED)
            ]
            if partitions:
                results.append({"topic": topic, "partition_result": partitions})
        return {"error_code": ErrorCode.NONE, "replica_election_results": results}

    def _elections(
        self, topic: str, indexes: Iterable[int], election_type: int
    ) -> Steps[dict[int, ErrorCode]]:
        """NONE for what can be elected."""
        pace, codes = Pace(), {}
        for index in indexes:
            codes[index] = self._election(topic, index, election_type)
            if pace.spent():
                yield
        return codes

    def _election(self, topic: str, index: int, election_type: int) -> ErrorCode:
        from tidelog.broker.cluster.controller import elected_as_preferred, elected_uncleanly

        assigned = self._services.catalog.assigned(topic, index)
        if assigned is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader_id = self._services.leader_of(topic, index)
        live = {each for each in assigned.replicas if self._services.is_live(each)}
        if election_type == PREFERRED_ELECTION:
            if leader_id == assigned.replicas[0]:
                return ErrorCode.ELECTION_NOT_NEEDED
            is_possible = elected_as_preferred(assigned, live) is not None
            return ErrorCode.NONE if is_possible else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if leader_id != NO_LEADER:
            return ErrorCode.ELECTION_NOT_NEEDED
        is_possible = elected_uncleanly(assigned, live, {}) is not None
        return ErrorCode.NONE if is_possible else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    def alter_partition_reassignments(
        self, context: RequestContext, request: types.AlterPartitionReassignmentsRequest
    ) -> Steps[Awaitable[DictOf[types.AlterPartitionReassignmentsResponse]]]:
        """Begins or cancels reassignments; of several for one partition the last counts."""
        pace = Pace()
        wanted: dict[str, dict[int, list[int] | None]] = {}
        for topic in request.topics:
            partitions = wanted.setdefault(topic.name, {})
            for partition in topic.partitions:
                partitions[partition.partition_index] = partition.replicas
                if pace.spent(1 + len(partition.replicas or ()) // NUMBERS_PER_ELEMENT):
                    yield
            if pace.spent():
                yield
        return self._reassign(wanted, may_change_factor=request.allow_replication_factor_change is not False)

    async def _reassign(
        self, wanted: dict[str, dict[int, list[int] | None]], *, may_change_factor: bool
    ) -> DictOf[types.AlterPartitionReassignmentsResponse]:
        responses: list[DictOf[types.AlterPartitionReassignmentsResponseResponse]] = []
        for name, partitions in wanted.items():
            known, left = self._services.catalog.topic(name), list(partitions.items())
            topic_id = NO_TOPIC_ID if known is None else known.topic_id
            refused: dict[int, ApiError] = {}
            for first in range(0, len(left), _REASSIGNED_AT_ONCE):
                some = dict(left[first : first + _REASSIGNED_AT_ONCE])
                try:
                    refused |= await self._services.topics.reassign(
                        topic_id, some, may_change_factor=may_change_factor
                    )
                except ApiError as error:
                    refused |= dict.fromkeys(some, error)
            answers: list[DictOf[types.AlterPartitionReassignmentsResponsePartition]] = [
                {
                    "partition_index": index,
                    "error_code": refused[index].code if index in refused else ErrorCode.NONE,
                    "error_message": refused[index].message if index in refused else None,
                }
                for index in partitions
            ]
            responses.append({"name": name, "partitions": answers})
        return {"error_code": ErrorCode.NONE, "responses": responses}

    def list_partition_reassignments(
        self, context: RequestContext, request: types.ListPartitionReassignmentsRequest
    ) -> Steps[DictOf[types.ListPartitionReassignmentsResponse]]:
        """The partitions that are being reassigned, of these or of all."""
        from tidelog.broker.cluster.reassignment import is_under_way

        pace = Pace()
        catalog = self._services.catalog
        wanted: list[tuple[str, Iterable[int]]] = (
            [(topic.name, range(len(topic.partitions))) for topic in catalog.topics()]
            if request.topics is None
            else [(topic.name, dict.fromkeys(topic.partition_indexes)) for topic in request.topics]
        )
        topics: list[DictOf[types.ListPartitionReassignmentsResponseTopic]] = []
        for name, indexes in wanted:
            known = catalog.topic(name)
            assignments = () if known is None else known.partitions
            partitions: list[DictOf[types.ListPartitionReassignmentsResponsePartition]] = []
            for index in indexes:
                if 0 <= index < len(assignments) and is_under_way(assignments[index]):
                    partitions.append(_under_way(index, assignments[index]))
                if pace.spent():
                    yield
            if partitions:
                topics.append({"name": name, "partitions": partitions})
            if pace.spent():
                yield
        return {"error_code": ErrorCode.NONE, "topics": topics}

    def list_config_resources(
        self, context: RequestContext, request: types.ListConfigResourcesRequest
    ) -> Steps[DictOf[types.ListConfigResourcesResponse]]:
        """What has settings. Version 0 asks for resources of client metrics."""
        wanted = {CLIENT_METRICS.number} if context.header.api_version == 0 else set(request.resource_types)
        wanted = wanted or set(_RESOURCE_TYPES)
        if not wanted <= _RESOURCE_TYPES:
            return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": []}
        catalog, names = self._services.catalog, []
        if TOPIC_RESOURCE in wanted:
            names = [(TOPIC_RESOURCE, topic.name) for topic in catalog.topics()]
        if BROKER_RESOURCE in wanted:
            names += [(BROKER_RESOURCE, str(node_id)) for node_id in catalog.brokers]
        for number in sorted(wanted & KINDS.keys()):
            names += [(number, name) for name in KINDS[number].named(catalog.broker_configs)]

        def resource(named: tuple[int, str]) -> DictOf[types.ListConfigResourcesResponseConfigResource]:
            return {"resource_type": named[0], "resource_name": named[1]}

        resources = yield from each(resource, names, Pace())
        return {"error_code": ErrorCode.NONE, "config_resources": resources}

    def describe_quorum(
        self, context: RequestContext, request: types.DescribeQuorumRequest
    ) -> Steps[DictOf[types.DescribeQuorumResponse]]:
        """A quorum of one broker, the controller. Its log is the catalog: an offset is a revision of that."""
        pace = Pace()
        topics: list[DictOf[types.DescribeQuorumResponseTopic]] = []
        for topic in request.topics:
            indexes = yield from each(_partition_index, topic.partitions, pace)
            answers = yield from each(partial(self._quorum, topic.topic_name), dict.fromkeys(indexes), pace)
            topics.append({"topic_name": topic.topic_name, "partitions": answers})
            if pace.spent():
                yield
        nodes: list[DictOf[types.DescribeQuorumResponseNode]] = [
            {
                "node_id": broker.node_id,
                "listeners": [
                    {"name": listener.name, "host": listener.host, "port": listener.port}
                    for listener in broker.listeners
                ],
            }
            for broker in self._services.catalog.brokers.values()
        ]
        return {"error_code": ErrorCode.NONE, "topics": topics, "nodes": nodes}

    def _quorum(self, topic: str, index: int) -> DictOf[types.DescribeQuorumResponsePartition]:
        if (topic, index) != (METADATA_TOPIC, 0):
            return {"partition_index": index, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        node_id, revision = self._services.controller_id, self._services.catalog.revision
        voter: DictOf[types.DescribeQuorumResponseCurrentVoter] = {
            "replica_id": node_id,
            "replica_directory_id": NO_TOPIC_ID,
            "log_end_offset": revision,
        }
        return {
            "partition_index": index,
            "leader_id": node_id,
            "leader_epoch": 0,
            "high_watermark": revision,
            "current_voters": [voter],
        }

    def update_features(
        self, context: RequestContext, request: types.UpdateFeaturesRequest
    ) -> Steps[DictOf[types.UpdateFeaturesResponse]]:
        """No feature has more than one version, so only that one may be set."""
        pace = Pace()
        updates = dict(
            (yield from each(lambda one: (one.feature, one.max_version_level), request.feature_updates, pace))
        )
        results = yield from each(_updated, updates.items(), pace)
        refused = [result for result in results if result["error_code"]]
        if refused:
            message = f"No feature was changed: {refused[0]['error_message']}"
            return {"error_code": refused[0]["error_code"], "error_message": message}
        return {"error_code": ErrorCode.NONE, "results": results}

    async def unregister_broker(
        self, context: RequestContext, request: types.UnregisterBrokerRequest
    ) -> DictOf[types.UnregisterBrokerResponse]:
        """A broker that is gone for ever belongs to the cluster no more."""
        await self._services.unregister(request.broker_id)
        return {"error_code": ErrorCode.NONE, "error_message": None}

    def _partitions(
        self, topics: Iterable[types.PartitionsByName] | None, pace: Pace
    ) -> Steps[NamedPartitions]:
        """The partitions that a request names, each once, in their order; None names all."""
        if topics is not None:
            return (yield from named_once(topics, pace, name="topic"))
        named: NamedPartitions = {}
        for topic in list(self._services.catalog.topics()):  # The catalog may change between two steps.
            named[topic.name] = dict.fromkeys(range(len(topic.partitions)))
            if pace.spent():
                yield
        return named


def _under_way(
    index: int, assigned: PartitionAssignment
) -> DictOf[types.ListPartitionReassignmentsResponsePartition]:
    return {
        "partition_index": index,
        "replicas": list(assigned.replicas),
        "adding_replicas": [each for each in assigned.adding if each not in assigned.removing],
        "removing_replicas": list(assigned.removing),
    }


def _updated(wanted: tuple[str, int]) -> DictOf[types.UpdateFeaturesResponseResult]:
    name, level = wanted
    held = FINALIZED_FEATURES.get(name)
    if held == level:
        return {"feature": name, "error_code": ErrorCode.NONE}
    message = f"the only version of {name} here is {held}"
    if held is None:
        message = f"this broker does not know the feature {name}"
    return {"feature": name, "error_code": ErrorCode.INVALID_UPDATE_VERSION, "error_message": message}
