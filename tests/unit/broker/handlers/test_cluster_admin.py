"""What operators ask of a cluster is answered as one broker can, and nothing that needs two is promised."""

from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.features import FINALIZED_FEATURES
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

NOBODY = UUID(int=0)


@pytest.mark.parametrize("version", range(1, 5))
async def test_log_dirs_name_the_folder_and_the_bytes_of_each_partition(asker: Asker, version: int) -> None:
    await asker.create("t", 2)
    await asker.produce("t", make_batch(b"value"))
    answer = await asker.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
    (folder,) = answer.results
    assert folder.log_dir == str(asker.services.config.data_dir)
    (topic,) = folder.topics
    stored = asker.replica("t").log.size_bytes
    assert stored > 0
    sizes = [(held.partition_index, held.partition_size, held.offset_lag) for held in topic.partitions]
    assert sizes == [(0, stored, 0), (1, 0, 0)]
    if version == 4:
        assert folder.total_bytes > folder.usable_bytes > 0


async def test_log_dirs_leave_out_missing_partitions(asker: Asker) -> None:
    await asker.create("t")
    topics = [{"topic": "t", "partitions": [7]}, {"topic": "unknown", "partitions": [0]}]
    answer = await asker.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=topics)
    assert answer.results[0].topics == []


@pytest.mark.parametrize("version", [1, 2])
async def test_a_replica_moves_to_no_other_folder(asker: Asker, version: int) -> None:
    longest = "x" * 213
    for name in ("t", "followed", "offline", longest, f"{longest}x"):
        await asker.create(name)
    asker.replica("followed").follow(1, 2)
    asker.replica("offline").stopped = ErrorCode.KAFKA_STORAGE_ERROR
    names = ["t", "followed", "offline", longest, f"{longest}x", "unknown"]

    async def codes(path: str) -> list[int]:
        topics = [{"name": name, "partitions": [0]} for name in names]
        dirs = [{"path": path, "topics": topics}]
        answer = await asker.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=dirs)
        assert [topic.topic_name for topic in answer.results] == names
        return [topic.partitions[0].error_code for topic in answer.results]

    (folder,) = (await asker.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)).results
    too_long, absent = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.LOG_DIR_NOT_FOUND
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await codes(folder.log_dir) == [0, 0, ErrorCode.KAFKA_STORAGE_ERROR, 0, too_long, unknown]
    assert await codes(f"{folder.log_dir}-2") == [absent, absent, absent, absent, too_long, absent]


@pytest.mark.parametrize("version", range(3))
async def test_an_election_is_not_needed_where_the_only_replica_leads(asker: Asker, version: int) -> None:
    await asker.create("t")
    asked = [{"topic": "t", "partitions": [0, 1]}, {"topic": "unknown", "partitions": [0]}]
    answer = await asker.ask(ApiKey.ELECT_LEADERS, version, topic_partitions=asked)
    codes = {
        (held.topic, part.partition_id): part.error_code
        for held in answer.replica_election_results
        for part in held.partition_result
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED, ("t", 1): unknown, ("unknown", 0): unknown}


@pytest.mark.parametrize(
    ("election_type", "code"),
    [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
async def test_no_leader_is_elected_for_a_partition_that_is_offline(
    asker: Asker, election_type: int, code: ErrorCode
) -> None:
    await asker.create("t")
    await asker.create("online")
    asker.replica("t").stopped = ErrorCode.KAFKA_STORAGE_ERROR
    answer = await asker.ask(ApiKey.ELECT_LEADERS, 2, election_type=election_type, topic_partitions=None)
    results = [
        (held.topic, part.error_code)
        for held in answer.replica_election_results
        for part in held.partition_result
    ]
    assert results == [("t", code)]


@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        ("t", 0, [0], ErrorCode.NONE),
        ("t", 0, [0, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 1, [0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("unknown", 0, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_replicas_can_only_be_on_brokers_that_exist(
    asker: Asker, topic: str, index: int, replicas: list[int] | None, code: ErrorCode
) -> None:
    await asker.create("t")
    node_id = asker.services.node_id
    replicas = replicas and [node_id + each for each in replicas]
    topics = [{"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}]
    answer = await asker.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, topics=topics)
    (answered,) = answer.responses[0].partitions
    assert (answered.partition_index, answered.error_code) == (index, code)
    listed = await asker.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
    assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])


async def test_config_resources_are_topics_this_broker_groups_and_client_metrics(asker: Asker) -> None:
    await asker.create("t")
    for number, name, setting in ((32, "billing", "consumer.session.timeout.ms"), (16, "all", "interval.ms")):
        config = {"name": setting, "config_operation": 0, "value": "50000"}
        resource = {"resource_type": number, "resource_name": name, "configs": [config]}
        answer = await asker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        assert answer.responses[0].error_code == ErrorCode.NONE
    broker, metrics, group = (4, str(asker.services.node_id)), (16, "all"), (32, "billing")
    cases: list[tuple[list[int], list[tuple[int, str]]]] = [
        ([], [(2, "t"), broker, metrics, group]),
        ([2], [(2, "t")]),
        ([4, 4], [broker]),
        ([16], [metrics]),
        ([32, 2], [(2, "t"), group]),
    ]
    for wanted, expected in cases:
        answer = await asker.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=wanted)
        assert [(held.resource_type, held.resource_name) for held in answer.config_resources] == expected
    answer = await asker.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[99])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    answer = await asker.ask(ApiKey.LIST_CONFIG_RESOURCES, 0)
    assert [held.resource_name for held in answer.config_resources] == ["all"]


@pytest.mark.parametrize("version", range(3))
async def test_the_quorum_is_this_broker_at_the_catalog_s_revision(asker: Asker, version: int) -> None:
    await asker.create("t")
    topics = [
        {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}] * 2},
        {"topic_name": "t", "partitions": [{"partition_index": 0}]},
    ]
    answer = await asker.ask(ApiKey.DESCRIBE_QUORUM, version, topics=topics)
    (metadata,) = answer.topics[0].partitions
    revision = asker.services.catalog.revision
    (voter,) = metadata.current_voters
    node_id = asker.services.node_id
    assert (metadata.leader_id, metadata.high_watermark) == (node_id, revision)
    assert (voter.replica_id, voter.log_end_offset) == (node_id, revision)
    assert answer.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
async def test_no_feature_has_a_version_to_choose(asker: Asker, version: int) -> None:
    updates: list[dict[str, Any]] = [{"feature": "metadata.version", "max_version_level": 7}] * 2
    for refused in (updates, [{"feature": "no.such.feature", "max_version_level": 1}]):
        answer = await asker.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=refused)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert not answer.results
    in_force = [{"feature": name, "max_version_level": level} for name, level in FINALIZED_FEATURES.items()]
    for accepted in ([], in_force):
        answer = await asker.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=accepted)
        assert {answer.error_code, *(held.error_code for held in answer.results)} == {ErrorCode.NONE}
