"""Committed offsets and lag on /metrics, under the names of kafka_exporter."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.broker.net.peers import Peer, produce_frame
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.coordinator.offset_metrics import FAMILIES, LEFT_OUT, OffsetMetrics
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import finish

GROUP = 'a "group"\\'
Samples = dict[tuple[str, ...], float]


def samples(text: str) -> Samples:
    """(name, label values) -> value, read by prometheus_client's own parser; offsets and lag only."""
    names = {family.name for family in (*FAMILIES, LEFT_OUT)}
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in names
    }


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """With three records in each partition of a topic, groups that committed some, and one with a member."""
    config = BrokerConfig(port=0, http_port=0, data_dir=tmp_path, group_initial_rebalance_delay_ms=0)
    config = config.with_settings({"offsets.topic.num.partitions": 1})
    async with await Broker.start(config) as running, await Peer.connect(running.port) as peer:
        await ask(peer, ApiKey.CREATE_TOPICS, 7, topics=[topic("flights", 2), topic("gone", 1)])
        builder = RecordBatchBuilder()
        for _ in range(3):
            builder.append(1_700_000_000_000, None, b"v", ())
        batch = bytes(builder.build())
        peer.send(produce_frame(9, [("flights", [(0, batch), (1, batch)]), ("gone", [(0, batch)])]))
        await peer.reader.readexactly(int.from_bytes(await peer.reader.readexactly(4), "big"))
        await ask(peer, ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"])
        for group_id, offset in ((GROUP, 1), ("beyond", 9)):
            partitions = [{"partition_index": index, "committed_offset": offset} for index in (0, 1)]
            topics = [
                {"name": name, "partitions": partitions[:count]}
                for name, count in (("flights", 2), ("gone", 1), ("__consumer_offsets", 1))
            ]
            await ask(peer, ApiKey.OFFSET_COMMIT, 9, group_id=group_id, topics=topics)
        protocols = [{"name": "range", "metadata": b""}]
        more = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
        await ask(peer, ApiKey.JOIN_GROUP, 3, group_id="members", protocols=protocols, **more)
        await ask(peer, ApiKey.DELETE_TOPICS, 5, topic_names=["gone"])
        await ask(peer, ApiKey.CREATE_TOPICS, 7, topics=[topic("gone", 1)])
        yield running


def topic(name: str, partitions: int) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1}


async def ask(peer: Peer, key: ApiKey, version: int, **values: Any) -> Any:
    return await peer.ask(key, version, values)


async def test_a_scrape_shows_offsets_lag_and_members_as_kafka_exporter_does(broker: Broker) -> None:
    url = f"http://127.0.0.1:{broker.http_port}/metrics"
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
    shown = samples(text)
    group, flights = "kafka_consumergroup", "flights"
    assert shown[f"{group}_members", "members"] == 1
    assert shown[f"{group}_members", GROUP] == 0
    for partition in ("0", "1"):
        assert shown[f"{group}_lag", GROUP, flights, partition] == 2
        assert shown[f"{group}_current_offset", GROUP, flights, partition] == 1
        assert shown[f"{group}_lag", "beyond", flights, partition] == 0
        assert shown["kafka_topic_partition_current_offset", flights, partition] == 3
        assert shown["kafka_topic_partition_oldest_offset", flights, partition] == 0
    assert shown[f"{group}_lag_sum", GROUP, flights] == 4
    assert shown[f"{group}_current_offset_sum", GROUP, flights] == 2
    for hidden in ("gone", "__consumer_offsets"):
        assert not [key for key in shown if hidden in key and key[0].startswith(group)]
    assert shown[LEFT_OUT.name,] == 0


async def test_above_the_limit_whole_families_are_left_out_those_by_partition_first(broker: Broker) -> None:
    services = broker.services

    def shown(limit: int) -> Samples:
        machines = services.groups.machines()
        exposition = OffsetMetrics(machines, services.catalog, services.replicas, limit).exposition()
        return samples(finish(exposition).decode())

    whole = shown(1_000)
    for limit in range(len(whole)):
        some = shown(limit)
        names = {key[0] for key in some} - {LEFT_OUT.name}
        assert {key: some[key] for key in some if key[0] in names} == {
            key: whole[key] for key in whole if key[0] in names
        }
        assert len(some) - 1 <= limit
        assert some[LEFT_OUT.name,] == len(whole) - len(some)
    assert {key[0] for key in shown(3)} == {"kafka_consumergroup_members", LEFT_OUT.name}
