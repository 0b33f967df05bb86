"""Reads over the wire: what a compacted log leaves out is no loss, a throttled answer is no fault, and a
topic that was created again is another one."""

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from faults.wire import Wire
from tests.unit.broker.replicas.test_log_cleaner import fill, topic
from tests.unit.pipeline.batches import plain_rows
from tidelog.broker.services import Services
from tidelog.broker.testing.embedded import ThreadedBroker
from tidelog.client import Admin, NewTopic, Producer
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.offsets import OffsetsLostError, OptionError
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.source import fetch
from tidelog.protocol.hot import FetchResponse, decode_fetch_response

SEGMENTS = 6


async def _clean(services: Services) -> None:
    """Of twelve records in six segments, the last two stay."""
    await fill(services, await topic(services, "t"), SEGMENTS)
    assert await services.cleaner.clean_dirtiest()


def test_offsets_that_compaction_left_out_are_no_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However the range is cut: tasks whose offsets all went give no row, and none waits for them."""
    with ThreadedBroker(data_dir=tmp_path / "data") as broker:
        broker._do(lambda: _clean(broker.broker.services))
        given = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        ranges = [(0, 12), (3, 12), (0, 11), (2, 9)]
        for start, end in ranges:
            for tasks in (1, 5):
                options = given | {
                    "startingOffsets": json.dumps({"t": {"0": start}}),
                    "endingOffsets": json.dumps({"t": {"0": end}}),
                    "minPartitions": str(tasks),
                }
                reader = TidelogDataSource(options).reader(SCHEMA)
                rows = [row for task in reader.partitions() for row in plain_rows(reader.read(task))]
                assert [row["offset"] for row in rows] == [each for each in (10, 11) if start <= each < end]
    assert not [each for each in caplog.records if "skipped" in each.getMessage()]


def test_an_answer_that_a_quota_emptied_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Apache Kafka throttles a Fetch: the answer names no topic."""
    throttled = [True, False, True]

    def answer(version: int, body: Any) -> FetchResponse:
        whole = decode_fetch_response(version, body)
        return whole._replace(topics=[]) if throttled and throttled.pop() else whole

    monkeypatch.setattr(fetch, "decode_fetch_response", answer)
    with ThreadedBroker(data_dir=tmp_path / "data") as broker:
        broker._do(lambda: _clean(broker.broker.services))
        options = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        reader = TidelogDataSource(options).reader(SCHEMA)
        rows = [row for task in reader.partitions() for row in plain_rows(reader.read(task))]
    assert [row["offset"] for row in rows] == [10, 11]


@pytest.mark.parametrize("by_files", [False, True], ids=["wire", "files"])
def test_a_topic_that_is_created_again_after_the_planning_fails_the_task(
    tmp_path: Path, by_files: bool
) -> None:
    with ThreadedBroker(data_dir=tmp_path / "data") as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        given = servers | {"subscribe": "t"} | ({"read.path": str(tmp_path / "data")} if by_files else {})
        reader = TidelogDataSource(given).reader(SCHEMA)
        asyncio.run(_make(broker.bootstrap_servers, b"old"))
        tasks = reader.partitions()
        assert [row["value"] for row in plain_rows(reader.read(tasks[0]))] == [b"old"] * 3
        asyncio.run(_make(broker.bootstrap_servers, b"new"))
        with pytest.raises(OffsetsLostError, match="topic t was deleted and created again"):
            list(reader.read(tasks[0]))


def test_what_the_folders_of_the_leaders_do_not_give_comes_from_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder of another broker, one that is not there, and one that a task does not see any more."""
    data, other, missing = tmp_path / "data", tmp_path / "other", tmp_path / "missing"
    with ThreadedBroker(data_dir=data) as broker:
        asyncio.run(_make(broker.bootstrap_servers, b"new"))
        servers = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}

        def rows(*folders: Path, seen: Path | None = None) -> list[Any]:
            """Those of a read of these folders. Its task looks for `data` at `seen`."""
            reader = TidelogDataSource(servers | {"read.path": ",".join(map(str, folders))}).reader(SCHEMA)
            tasks: list[Any] = list(reader.partitions())
            for task in tasks:
                if seen is not None:
                    task.piece = task.piece._replace(path=task.piece.path.replace(str(data), str(seen)))
            return [row["value"] for task in tasks for row in plain_rows(reader.read(task))]

        assert rows(data, other) == rows(data, seen=missing) == [b"new"] * 3
        shutil.copytree(data, other)
        (log,) = (other / "t-0").glob("*.log")
        log.write_bytes(b"")
        identity = other / "meta.properties"
        identity.write_text(re.sub(r"node\.id=\d+", "node.id=7", identity.read_text()))
        assert rows(data, other) == rows(other) == rows(missing) == [b"new"] * 3
        with pytest.raises(OptionError, match=f"{missing} cannot be read"):
            TidelogDataSource({"read.path": str(missing), "subscribe": "t"}).reader(SCHEMA).partitions()
    told = [each.getMessage() for each in caplog.records if "read.path" in each.getMessage()]
    assert [text.split(":")[1].split(" (")[0] for text in told] == [
        f" {other} cannot be read",
        " no folder has the leader's files of t-0",
        f" {missing} cannot be read",
    ]


def test_records_that_are_deleted_after_the_planning_are_named_with_what_to_do(tmp_path: Path) -> None:
    with ThreadedBroker(data_dir=tmp_path / "data") as broker:
        given = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        asyncio.run(_make(broker.bootstrap_servers, b"old"))
        readers = [
            TidelogDataSource(given | {"failOnDataLoss": text}).reader(SCHEMA) for text in ("true", "false")
        ]
        tasks = [reader.partitions()[0] for reader in readers]
        asyncio.run(_delete(broker.bootstrap_servers, 2))
        with pytest.raises(OffsetsLostError, match=r"t-0: offset 0 is gone .*; set failOnDataLoss=false"):
            list(readers[0].read(tasks[0]))
        assert [row["offset"] for row in plain_rows(readers[1].read(tasks[1]))] == [2]


async def _delete(servers: str, before: int) -> None:
    async with Wire.connected(int(servers.rpartition(":")[2])) as wire:
        assert await wire.delete_records("t", {0: before}) == [0]


async def _make(servers: str, value: bytes) -> None:
    """The topic anew, with three records."""
    async with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        if "t" in await admin.list_topics():
            await admin.delete_topics(["t"])
        await admin.create_topics([NewTopic("t", 1)])
        for _ in range(3):
            await (await producer.send("t", value))
