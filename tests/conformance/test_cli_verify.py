"""`tidelog log verify` on folders that real brokers left behind."""

import asyncio
import json
from pathlib import Path

import pytest

from faults.process import BrokerProcess
from tests.conformance.commands import Type, typist
from tests.conformance.raw import batch, connected


@pytest.fixture
def tidelog(capfd: pytest.CaptureFixture[str]) -> Type:
    return typist(capfd)


async def write(port: int, first: int, count: int) -> None:
    async with connected(port) as client:
        if first == 0:
            await client.create()
        producer_id = await client.producer_id()
        for sequence in range(count):
            assert (await client.produce(batch(f"value {sequence}", producer_id, sequence)))[0] == 0


async def test_killed_restarted_stopped_and_damaged(tmp_path: Path, tidelog: Type) -> None:
    data_dir = tmp_path / "data"
    broker = BrokerProcess(data_dir, settings={"log.segment.bytes": "3000"})
    await broker.start()
    try:
        await write(broker.port, 0, 100)
        code, shown, error = await asyncio.to_thread(tidelog, "log", "verify", str(data_dir))
        assert (code, shown) == (1, "")
        assert error.startswith(f"error: a broker is using {data_dir}; stop it first")
        await broker.kill_9()
        code, shown, _ = await asyncio.to_thread(tidelog, "log", "verify", str(data_dir))
        assert code == 0, shown
        assert "100 batches, 100 records" in shown
        await broker.start()
        await write(broker.port, 100, 50)
        assert await broker.terminate() == 0
    finally:
        await broker.kill_9()
    code, shown, _ = await asyncio.to_thread(tidelog, "log", "verify", str(data_dir))
    assert code == 0, shown
    assert shown.splitlines()[-1] == "no damage found, 0 warnings"
    log = data_dir / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-5])
    code, shown, _ = await asyncio.to_thread(tidelog, "log", "verify", str(data_dir))
    assert code == 1
    assert shown.startswith("damage   t-0/00000000000000000000.log at byte ")
    code, shown, _ = await asyncio.to_thread(tidelog, "log", "verify", str(data_dir), "--json")
    *findings, totals = map(json.loads, shown.splitlines())
    assert code == 1
    assert findings[0]["severity"] == "damage"
    assert findings[0]["file"] == f"t-0/{log.name}"
    assert findings[0]["position"] < log.stat().st_size
    assert totals["totals"]["damage"] == sum(each["severity"] == "damage" for each in findings)


def test_what_is_no_data_folder_is_one_line(tmp_path: Path, tidelog: Type) -> None:
    assert tidelog("log", "verify", str(tmp_path))[::2] == (
        1,
        f"error: {tmp_path} is not the data folder of a broker: it has neither topics nor cluster.db\n",
    )
