"""Offsets that go before a read comes to them are counted, whether the planner or a task finds them gone."""

import asyncio
import json
from pathlib import Path

from pyspark.sql.datasource import InputPartition

from tests.conformance.client_site import TOPIC, Site
from tidelog.pipeline.options.source import parse_options, parse_stream_options
from tidelog.pipeline.source.batch_source import TidelogReader
from tidelog.pipeline.source.losses import count_losses
from tidelog.pipeline.source.stream_source import TidelogStreamReader


async def test_each_offset_that_was_not_read_counts_once(site: Site, tmp_path: Path) -> None:
    await site.create()
    async with site.producer() as producer:
        for _ in range(30):
            await producer.send_and_wait(TOPIC, b"x")
    log = site.broker.services.replica(TOPIC, 0).log
    losses = tmp_path / "losses"
    options = {"bootstrap.servers": site.address, "subscribe": TOPIC, "failOnDataLoss": "false"}
    options |= {"losses.path": str(losses), "columns": "offset"}

    def offsets(reader: TidelogStreamReader | TidelogReader, task: InputPartition) -> list[int]:
        return [offset for batch in reader.read(task) for offset in batch.column(0).to_pylist()]

    stream = TidelogStreamReader(parse_stream_options(options))
    log.delete_records_before(8)
    (task,) = await asyncio.to_thread(stream.partitions, {TOPIC: {"0": 5}}, {TOPIC: {"0": 20}})
    assert count_losses(losses) == 3
    log.delete_records_before(12)
    for _ in ("an attempt", "another"):
        assert await asyncio.to_thread(offsets, stream, task) == list(range(12, 20))
        assert count_losses(losses) == 7

    batch = TidelogReader(parse_options(options | {"startingOffsets": json.dumps({TOPIC: {"0": 9}})}))
    (task,) = await asyncio.to_thread(batch.partitions)
    assert await asyncio.to_thread(offsets, batch, task) == list(range(12, 30))
    assert count_losses(losses) == 7
    log.delete_records_before(14)
    assert await asyncio.to_thread(offsets, batch, task) == list(range(14, 30))
    assert count_losses(losses) == 9
