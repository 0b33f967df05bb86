"""Partitions are given other replicas while clients use them: nothing is lost, and folders go."""

from __future__ import annotations

import asyncio
import errno
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.several.brokers import Brokers, brokers
from tests.several.test_replication import SHORT, made, values
from tests.several.test_topics import asked
from tests.tidy.house import ROOT
from tests.waiting import until
from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.console.api.topics import partition_row
from tidelog.cli.reassign import app
from tidelog.client import Producer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, (1, 2, 3, 4), **SHORT) as running:
        yield running


async def reassign(cluster: Brokers, replicas: Sequence[int] | None, topic: str = "t") -> ErrorCode:
    """Of partition 0, asked of any broker."""
    partition = {"partition_index": 0, "replicas": replicas}
    topics = [{"name": topic, "partitions": [partition]}]
    node_id = next(iter(cluster.running))
    answer = await asked(cluster, node_id, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, topics=topics)
    code: ErrorCode = answer.responses[0].partitions[0].error_code
    return code


async def under_way(cluster: Brokers) -> Any:
    node_id = next(iter(cluster.running))
    answer = await asked(cluster, node_id, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
    return [
        (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    ]


async def has(cluster: Brokers, *replicas: int) -> PartitionAssignment:
    """Once partition 0 has these replicas, all in sync, and each of them leads or follows."""

    def is_so() -> bool:
        assigned = cluster.topic("t").partitions[0]
        return assigned.replicas == replicas == assigned.wanted_replicas and {*assigned.isr} == {*replicas}

    await until(is_so)
    await cluster.agreed()
    return cluster.topic("t").partitions[0]


def folders(tmp_path: Path) -> set[int]:
    return {int(path.parent.name.removeprefix("broker-")) for path in tmp_path.glob("broker-*/t-0")}


async def test_a_replica_whose_log_failed_joins_after_it_was_moved_away_and_back(cluster: Brokers) -> None:
    await made(cluster, "t", 2)
    leader, follower = cluster.topic("t").partitions[0].replicas
    other = next(each for each in (1, 2, 3, 4) if each not in (leader, follower))
    cluster[follower].services.replicas["t", 0].fail(OSError(errno.EIO, "I/O error"))
    await until(lambda: cluster[leader].services.catalog.brokers[follower].offline)
    assert await reassign(cluster, [leader, other]) == ErrorCode.NONE
    await has(cluster, leader, other)
    assert await reassign(cluster, [leader, follower]) == ErrorCode.NONE
    await has(cluster, leader, follower)


async def test_a_partition_moves_to_other_brokers_while_it_is_written(
    cluster: Brokers, tmp_path: Path
) -> None:
    await made(cluster, "t", 1)
    first = cluster.topic("t").partitions[0].leader_id
    others = [each for each in (1, 2, 3, 4) if each != first]
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        assert await reassign(cluster, [first, *others[:2]]) == ErrorCode.NONE
        await producer.send_and_wait("t", b"1", partition=0)
        grown = await has(cluster, first, *others[:2])
        assert (grown.leader_id, grown.leader_epoch) == (first, 0)
        # The leader goes, one stays, one comes.
        assert await reassign(cluster, [others[2], others[0]]) == ErrorCode.NONE
        await producer.send_and_wait("t", b"2", partition=0)
        moved = await has(cluster, others[2], others[0])
        assert (moved.leader_id, moved.leader_epoch) == (others[2], 1)
        await producer.send_and_wait("t", b"3", partition=0)
        await until(lambda: folders(tmp_path) == {others[2], others[0]})
        assert await reassign(cluster, [others[0]]) == ErrorCode.NONE
        await has(cluster, others[0])
        await producer.send_and_wait("t", b"4", partition=0)
    assert await values(cluster, 5) == [b"0", b"1", b"2", b"3", b"4"]


async def test_what_is_under_way_can_be_changed_and_cancelled(cluster: Brokers, tmp_path: Path) -> None:
    await made(cluster, "t", 2)
    first, second = cluster.topic("t").partitions[0].replicas
    third, fourth = {1, 2, 3, 4} - {first, second}
    assert await reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await reassign(cluster, [first, 9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await under_way(cluster) == []
    await cluster.kill(third)
    assert await reassign(cluster, [third, second]) == ErrorCode.NONE
    assert await under_way(cluster) == [([third, second, first], [third], [first])]
    services = cluster[second].services
    row = partition_row(services, cluster.topic("t"), 0)
    assert (row["adding_replicas"], row["removing_replicas"]) == ([third], [first])
    assert await reassign(cluster, [fourth, third, second]) == ErrorCode.NONE
    assert await under_way(cluster) == [([fourth, third, second, first], [fourth, third], [first])]
    await until(lambda: fourth in cluster.topic("t").partitions[0].isr)
    assert await reassign(cluster, None) == ErrorCode.NONE
    back = await has(cluster, second, first)
    assert (back.leader_id, back.leader_epoch) == (first, 1)
    assert await under_way(cluster) == []
    await cluster.start(third)
    await cluster.agreed()
    assert folders(tmp_path) == {first, second}
    assert await reassign(cluster, [third, second]) == ErrorCode.NONE
    await has(cluster, third, second)


async def test_a_broker_that_was_down_removes_what_was_moved_away(cluster: Brokers, tmp_path: Path) -> None:
    await made(cluster, "t", 2)
    first, second = cluster.topic("t").partitions[0].replicas
    third, _ = {1, 2, 3, 4} - {first, second}
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
    await cluster.kill(first)
    assert await reassign(cluster, [second, third]) == ErrorCode.NONE
    await has(cluster, second, third)
    assert folders(tmp_path) == {first, second, third}
    await cluster.start(first)
    await cluster.agreed()
    assert folders(tmp_path) == {second, third}
    assert await values(cluster, 1) == [b"0"]


async def command(cluster: Brokers, *arguments: str) -> str:
    """What `tidelog reassign` prints."""
    arguments = (*arguments, "--bootstrap-servers", cluster.bootstrap_servers)
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert result.exit_code == 0, f"{result.output}{result.exception!r}"
    # The events of the brokers, which run in this process, are between the lines.
    return "".join(line for line in result.output.splitlines(True) if not re.match(r"\d{4}-\d\d-\d\d ", line))


async def test_commands_plan_begin_throttle_show_and_cancel(cluster: Brokers, tmp_path: Path) -> None:
    await made(cluster, "t", 1)
    first = cluster.topic("t").partitions[0].leader_id
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, max_request_size=1 << 20) as producer:
        for _ in range(8):
            await producer.send_and_wait("t", bytes(500_000), partition=0)
    plan = await command(cluster, "plan", "t", "--replication-factor", "2")
    assert len(json.loads(plan)["partitions"]) == 3
    file = tmp_path / "plan.json"
    file.write_text(plan)
    # So slow that none of what follows depends on when it happens.
    assert "began to move 3" in await command(cluster, "start", str(file), "--throttle", "1000")
    shown = await command(cluster, "status", "--json")
    (moving,) = [row for row in map(json.loads, shown.splitlines()) if row["partition"] == 0]
    assert moving["replicas"] == f"{first},{moving['adding']}"
    sent = cluster[first].services.leader_quota
    assert sent is not None
    await until(lambda: sent.moved_bytes > 0)
    assert sent.delay_seconds() > 60
    assert cluster.topic("t").partitions[0].isr == (first,)
    metrics = cluster[first].services.metrics.render().decode()
    assert "kafka_server_replicamanager_reassigningpartitions 1.0" in metrics
    await command(cluster, "cancel", str(file))
    await has(cluster, first)
    assert cluster.topic("t").configs == {}
    assert cluster[first].services.catalog.broker_configs == {}
    await command(cluster, "start", str(file), "--wait")
    await has(cluster, *json.loads(plan)["partitions"][0]["replicas"])
    assert "no reassignment is in progress" in await command(cluster, "status")


async def test_what_the_document_says_moves_partitions(cluster: Brokers, tmp_path: Path) -> None:
    await made(cluster, "orders", 2)
    _, _, section = (ROOT / "docs" / "cluster.md").read_text().partition("\n## Move partitions\n")
    for line in section.split("```bash\n")[1].split("```")[0].splitlines():
        words = line.replace("plan.json", str(tmp_path / "plan.json")).split()
        assert words[:2] == ["tidelog", "reassign"]
        printed = await command(cluster, *(words[2:-2] if ">" in words else words[2:]))
        if ">" in words:
            (tmp_path / "plan.json").write_text(printed)
    await cluster.agreed()
    for assigned in cluster.topic("orders").partitions:
        assert {*assigned.replicas} == {*assigned.isr} <= {2, 3, 4}
    assert not list((tmp_path / "broker-1").glob("orders-?"))
