"""A real broker that is stopped while the disk takes nothing more: it ends as told, and nothing is lost.

The disk is full by the process's limit of file sizes: every write fails with EFBIG, SQLite's too.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from faults.process import BrokerProcess
from tests.conformance.raw import batch, connected
from tests.waiting import until
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

OFTEN = {
    "log.flush.offset.checkpoint.interval.ms": 20,
    "log.retention.check.interval.ms": 30,
    "log.retention.ms": -1,
}
SELDOM = {"log.flush.offset.checkpoint.interval.ms": 3_600_000}


@pytest.fixture(params=[OFTEN, SELDOM], ids=["while upkeep runs", "before any upkeep"])
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[BrokerProcess]:
    async with BrokerProcess(tmp_path / "data", settings=request.param) as broker:
        yield broker


def fill_disk(broker: BrokerProcess) -> None:
    assert broker.pid is not None
    broker.limit_files(0)


async def test_a_stop_on_a_full_disk_ends_well_and_says_what_was_not_written(broker: BrokerProcess) -> None:
    async with connected(broker.port) as client:
        await client.create()
        producer_id = await client.producer_id()
        assert await client.produce(batch("a", producer_id, 0)) == (0, 0)
        fill_disk(broker)
        assert await client.produce(batch("b", producer_id, 1)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        wanted = {"name": "u", "num_partitions": 1, "replication_factor": 1}
        answer = await client.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [wanted]})
        assert answer.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        if broker.settings == OFTEN:
            await until(lambda: broker.events("checkpoint_failed") or broker.events("maintenance_failed"))
    assert await broker.terminate() == 0
    output = "\n".join(broker.log_lines)
    assert "Traceback" not in output
    assert "never retrieved" not in output
    (told,) = broker.events("shutdown_not_clean")
    assert "nothing that was acknowledged is lost" in told["advice"]
    assert broker.events("broker_stopped")
    await broker.restart()
    assert broker.events("log_damage_found") == []
    async with connected(broker.port) as client:
        assert await client.produce(batch("b", producer_id, 1)) == (0, 1)
        assert await client.log() == [b"a", b"b"]
