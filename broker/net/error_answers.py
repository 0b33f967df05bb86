"""The error answer of each API for a request that fails as a whole, and the error codes in a response.

Owns two tables over the API declarations: request -> a response that carries one error in every place where
it can, and response -> how often each error code is in it, as Kafka's `errorCounts` counts them for
ErrorsPerSec (once for every field with a code: top level, topic, partition, resource).

Invariants: pure; every API in `broker.served_apis` has an entry (a test holds it). An error answer names
everything that the request named, so that a client never waits for a partition that is not in the answer.

Source: `AbstractRequest.getErrorResponse`, `AbstractResponse.errorCounts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import (
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    ProducePartitionResult,
    ProduceRequest,
)
from tidelog.protocol.messages.declaration import Field, Message
from tidelog.protocol.quotas import ENTITY_TYPES
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import GLANCES_A_STEP, Pace, Steps, each
from tidelog.protocol.types import NO_OFFSET

ErrorAnswer = Callable[[Any, ErrorCode, str | None], Any]
ErrorCount = Callable[[Any], dict[int, int] | Steps[dict[int, int]] | None]
"""None stands for exactly one NONE, which is by far the most frequent."""


def _produce(request: ProduceRequest, code: ErrorCode, message: str | None) -> list[Any]:
    return [
        (name, [ProducePartitionResult(index, code, error_message=message) for index, _ in partitions])
        for name, partitions in request.topics
    ]


def _fetch(request: FetchRequest, code: ErrorCode, message: str | None) -> FetchResponse:
    def failed(index: int) -> FetchPartitionResult:
        return FetchPartitionResult(index, code, NO_OFFSET, NO_OFFSET, NO_OFFSET, None, -1, None)

    topics = [
        (name, [failed(wanted.partition) for wanted in wanted_ones]) for name, wanted_ones in request.topics
    ]
    return FetchResponse(0, code, 0, topics)


def _metadata(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "topics": [
            {"error_code": code, "name": topic.name or "", "topic_id": topic.topic_id}
            for topic in request.topics or ()
        ]
    }


def _describe_topic_partitions(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"topics": [{"error_code": code, "name": topic.name} for topic in request.topics]}


def _top_level(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"error_code": code}


def _find_coordinator(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    refusal = {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}
    return {**refusal, "coordinators": [{"key": key, **refusal} for key in request.coordinator_keys]}


def _init_producer_id(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


def _top_level_with_message(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message}


def _delete_topics(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    named = [{"name": name} for name in request.topic_names]
    listed = [{"name": topic.name, "topic_id": topic.topic_id} for topic in request.topics]
    return {
        "responses": [{**topic, "error_code": code, "error_message": message} for topic in named + listed]
    }


def _by_topic(results: str) -> ErrorAnswer:
    """An answer that lists the request's topics under `results`."""

    def answer(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
        return {
            results: [
                {"name": topic.name, "error_code": code, "error_message": message} for topic in request.topics
            ]
        }

    return answer


def _by_partition(topic_name: str, partition_index: str) -> Callable[..., Steps[dict[str, Any]]]:
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


def _delete_records(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
    return _by_partition("name", "partition_index")(request, code, message, low_watermark=NO_OFFSET)


def _offset_commit(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
    answer = yield from _by_partition("name", "partition_index")(request, code, message)
    pace = Pace()
    for topic, answered in zip(request.topics, answer["topics"], strict=True):
        answered["topic_id"] = topic.topic_id
        if pace.spent():
            yield
    return answer


def _offset_fetch(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    def failed(index: int) -> dict[str, Any]:
        return {"partition_index": index, "committed_offset": NO_OFFSET, "metadata": "", "error_code": code}

    return {
        "error_code": code,
        "topics": [
            {"name": topic.name, "partitions": [failed(index) for index in topic.partition_indexes]}
            for topic in request.topics or ()
        ],
        "groups": [{"group_id": group.group_id, "error_code": code} for group in request.groups],
    }


def _describe_log_dirs(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "results": [{"error_code": code, "log_dir": ""}]}


def _elect_leaders(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
    pace = Pace()

    def failed(index: int) -> dict[str, Any]:
        return {"partition_id": index, "error_code": code, "error_message": message}

    results = []
    for topic in request.topic_partitions or ():
        partitions = yield from each(failed, topic.partitions, pace)
        results.append({"topic": topic.topic, "partition_result": partitions})
        if pace.spent():
            yield
    return {"error_code": code, "replica_election_results": results}


def _join_group(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "member_id": request.member_id}


def _describe_groups(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"groups": [{"group_id": group_id, "error_code": code} for group_id in request.groups]}


def _consumer_group_describe(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "groups": [
            {"group_id": group_id, "error_code": code, "error_message": message}
            for group_id in request.group_ids
        ]
    }


def _delete_groups(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"results": [{"group_id": group_id, "error_code": code} for group_id in request.groups_names]}


def _describe_producers(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
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


def _write_txn_markers(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
    def failed(index: int) -> dict[str, Any]:
        return {"partition_index": index, "error_code": code}

    pace = Pace()
    markers = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions = yield from each(failed, topic.partition_indexes, pace)
            topics.append({"name": topic.name, "partitions": partitions})
            if pace.spent():
                yield
        markers.append({"producer_id": marker.producer_id, "topics": topics})
        if pace.spent():
            yield
    return {"markers": markers}


def _add_partitions_to_txn(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
    pace = Pace()

    def failed(index: int) -> dict[str, Any]:
        return {"partition_index": index, "partition_error_code": code}

    def results(topics: Iterable[Any]) -> Steps[list[dict[str, Any]]]:
        answers = []
        for topic in topics:
            partitions = yield from each(failed, topic.partitions, pace)
            answers.append({"name": topic.name, "results_by_partition": partitions})
            if pace.spent():
                yield
        return answers

    by_transaction = []
    for asked in request.transactions:
        topic_results = yield from results(asked.topics)
        by_transaction.append({"transactional_id": asked.transactional_id, "topic_results": topic_results})
    return {
        "error_code": code,
        "results_by_transaction": by_transaction,
        "results_by_topic_v3_and_below": (yield from results(request.v3_and_below_topics)),
    }


def _describe_transactions(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "transaction_states": [
            {"transactional_id": transactional_id, "error_code": code}
            for transactional_id in request.transactional_ids
        ]
    }


def _by_resource(results: str) -> ErrorAnswer:
    """An answer that lists the request's config resources under `results`."""

    def answer(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
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


def _alter_user_scram_credentials(
    request: Any, code: ErrorCode, message: str | None
) -> Steps[dict[str, Any]]:
    def failed(user: str) -> dict[str, Any]:
        return {"user": user, "error_code": code, "error_message": message}

    named = dict.fromkeys(each.name for each in chain(request.deletions, request.upsertions))
    return {"results": (yield from each(failed, named, Pace()))}


def _create_acls(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
    refused = {"error_code": code, "error_message": message}
    return {"results": (yield from each(lambda _: refused, request.creations, Pace()))}


def _delete_acls(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
    refused = {"error_code": code, "error_message": message}
    return {"filter_results": (yield from each(lambda _: refused, request.filters, Pace()))}


def _describe_client_quotas(request: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "entries": None}


def _quota_entity(entry: Any) -> list[dict[str, Any]]:
    named = entry.entity[: len(ENTITY_TYPES) + 1]
    return [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in named]


def _alter_client_quotas(request: Any, code: ErrorCode, message: str | None) -> Steps[dict[str, Any]]:
    def failed(entry: Any) -> dict[str, Any]:
        return {"error_code": code, "error_message": message, "entity": _quota_entity(entry)}

    return {"entries": (yield from each(failed, request.entries, Pace()))}


ERROR_ANSWERS: Mapping[ApiKey, ErrorAnswer] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _by_partition("name", "partition_index"),
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _top_level,
    ApiKey.LEAVE_GROUP: _top_level,
    ApiKey.SYNC_GROUP: _top_level,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _top_level,
    ApiKey.SASL_HANDSHAKE: _top_level,
    ApiKey.API_VERSIONS: _top_level,
    ApiKey.CREATE_TOPICS: _by_topic("topics"),
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _by_partition("topic", "partition"),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _top_level,
    ApiKey.END_TXN: _top_level,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _by_partition("name", "partition_index"),
    ApiKey.DESCRIBE_ACLS: _top_level_with_message,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.DESCRIBE_CONFIGS: _by_resource("results"),
    ApiKey.ALTER_CONFIGS: _by_resource("responses"),
    ApiKey.SASL_AUTHENTICATE: _top_level_with_message,
    ApiKey.CREATE_PARTITIONS: _by_topic("results"),
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _by_resource("responses"),
    ApiKey.OFFSET_DELETE: _top_level,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _top_level_with_message,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_CLUSTER: _top_level_with_message,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _top_level_with_message,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _top_level,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _top_level_with_message,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _top_level_with_message,
    ApiKey.DESCRIBE_QUORUM: _top_level_with_message,
    ApiKey.UPDATE_FEATURES: _top_level_with_message,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _top_level,
    ApiKey.LIST_CONFIG_RESOURCES: _top_level,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
}
"""API -> (request, code, message) -> the response values with that error, or the steps to them."""


def count_produce_errors(
    response: Sequence[tuple[str, Sequence[ProducePartitionResult]]],
) -> Steps[dict[int, int]] | None:
    if len(response) == 1 and len(response[0][1]) == 1 and response[0][1][0].error_code == 0:
        return None
    return _count(result.error_code for _, results in response for result in results)


def count_fetch_errors(response: FetchResponse) -> dict[int, int] | Steps[dict[int, int]]:
    topics = response.topics
    if response.error_code == 0 and len(topics) == 1 and len(topics[0][1]) == 1:
        code = int(topics[0][1][0].error_code)
        return {0: 2} if code == 0 else {0: 1, code: 1}
    of_partitions = (result.error_code for _, results in response.topics for result in results)
    return _count(chain((int(response.error_code),), of_partitions))


def _count(codes: Iterable[int]) -> Steps[dict[int, int]]:
    pace = Pace(GLANCES_A_STEP)
    counts: dict[int, int] = {}
    for code in codes:
        counts[code] = counts.get(code, 0) + 1
        if pace.spent():
            yield
    return counts


_Codes = Callable[[Mapping[str, Any]], Iterator[int]]


def _codes_in(fields: Sequence[Field]) -> _Codes | None:
    """A function that gives the codes of one struct with these fields, or None if no field has a code."""
    own = [field.name for field in fields if field.name in ("error_code", "partition_error_code")]
    nested = [
        (field.name, of_element)
        for field in fields
        if field.is_array and field.fields and (of_element := _codes_in(field.fields)) is not None
    ]
    if not own and not nested:
        return None

    def codes(values: Mapping[str, Any]) -> Iterator[int]:
        for name in own:
            yield int(values.get(name, 0))
        for name, of_element in nested:
            for element in values.get(name) or ():
                yield from of_element(element)

    return codes


def error_count_of(api_key: ApiKey) -> ErrorCount:
    """The function that counts the codes in a response of this API, made from the response's declaration."""
    if api_key == ApiKey.PRODUCE:
        return count_produce_errors
    if api_key == ApiKey.FETCH:
        return count_fetch_errors
    return declared_error_count(APIS[api_key].response)


def declared_error_count(response: Message) -> ErrorCount:
    codes = _codes_in(response.fields)
    return lambda values: _count(() if codes is None else codes(values))
