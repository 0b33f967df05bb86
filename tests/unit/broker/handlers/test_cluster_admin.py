"""What operators ask of a cluster is answered as one broker can, and nothing that needs two is promised."""

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


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
