"""The answers to requests that fail as a whole: one error in every place of a response where it can be.

Owns their forms; a row in `broker.served_apis` names one of them, or a function beside its handler.
Invariants: pure; an error answer names everything that the request named, so that a client never waits for a
partition that is not in the answer.

Source: `AbstractRequest.getErrorResponse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tidelog.protocol import hot
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.quotas import ENTITY_TYPES
from tidelog.protocol.steps import Pace, Steps, each
from tidelog.protocol.types import NO_OFFSET

if TYPE_CHECKING:
    from tidelog.protocol import message_types as types

ErrorAnswer = Callable[[Any, ErrorCode, str | None], Any]
"""(request, code, message) -> the response values with that error, or the steps to them."""


def produce(request: hot.ProduceRequest, code: ErrorCode, message: str | None) -> list[Any]:
    return [
        (name, [hot.ProducePartitionResult(index, code, error_message=message) for index, _ in partitions])
        for name, partitions in request.topics
    ]


def fetch(request: hot.FetchRequest, code: ErrorCode, message: str | None) -> hot.FetchResponse:
    def failed(index: int) -> hot.FetchPartitionResult:
        return hot.FetchPartitionResult(index, code, NO_OFFSET, NO_OFFSET, NO_OFFSET, None, -1, None)

    topics = [
        (name, [failed(wanted.partition) for wanted in wanted_ones]) for name, wanted_ones in request.topics
    ]
    return hot.FetchResponse(0, code, 0, topics)


def metadata(
    request: types.MetadataRequest, code: ErrorCode, message: str | None
) -> types.MetadataResponseDict:
    return {
        "topics": [
            {"error_code": code, "name": topic.name or "", "topic_id": topic.topic_id}
            for topic in request.topics or ()
        ]
    }


def describe_topic_partitions(
    request: types.DescribeTopicPartitionsRequest, code: ErrorCode, message: str | None
) -> types.DescribeTopicPartitionsResponseDict:
    return {"topics": [{"error_code": code, "name": topic.name} for topic in request.topics]}


def top_level(request: object, code: ErrorCode, message: str | None) -> dict[str, object]:
    return {"error_code": code}


def find_coordinator(
    request: types.FindCoordinatorRequest, code: ErrorCode, message: str | None
) -> types.FindCoordinatorResponseDict:
    return {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": code,
        "error_message": message,
        "coordinators": [
            {
                "key": key,
                "node_id": -1,
                "host": "",
                "port": -1,
                "error_code": code,
                "error_message": message,
            }
            for key in request.coordinator_keys
        ],
    }


def init_producer_id(
    request: types.InitProducerIdRequest, code: ErrorCode, message: str | None
) -> types.InitProducerIdResponseDict:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


def top_level_with_message(request: object, code: ErrorCode, message: str | None) -> dict[str, object]:
    return {"error_code": code, "error_message": message}


def delete_topics(
    request: types.DeleteTopicsRequest, code: ErrorCode, message: str | None
) -> types.DeleteTopicsResponseDict:
    named: list[types.DeleteTopicsResponseResponseDict] = [{"name": name} for name in request.topic_names]
    named += [{"name": topic.name, "topic_id": topic.topic_id} for topic in request.topics]
    return {"responses": [{**topic, "error_code": code, "error_message": message} for topic in named]}


def by_topic(results: str) -> ErrorAnswer:
    """An answer that lists the request's topics under `results`."""

    def answer(
        request: types.CreateTopicsRequest | types.CreatePartitionsRequest,
        code: ErrorCode,
        message: str | None,
    ) -> dict[str, object]:
        return {
            results: [
                {"name": topic.name, "error_code": code, "error_message": message} for topic in request.topics
            ]
        }

    return answer


def by_partition(topic_name: str, partition_index: str) -> Callable[..., Steps[dict[str, Any]]]:
    """An answer that lists the request's topics and their partitions, with these names for the two keys."""

    def answer(request: Any, code: ErrorCode, message: str | None, **more: Any) -> Steps[dict[str, Any]]:
        def failed(partition: Any) -> dict[str, Any]:
            return {partition_index: partition[partition_index], "error_code": code, **more}

        pace = Pace()
        topics = []
        for topic in request.topics:
            partitions = yield from each(failed, topic.partitions, pace)
            topics.append({topic_name: topic[topic_name], "partitions": partitions})
            if pace.spent():
                yield
        return {"topics": topics}

    return answer


