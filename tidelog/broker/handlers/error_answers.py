"""The answers to requests that fail as a whole: one error in every place of a response where it can be.

Owns their forms; a row in `broker.served_apis` names one of them.
Invariants: pure; an error answer names everything that the request named, so that a client never waits for a
partition that is not in the answer.

Source: `AbstractRequest.getErrorResponse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidelog.protocol import hot
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.quotas import ENTITY_TYPES
from tidelog.protocol.steps import Pace, Steps, each
from tidelog.protocol.types import NO_OFFSET

ErrorAnswer = Callable[[Any, ErrorCode, str | None], Any]
"""(request, code, message) -> the response values with that error, or the steps to them."""


def produce(request: hot.ProduceRequest, code: ErrorCode, message: str | None) -> list[Any]:
    return [
        (name, [hot.ProducePartitionResult(index, code, error_message=message) for index, _ in partitions])
        for name, partitions in request.topics
    ]


def fetch(request: hot.FetchRequest, code: ErrorCode, message: str | None) -> hot.FetchResponse:
    """No records are empty records: librdkafka cannot parse null."""
    topics = [
        (name, [hot.FetchPartitionResult(wanted.partition, code) for wanted in wanted_ones])
        for name, wanted_ones in request.topics
    ]
    return hot.FetchResponse(0, code, 0, topics)


def top_level(request: object, code: ErrorCode, message: str | None) -> dict[str, object]:
    return {"error_code": code}


def top_level_with_message(request: object, code: ErrorCode, message: str | None) -> dict[str, object]:
    return {"error_code": code, "error_message": message}


def top_level_and(*, has_message: bool = False, **more: object) -> ErrorAnswer:
    """An answer with an error and fields that are the same for each request."""
    error = top_level_with_message if has_message else top_level
    return lambda request, code, message: {**error(request, code, message), **more}


def by_element(results: str, asked: str, *fields: str, has_message: bool = True) -> ErrorAnswer:
    """An answer that lists in `results` the elements of the request's `asked`: texts, which are one field of
    the answer, or structs, of which the answer has these fields.
    """

    def answer(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
        error = top_level_with_message if has_message else top_level

        def failed(element: Any) -> dict[str, Any]:
            named = {name: element if isinstance(element, str) else element[name] for name in fields}
            return {**named, **error(request, code, message)}

        return {results: (yield from each(failed, getattr(request, asked), Pace()))}

    return answer


def by_partition(
    topic_fields: Sequence[str] = ("name",),
    index_field: str = "partition_index",
    partitions: str = "partitions",
    *,
    results: str = "topics",
    has_message: bool = False,
    **more: Any,
) -> ErrorAnswer:
    """An answer that lists in `results` the request's topics with these fields, and their partitions. The
    request has them in the field `partitions`: as indexes, or as structs with `index_field`. `more` is added
    to each.
    """

    def answer(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
        error = (top_level_with_message if has_message else top_level)(request, code, message)
        failed = _failed(index_field, **error, **more)
        names = {name: name for name in topic_fields}
        return {results: (yield from _topics(request.topics, failed, Pace(), names, partitions))}

    return answer


def _failed(index_field: str, **answer: Any) -> Callable[[Any], dict[str, Any]]:
    """The answer of a partition that is named by its index, or by a struct with it in this field."""

    def failed(partition: Any) -> dict[str, Any]:
        index = partition if isinstance(partition, int) else partition[index_field]
        return {index_field: index, **answer}

    return failed


def _topics(
    asked: Iterable[Any],
    failed: Callable[[Any], dict[str, Any]],
    pace: Pace,
    names: Mapping[str, str],
    partitions: str = "partitions",
    results: str = "partitions",
) -> Steps[list[dict[str, Any]]]:
    """By topic, what `names` says (field of the answer: field of the request), and its failed partitions."""
    topics = []
    for topic in asked:
        of_topic = yield from each(failed, topic[partitions], pace)
        topics.append({**{name: topic[field] for name, field in names.items()}, results: of_topic})
        if pace.spent():
            yield
    return topics


def metadata(
    request: types.MetadataRequest, code: ErrorCode, message: str | None
) -> DictOf[types.MetadataResponse]:
    return {
        "topics": [
            {"error_code": code, "name": topic.name or "", "topic_id": topic.topic_id}
            for topic in request.topics or ()
        ]
    }


def find_coordinator(
    request: types.FindCoordinatorRequest, code: ErrorCode, message: str | None
) -> DictOf[types.FindCoordinatorResponse]:
    return {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": code,
        "error_message": message,
        "coordinators": [
            {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}
            for key in request.coordinator_keys
        ],
    }


def delete_topics(
    request: types.DeleteTopicsRequest, code: ErrorCode, message: str | None
) -> DictOf[types.DeleteTopicsResponse]:
    named: list[DictOf[types.DeleteTopicsResponseResponse]] = [{"name": name} for name in request.topic_names]
    named += [{"name": topic.name, "topic_id": topic.topic_id} for topic in request.topics]
    return {"responses": [{**topic, "error_code": code, "error_message": message} for topic in named]}


def offset_fetch(
    request: types.OffsetFetchRequest, code: ErrorCode, message: str | None
) -> Steps[dict[str, Any]]:
    failed = _failed("partition_index", committed_offset=NO_OFFSET, metadata="", error_code=code)
    topics = yield from _topics(request.topics or (), failed, Pace(), {"name": "name"}, "partition_indexes")
    groups = [{"group_id": group.group_id, "error_code": code} for group in request.groups]
    return {"error_code": code, "topics": topics, "groups": groups}


def alter_replica_log_dirs(
    request: types.AlterReplicaLogDirsRequest, code: ErrorCode, message: str | None
) -> Steps[dict[str, Any]]:
    failed = _failed("partition_index", error_code=code)
    pace = Pace()
    results = []
    for folder in request.dirs:
        results += yield from _topics(folder.topics, failed, pace, {"topic_name": "name"})
    return {"results": results}


def describe_log_dirs(
    request: types.DescribeLogDirsRequest, code: ErrorCode, message: str | None
) -> DictOf[types.DescribeLogDirsResponse]:
    return {"error_code": code, "results": [{"error_code": code, "log_dir": ""}]}


def elect_leaders(
    request: types.ElectLeadersRequest, code: ErrorCode, message: str | None
) -> Steps[dict[str, Any]]:
    failed = _failed("partition_id", error_code=code, error_message=message)
    names, asked = {"topic": "topic"}, request.topic_partitions or ()
    results = yield from _topics(asked, failed, Pace(), names, results="partition_result")
    return {"error_code": code, "replica_election_results": results}


def join_group(
    request: types.JoinGroupRequest, code: ErrorCode, message: str | None
) -> DictOf[types.JoinGroupResponse]:
    return {"error_code": code, "member_id": request.member_id}


def write_txn_markers(
    request: types.WriteTxnMarkersRequest, code: ErrorCode, message: str | None
) -> Steps[dict[str, Any]]:
    failed = _failed("partition_index", error_code=code)
    pace = Pace()
    markers = []
    for marker in request.markers:
        topics = yield from _topics(marker.topics, failed, pace, {"name": "name"}, "partition_indexes")
        markers.append({"producer_id": marker.producer_id, "topics": topics})
        if pace.spent():
            yield
    return {"markers": markers}


def add_partitions_to_txn(
    request: types.AddPartitionsToTxnRequest, code: ErrorCode, message: str | None
) -> Steps[dict[str, Any]]:
    pace = Pace()
    failed = _failed("partition_index", partition_error_code=code)

    def results(topics: Iterable[types.AddPartitionsToTxnRequestTopic]) -> Steps[list[dict[str, Any]]]:
        return _topics(topics, failed, pace, {"name": "name"}, results="results_by_partition")

    by_transaction = []
    for asked in request.transactions:
        topic_results = yield from results(asked.topics)
        by_transaction.append({"transactional_id": asked.transactional_id, "topic_results": topic_results})
    return {
        "error_code": code,
        "results_by_transaction": by_transaction,
        "results_by_topic_v3_and_below": (yield from results(request.v3_and_below_topics)),
    }


def alter_user_scram_credentials(
    request: types.AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None
) -> Steps[DictOf[types.AlterUserScramCredentialsResponse]]:
    def failed(user: str) -> DictOf[types.AlterUserScramCredentialsResponseResult]:
        return {"user": user, "error_code": code, "error_message": message}

    named = dict.fromkeys(
        [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    )
    return {"results": (yield from each(failed, named, Pace()))}


def alter_client_quotas(
    request: types.AlterClientQuotasRequest, code: ErrorCode, message: str | None
) -> Steps[DictOf[types.AlterClientQuotasResponse]]:
    def failed(entry: types.AlterClientQuotasRequestEntry) -> DictOf[types.AlterClientQuotasResponseEntry]:
        named = entry.entity[: len(ENTITY_TYPES) + 1]
        entity: list[DictOf[types.QuotaEntity]] = [
            {"entity_type": one.entity_type, "entity_name": one.entity_name} for one in named
        ]
        return {"error_code": code, "error_message": message, "entity": entity}

    return {"entries": (yield from each(failed, request.entries, Pace()))}
