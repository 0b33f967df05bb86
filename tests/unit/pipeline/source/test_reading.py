"""Reads over the wire: what a compacted log leaves out is no loss, and a throttled answer is no fault."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.replicas.test_log_cleaner import fill, topic
from tests.unit.pipeline.batches import plain_rows
from tidelog.broker.services import Services
from tidelog.broker.testing.embedded import ThreadedBroker
from tidelog.pipeline.data_source import TidelogDataSource
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