def delete_records(
    request: types.DeleteRecordsRequest, code: ErrorCode, message: str | None
) -> Steps[dict[str, Any]]:
    answer = by_partition("name", "partition_index")
    return answer(request, code, message, low_watermark=NO_OFFSET)


def offset_commit(
    request: types.OffsetCommitRequest, code: ErrorCode, message: str | None
) -> Steps[dict[str, Any]]:
    answer = yield from by_partition("name", "partition_index")(request, code, message)
    pace = Pace()
    for topic, answered in zip(request.topics, answer["topics"], strict=True):
        answered["topic_id"] = topic.topic_id
        if pace.spent():
            yield
    return answer


def offset_fetch(
    request: types.OffsetFetchRequest, code: ErrorCode, message: str | None
) -> types.OffsetFetchResponseDict:
    def failed(index: int) -> types.OffsetFetchResponsePartitionDict:
        return {"partition_index": index, "committed_offset": NO_OFFSET, "metadata": "", "error_code": code}

    return {
        "error_code": code,
        "topics": [
            {"name": topic.name, "partitions": [failed(index) for index in topic.partition_indexes]}
            for topic in request.topics or ()
        ],
        "groups": [{"group_id": group.group_id, "error_code": code} for group in request.groups],
    }


def alter_replica_log_dirs(
    request: types.AlterReplicaLogDirsRequest, code: ErrorCode, message: str | None
) -> Steps[types.AlterReplicaLogDirsResponseDict]:
    def failed(index: int) -> types.AlterReplicaLogDirsResponsePartitionDict:
        return {"partition_index": index, "error_code": code}

    pace = Pace()
    results: list[types.AlterReplicaLogDirsResponseResultDict] = []
    for folder in request.dirs:
        for topic in folder.topics:
            partitions = yield from each(failed, topic.partitions, pace)
            results.append({"topic_name": topic.name, "partitions": partitions})
            if pace.spent():
                yield
    return {"results": results}


def describe_log_dirs(
    request: types.DescribeLogDirsRequest, code: ErrorCode, message: str | None
) -> types.DescribeLogDirsResponseDict:
    return {"error_code": code, "results": [{"error_code": code, "log_dir": ""}]}


def elect_leaders(
    request: types.ElectLeadersRequest, code: ErrorCode, message: str | None
) -> Steps[types.ElectLeadersResponseDict]:
    pace = Pace()

    def failed(index: int) -> types.ElectLeadersResponsePartitionResultDict:
        return {"partition_id": index, "error_code": code, "error_message": message}

    results: list[types.ElectLeadersResponseReplicaElectionResultDict] = []
    for topic in request.topic_partitions or ():
        partitions = yield from each(failed, topic.partitions, pace)
        results.append({"topic": topic.topic, "partition_result": partitions})
        if pace.spent():
            yield
    return {"error_code": code, "replica_election_results": results}


def join_group(
    request: types.JoinGroupRequest, code: ErrorCode, message: str | None
) -> types.JoinGroupResponseDict:
    return {"error_code": code, "member_id": request.member_id}


def describe_groups(
    request: types.DescribeGroupsRequest, code: ErrorCode, message: str | None
) -> types.DescribeGroupsResponseDict:
    return {"groups": [{"group_id": group_id, "error_code": code} for group_id in request.groups]}


def consumer_group_describe(
    request: types.ConsumerGroupDescribeRequest, code: ErrorCode, message: str | None
) -> types.ConsumerGroupDescribeResponseDict:
    return {
        "groups": [
            {"group_id": group_id, "error_code": code, "error_message": message}
            for group_id in request.group_ids
        ]
    }


def delete_groups(
    request: types.DeleteGroupsRequest, code: ErrorCode, message: str | None
) -> types.DeleteGroupsResponseDict:
    return {"results": [{"group_id": group_id, "error_code": code} for group_id in request.groups_names]}


def describe_producers(
    request: types.DescribeProducersRequest, code: ErrorCode, message: str | None
) -> types.DescribeProducersResponseDict:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": code, "error_message": message}
                    for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def fetch_snapshot(
    request: types.FetchSnapshotRequest, code: ErrorCode, message: str | None
) -> types.FetchSnapshotResponseDict:
    return {"error_code": code, "topics": []}


