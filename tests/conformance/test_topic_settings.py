"""Settings of topics as admin clients written by others set them, and what the settings do to records."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaResourceType
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as KafkaPythonResource

from tests.conformance.commands import typist
from tests.conformance.conftest import RunningBroker
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.conformance.several import BrokerProcess
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.configuration.topic_settings import TOPIC_SETTINGS
from tidelog.protocol.settings import as_text

ANOTHER = {
    "acks.all.durable": "false",
    "cleanup.policy": "",
    "compression.gzip.level": "9",
    "compression.type": "zstd",
    "errors.deadletterqueue.group.enable": "true",
    "follower.replication.throttled.replicas": "0:1,1:1",
    "leader.replication.throttled.replicas": "*",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.25",
    "preallocate": "true",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "remote.storage.enable": "false",
    "unclean.leader.election.enable": "true",
} | {
    name: "7"
    for name, each in TOPIC_SETTINGS.items()
    if each.kind is int and name not in ("compression.gzip.level", "segment.bytes")
}
ANOTHER |= {"segment.bytes": str(1 << 20)}


def create(broker: RunningBroker, name: str, configs: Mapping[str, str]) -> None:
    """By confluent-kafka, whose errors name the broker's reason."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, 1, config=dict(configs))])[name].result(DEADLINE_SECONDS)


def by_confluent(address: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": address})
    entries = admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)
    return {name: entry.value for name, entry in entries.items()}


def by_aiokafka(address: str, topic: str) -> dict[str, str]:
    async def ask() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            return await admin.describe_configs([AiokafkaResource(AiokafkaResourceType.TOPIC, topic)])
        finally:
            await admin.close()

    (answer,) = asyncio.run(ask())
    return {name: value for name, value, *_ in answer.resources[0][4]}


def by_kafka_python(address: str, topic: str) -> dict[str, str]:
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        answer = admin.describe_configs([KafkaPythonResource("TOPIC", topic)], config_filter="all")
        return {name: entry["value"] for name, entry in answer["topic"][topic].items()}
    finally:
        admin.close()


def test_every_setting_of_kafka_is_set_and_described_for_every_client(broker: RunningBroker) -> None:
    assert ANOTHER.keys() == TOPIC_SETTINGS.keys()
    create(broker, "tuned", ANOTHER)
    create(broker, "plain", {})
    defaults = {name: as_text(each.default) for name, each in TOPIC_SETTINGS.items()}
    for described in (by_confluent, by_aiokafka, by_kafka_python):
        assert described(broker.address, "tuned") == ANOTHER
        assert described(broker.address, "plain") == defaults


async def test_records_that_are_older_than_retention_are_named_before_and_when_they_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"log.retention.check.interval.ms": 3_600_000}
    async with BrokerProcess(tmp_path, settings=settings) as broker:
        address = f"127.0.0.1:{broker.port}"
        monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", address)
        tidelog = typist(capfd)
        flight = Message(0, 1_357_000_000_000, None, b"UA 1545")
        now = Message(0, int(time.time() * 1000), None, b"today")
        for topic in ("flights", "kept", "ordinary"):
            await asyncio.to_thread(tidelog, "topic", "create", topic)
        await asyncio.to_thread(tidelog, "topic", "alter", "kept", "--config", "retention.ms=-1")
        written = {"flights": ("none", [flight] * 3), "kept": ("none", [flight]), "ordinary": ("none", [now])}
        await asyncio.to_thread(ConfluentKafka().write, address, written)
        for topic in written:
            _, shown, _ = await asyncio.to_thread(tidelog, "topic", "describe", topic)
            warnings = [line for line in shown.splitlines() if line.startswith("warning")]
            assert len(warnings) == (topic == "flights")
            for warning in warnings:
                assert "timestamp 2013-01-01T00:26:40.000Z" in warning
                assert "retention.ms=604800000" in warning
                assert "tidelog topic alter flights --config retention.ms=-1" in warning
        assert not broker.events("old_records_expired")
        broker.settings["log.retention.check.interval.ms"] = 50
        await broker.restart()
        await until(lambda: broker.events("old_records_expired"))
        (event,) = broker.events("old_records_expired")
        assert (event["level"], event["topic"], event["records"]) == ("warning", "flights", 3)
        assert event["latest_timestamp_ms"] == flight.timestamp
