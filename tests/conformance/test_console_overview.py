"""What the overview says is wrong with a real broker whose disk fails, or where a transaction hangs."""

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.conformance.console_site import Visitor
from tests.conformance.disks import BadDisk
from tests.conformance.raw import batch, connected
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.cli.topic import app as topic_commands
from tidelog.protocol.errors import ErrorCode


async def problem(broker: Broker, name: str) -> dict[str, Any]:
    """Once it is one: a look at the broker is shared for some seconds."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            answer = await Visitor(broker).get("/api/v1/overview")
            assert answer.status == 200, answer.text
            found = {each["name"]: each for each in answer.json["problems"]}
            if name in found:
                return dict(found[name])
            await asyncio.sleep(0.1)


async def test_a_partition_whose_disk_failed_is_named_with_what_to_do(tmp_path: Path) -> None:
    disk = BadDisk()
    config = BrokerConfig(port=0, http_port=0, data_dir=tmp_path)
    async with await Broker.start(config, disk=disk) as broker, connected(broker.port) as client:
        await client.create("t")
        producer_id = await client.producer_id()
        disk.fail("fdatasync", errno.EIO)
        sent = batch("a", producer_id, 0)
        assert await client.produce(sent) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        offline = await problem(broker, "partition_offline")
        assert offline["severity"] == "critical"
        assert offline["text"].startswith("1 partition (t-0) is offline")
        assert "restart the broker" in offline["remedy"]
        assert "KAFKA_STORAGE_ERROR" in (await problem(broker, "storage_errors"))["text"]
        overview = (await Visitor(broker).get("/api/v1/overview")).json
        assert overview["holdings"]["offline_partitions"] == 1
        (state,) = (await Visitor(broker).get("/api/v1/partitions?is_troubled=true")).json["rows"]
        assert (state["topic"], state["partition"], state["is_served"]) == ("t", 0, False)
        command = ["describe", "t", "--json", "-b", f"127.0.0.1:{broker.port}"]
        said = await asyncio.to_thread(CliRunner().invoke, topic_commands, command)
        (described,) = json.loads(said.output)["partitions"]
        assert (described["leader"], described["next_offset"]) == (-1, None)
