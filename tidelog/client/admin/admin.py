"""Administration: topics, configurations, producers, the cluster itself.

Owns: the public interface. Invariants: a call does everything that was requested, or it raises. If one of
several topics fails, the error names it, and the others may have been changed. Source: aiokafka's
AIOKafkaAdminClient for names.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Self, Unpack

from tidelog.client.admin.acls import AclAdmin
from tidelog.client.admin.groups import GroupAdmin
from tidelog.client.admin.quotas import QuotaAdmin
from tidelog.client.admin.reassignments import ReassignmentAdmin
from tidelog.client.admin.requests import Requests, is_unknown_topic, itself, partitions_of
from tidelog.client.admin.transactions import TransactionAdmin
from tidelog.client.admin.types import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    ProducerDescription,
    TopicDescription,
)
from tidelog.client.admin.users import UserAdmin
from tidelog.client.arguments import list_of_names
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.keywords import shows_settings, take_cluster
from tidelog.client.types import topic_partition
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import Cluster
from tidelog.wire.cluster_config import ClusterConfig, ClusterSettings
from tidelog.wire.errors import broker_error
from tidelog.wire.metadata import EMPTY, ClusterImage, apply_metadata

_CLIENT_ID = "tidelog-admin"
_SET, _DELETE = 0, 1
_FIRST_DELETE_BY_ID = 6


@shows_settings(ClusterConfig, client_id=_CLIENT_ID)
class Admin:
    """`async with Admin(bootstrap_servers="host:port") as admin: ...` Every call raises ClientError."""

    def __init__(self, **settings: Unpack[ClusterSettings]) -> None:
        own: dict[str, Any] = {**settings}
        self._cluster = Cluster(take_cluster(own, client_id=_CLIENT_ID), ASKED_APIS)
        self._requests = requests = Requests(self._cluster)
        self.groups = GroupAdmin(requests)
        """Consumer groups and share groups."""
        self.quotas = QuotaAdmin(requests)
        """How much users, client ids and addresses may use."""
        self.reassignments = ReassignmentAdmin(requests)
        """On which brokers the replicas of partitions are."""
        self.transactions = TransactionAdmin(requests)
        self.users = UserAdmin(requests)
        """Users that authenticate by SASL, with PLAIN or SCRAM."""
        self.acls = AclAdmin(requests)
        """Access control entries."""

    async def start(self) -> None:
        """Connect. Raises BrokerUnavailableError."""
        await self._cluster.start()

    async def close(self) -> None:
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Topics

    async def create_topics(self, new_topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or only check whether they can be created. Raises TopicAlreadyExistsError, ..."""
        new_topics = list(new_topics)
        for each in new_topics:
            if isinstance(each, str):
                raise TypeError(
                    f"new_topics: expected a list of NewTopic(name, ...), got the text {each!r:.200}"
                )
        topics: list[DictOf[types.CreateTopicsRequestTopic]] = [
            {
                "name": topic.name,
                "num_partitions": topic.num_partitions,
                "replication_factor": topic.replication_factor,
                "assignments": [],
                "configs": [
                    {"name": name, "value": value} for name, value in (topic.topic_configs or {}).items()
                ],
            }
            for topic in new_topics
        ]
        more = {"timeout_ms": self._requests.timeout_ms, "validate_only": validate_only}
        await self._requests.to_controller(
            ApiKey.CREATE_TOPICS,
            lambda _: {"topics": topics, **more},
            lambda answer: _without_done(topics, answer.topics),
            _topic_name,
        )

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete topics with all their records. Raises UnknownTopicError and others."""
        named: list[DictOf[types.DeleteTopicsRequestTopic]] = [
            {"name": name} for name in list_of_names(topics, "topics")
        ]

        def values(version: int) -> "DictOf[types.DeleteTopicsRequest]":
            by_id = version >= _FIRST_DELETE_BY_ID
            wanted: DictOf[types.DeleteTopicsRequest] = (
                {"topics": named} if by_id else {"topic_names": [each["name"] or "" for each in named]}
            )
            return {**wanted, "timeout_ms": self._requests.timeout_ms}

        await self._requests.to_controller(
            ApiKey.DELETE_TOPICS, values, lambda answer: _without_done(named, answer.responses), _topic_name
        )

    async def create_partitions(self, total_counts: Mapping[str, int]) -> None:
        """Increase the number of partitions of each topic to the given total."""
        topics: list[DictOf[types.CreatePartitionsRequestTopic]] = [
            {"name": name, "count": count, "assignments": None} for name, count in total_counts.items()
        ]
        more = {"timeout_ms": self._requests.timeout_ms, "validate_only": False}
        await self._requests.to_controller(
            ApiKey.CREATE_PARTITIONS,
            lambda _: {"topics": topics, **more},
            lambda answer: _without_done(topics, answer.results),
            _topic_name,
        )

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition; -1 deletes all. Gives the new first offsets.

        An offset after records that the broker's disk has lost accepts their loss. Raises UnknownTopicError,
        and deletes nothing then. Raises other errors after it has tried all partitions.
        """
        wanted = {topic_partition(key): offset for key, offset in before.items()}
        await self._find_leaders(wanted)
        tried = [self._delete_before(key, offset) for key, offset in wanted.items()]
        results = await asyncio.gather(*tried, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error
        return {key: first for key, first in zip(wanted, results, strict=True) if isinstance(first, int)}

    async def _delete_before(self, key: TopicPartition, offset: int) -> int:
        partition: DictOf[types.DeleteRecordsRequestPartition] = {
            "partition_index": key.partition,
            "offset": offset,
        }
        values: DictOf[types.DeleteRecordsRequest] = {
            "topics": [{"name": key.topic, "partitions": [partition]}],
            "timeout_ms": self._requests.timeout_ms,
        }
        answer: types.DeleteRecordsResponse = await self._requests.to_leader(
            key, ApiKey.DELETE_RECORDS, values, lambda _: f"records of {key.topic}-{key.partition}"
        )
        return int(partitions_of(answer)[0].low_watermark)

    async def list_topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return sorted((await self._metadata(None)).topics)

    async def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        """These topics in the given order, or all topics, sorted. Raises UnknownTopicError."""
        names = None if topics is None else list_of_names(topics, "topics")
        found = (await self._metadata(names)).topics
        described = []
        for name in sorted(found) if names is None else names:
            info = found.get(name)
            if info is None or info.error is not ErrorCode.NONE:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error
                raise broker_error(code, f"topic {name!r}")
            described.append(TopicDescription(name, info.topic_id, info.is_internal, info.partitions))
        return described

    # Configurations

    async def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """All settings of each resource."""
        wanted = list(resources)
        found: dict[ConfigResource, list[ConfigEntry]] = {}
        for node_id, some in _by_broker(wanted).items():
            asked: list[DictOf[types.DescribeConfigsRequestResource]] = [
                {"resource_type": each.resource_type, "resource_name": each.name, "configuration_keys": None}
                for each in some
            ]
            values: DictOf[types.DescribeConfigsRequest] = {"resources": asked, "include_documentation": True}
            answer: types.DescribeConfigsResponse = await self._requests.to_broker(
                node_id, ApiKey.DESCRIBE_CONFIGS, values, attrgetter("results"), _resource_name
            )
            for result in answer.results:
                resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                found[resource] = [
                    ConfigEntry(
                        entry.name,
                        entry.value,
                        entry.read_only,
                        entry.is_sensitive,
                        entry.config_source,
                        entry.documentation,
                    )
                    for entry in result.configs
                ]
        return {each: found[each] for each in wanted if each in found}

    async def alter_configs(self, changes: Mapping[ConfigResource, Mapping[str, str | None]]) -> None:
        """Change these settings and no others. None resets a setting to its default."""
        for node_id, some in _by_broker(changes).items():
            resources: list[DictOf[types.IncrementalAlterConfigsRequestResource]] = [
                {
                    "resource_type": resource.resource_type,
                    "resource_name": resource.name,
                    "configs": [
                        {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
                        for name, value in changes[resource].items()
                    ],
                }
                for resource in some
            ]
            values: DictOf[types.IncrementalAlterConfigsRequest] = {
                "resources": resources,
                "validate_only": False,
            }
            api_key, results = ApiKey.INCREMENTAL_ALTER_CONFIGS, attrgetter("responses")
            if node_id is None:
                await self._requests.to_controller(api_key, values, results, _resource_name)
            else:
                await self._requests.to_broker(node_id, api_key, values, results, _resource_name)

    # The cluster and its producers

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        image = await self._metadata([])
        brokers = tuple(image.nodes[node_id] for node_id in sorted(image.nodes))
        return ClusterDescription(image.cluster_id or "", image.controller_id, brokers)

    async def unregister_broker(self, node_id: int) -> None:
        """Remove a broker that will not come back from the cluster (KIP-631). Raises BrokerError if the
        broker is live, has replicas or does not exist."""
        await self._requests.to_controller(
            ApiKey.UNREGISTER_BROKER, {"broker_id": node_id}, itself, lambda _: f"broker {node_id}"
        )

    async def describe_producers(
        self, topic: str, partitions: Sequence[int] | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The idempotent producers that each of these partitions (default: all) knows. Raises
        UnknownTopicError and others."""
        (described,) = await self.describe_topics([topic])
        wanted = [each.partition for each in described.partitions] if partitions is None else partitions
        keys = [TopicPartition(topic, number) for number in wanted]
        await self._find_leaders(keys)
        return {key: await self._producers_of(key) for key in keys}

    async def _producers_of(self, key: TopicPartition) -> list[ProducerDescription]:
        values: DictOf[types.DescribeProducersRequest] = {
            "topics": [{"name": key.topic, "partition_indexes": [key.partition]}]
        }
        answer: types.DescribeProducersResponse = await self._requests.to_leader(
            key, ApiKey.DESCRIBE_PRODUCERS, values, lambda _: f"producers of {key.topic}-{key.partition}"
        )
        return [
            ProducerDescription(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for partition in partitions_of(answer)
            for each in partition.active_producers
        ]

    # Requests

    async def _metadata(self, names: list[str] | None) -> ClusterImage:
        values: DictOf[types.MetadataRequest] = {
            "topics": None if names is None else [{"name": name} for name in names],
            "allow_auto_topic_creation": False,
        }
        answer = await self._requests.to_any(ApiKey.METADATA, values, lambda _: (), str)
        return apply_metadata(EMPTY, answer)

    async def _find_leaders(self, keys: Collection[TopicPartition]) -> None:
        """Raises UnknownTopicError and others. A partition without a leader at the moment is no error."""
        self._cluster.watch_topics({key.topic for key in keys})
        image: ClusterImage = await self._requests.retry(self._cluster.refresh, lambda _: (), str)
        for key in keys:
            info = image.topics.get(key.topic)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error
            if info is not None and code is ErrorCode.NONE and not 0 <= key.partition < len(info.partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code is not ErrorCode.NONE:
                error = broker_error(code, f"partition {key.topic}-{key.partition}")
                if not error.retriable or is_unknown_topic(error):
                    raise error


def _by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """The resources by the broker to ask: a broker's settings are known to itself only. None: any broker."""
    by_broker: dict[int | None, list[ConfigResource]] = {}
    for each in resources:
        is_broker = each.resource_type == ConfigResourceType.BROKER and each.name.isdecimal()
        by_broker.setdefault(int(each.name) if is_broker else None, []).append(each)
    return by_broker


def _without_done(topics: list[Any], results: Any) -> Any:
    """The results; a retry for some topics leaves out the finished ones (a second creation would find that
    they exist)."""
    done = {each.name for each in results if not each.error_code}
    topics[:] = [each for each in topics if each["name"] not in done]
    return results


def _topic_name(result: Any) -> str:
    return f"topic {result.name!r}"


def _resource_name(result: Any) -> str:
    # Brokers have settings that count for all of them, under no name.
    name = repr(result.resource_name) if result.resource_name else "all brokers"
    return f"configuration of {name}"