def write_txn_markers(
    request: types.WriteTxnMarkersRequest, code: ErrorCode, message: str | None
) -> Steps[types.WriteTxnMarkersResponseDict]:
    def failed(index: int) -> types.WriteTxnMarkersResponsePartitionDict:
        return {"partition_index": index, "error_code": code}

    pace = Pace()
    markers: list[types.WriteTxnMarkersResponseMarkerDict] = []
    for marker in request.markers:
        topics: list[types.WriteTxnMarkersResponseTopicDict] = []
        for topic in marker.topics:
            partitions = yield from each(failed, topic.partition_indexes, pace)
            topics.append({"name": topic.name, "partitions": partitions})
            if pace.spent():
                yield
        markers.append({"producer_id": marker.producer_id, "topics": topics})
        if pace.spent():
            yield
    return {"markers": markers}


def add_partitions_to_txn(
    request: types.AddPartitionsToTxnRequest, code: ErrorCode, message: str | None
) -> Steps[types.AddPartitionsToTxnResponseDict]:
    pace = Pace()

    def failed(index: int) -> types.AddPartitionsToTxnResponseResultsByPartitionDict:
        return {"partition_index": index, "partition_error_code": code}

    def results(
        topics: Iterable[types.AddPartitionsToTxnRequestTopic],
    ) -> Steps[list[types.AddPartitionsToTxnResponseTopicResultDict]]:
        answers: list[types.AddPartitionsToTxnResponseTopicResultDict] = []
        for topic in topics:
            partitions = yield from each(failed, topic.partitions, pace)
            answers.append({"name": topic.name, "results_by_partition": partitions})
            if pace.spent():
                yield
        return answers

    by_transaction: list[types.AddPartitionsToTxnResponseResultsByTransactionDict] = []
    for asked in request.transactions:
        topic_results = yield from results(asked.topics)
        by_transaction.append({"transactional_id": asked.transactional_id, "topic_results": topic_results})
    return {
        "error_code": code,
        "results_by_transaction": by_transaction,
        "results_by_topic_v3_and_below": (yield from results(request.v3_and_below_topics)),
    }


def describe_transactions(
    request: types.DescribeTransactionsRequest, code: ErrorCode, message: str | None
) -> types.DescribeTransactionsResponseDict:
    return {
        "transaction_states": [
            {"transactional_id": transactional_id, "error_code": code}
            for transactional_id in request.transactional_ids
        ]
    }


def by_resource(results: str) -> ErrorAnswer:
    """An answer that lists the request's config resources under `results`."""

    def answer(
        request: types.DescribeConfigsRequest
        | types.AlterConfigsRequest
        | types.IncrementalAlterConfigsRequest,
        code: ErrorCode,
        message: str | None,
    ) -> dict[str, object]:
        return {
            results: [
                {
                    "error_code": code,
                    "error_message": message,
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                }
                for resource in request.resources
            ]
        }

    return answer


def alter_user_scram_credentials(
    request: types.AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None
) -> Steps[types.AlterUserScramCredentialsResponseDict]:
    def failed(user: str) -> types.AlterUserScramCredentialsResponseResultDict:
        return {"user": user, "error_code": code, "error_message": message}

    named = dict.fromkeys(
        [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    )
    return {"results": (yield from each(failed, named, Pace()))}


def create_acls(
    request: types.CreateAclsRequest, code: ErrorCode, message: str | None
) -> Steps[types.CreateAclsResponseDict]:
    refused: types.CreateAclsResponseResultDict = {"error_code": code, "error_message": message}
    return {"results": (yield from each(lambda _: refused, request.creations, Pace()))}


def delete_acls(
    request: types.DeleteAclsRequest, code: ErrorCode, message: str | None
) -> Steps[types.DeleteAclsResponseDict]:
    refused: types.DeleteAclsResponseFilterResultDict = {"error_code": code, "error_message": message}
    return {"filter_results": (yield from each(lambda _: refused, request.filters, Pace()))}


def describe_client_quotas(
    request: types.DescribeClientQuotasRequest, code: ErrorCode, message: str | None
) -> types.DescribeClientQuotasResponseDict:
    return {"error_code": code, "error_message": message, "entries": None}


def _quota_entity(
    entry: types.AlterClientQuotasRequestEntry,
) -> list[types.AlterClientQuotasResponseEntityDict]:
    named = entry.entity[: len(ENTITY_TYPES) + 1]
    return [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in named]


def alter_client_quotas(
    request: types.AlterClientQuotasRequest, code: ErrorCode, message: str | None
) -> Steps[types.AlterClientQuotasResponseDict]:
    def failed(entry: types.AlterClientQuotasRequestEntry) -> types.AlterClientQuotasResponseEntryDict:
        return {"error_code": code, "error_message": message, "entity": _quota_entity(entry)}

    return {"entries": (yield from each(failed, request.entries, Pace()))}
