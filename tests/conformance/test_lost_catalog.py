"""A broker process on a damaged catalog serves every topic and record, or ends with code 1 and one event."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from faults.wire import Wire
from tests.conformance.raw import connected
from tests.conformance.test_startup import Process, port_of
from tests.unit.broker.test_services import lose_the_store, opened, stored
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.replicas.topics import NewTopic
from tidelog.cli.app import run_command

TOPICS = {"a": 1, "b": 3, "c": 1}


@pytest.fixture(params=["stopped", "killed"])
async def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The data folder of a broker that had been started twice, so that SQLite's log is in use."""
    for names in (["a"], ["b", "c"]):
        services = await opened(tmp_path / "sound")
        for name in names:
            configs: dict[str, str | None] = {"retention.ms": "-1"}
            await services.topics.create(name, NewTopic(num_partitions=TOPICS[name], configs=configs))
            await stored(services, b"v", topic=name)
        await services.close(clean=request.param == "stopped" or names == ["a"])
    return tmp_path / "sound"


async def outcome(data_dir: Path) -> tuple[str, str]:
    """(`served`, "") of a broker that has all topics and records, else (`refused`, what it says)."""
    broker = await Process.spawn("--port", "0", "--http-port", "-1", "--data-dir", str(data_dir))
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            line = await broker.stdout.readline()
        if line:
            await check_serves(port_of(json.loads(line)))
            return "served", ""
        code, out, errors = await broker.end()
    finally:
        await broker.kill()
    events = [json.loads(error) for error in errors.splitlines()]
    assert (code, out, [event["event"] for event in events]) == (1, "", ["broker_not_started"])
    error: str = events[0]["error"]
    assert "rebuild-catalog" in error or "Check that the disk" in error
    return "refused", error


async def check_serves(port: int) -> None:
    async with Wire.connected(port) as wire:
        assert await wire.topic_names() == TOPICS
    async with connected(port) as client:
        for topic in TOPICS:
            records = (await client.fetch(topic=topic)).records
            assert records is not None
            assert b"v" in bytes(records)


async def test_a_damaged_catalog_is_restored_or_refused_and_never_an_empty_broker(
    folder: Path, tmp_path: Path
) -> None:
    """Once each; `tests/unit/broker/cluster/test_damage.py` damages each file in every way."""
    restored, refused = tmp_path / "restored", tmp_path / "refused"
    for copy in (restored, refused):
        shutil.copytree(folder, copy)
    database = restored / "cluster.db"
    database.write_bytes(database.read_bytes()[: database.stat().st_size // 2])
    assert (await outcome(restored))[0] == "served"
    for name in ("cluster.db", "cluster.copy"):
        (refused / name).unlink()
    assert (await outcome(refused))[0] == "refused"


@pytest.mark.parametrize("folder", ["killed"], indirect=True)
async def test_a_catalog_that_is_gone_is_rebuilt_by_the_command_that_the_refusal_names(folder: Path) -> None:
    lose_the_store(folder)
    what, error = await outcome(folder)
    assert what == "refused"
    _, *arguments = error.split("`")[1].split()
    assert await asyncio.to_thread(run_command, [*arguments, "--yes"]) == 0
    assert (await outcome(folder))[0] == "served"
