"""Settings of topics as admin clients written by others set them, and what the settings do to records."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaResourceType
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.errors import NotEnoughReplicasError

from tests.conformance.conftest import RunningBroker
from tests.conformance.peers import Message
from tests.conformance.peers.aio import AioKafka
from tests.conformance.peers.confluent import ConfluentKafka
from tests.conformance.peers.pure import KafkaPython
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.configuration.topic_settings import TOPIC_SETTINGS
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import batch_crc_is_valid, iter_batches
from tidelog.protocol.settings import as_text

PEERS = [ConfluentKafka(), KafkaPython(), AioKafka()]
ANOTHER = {
    "cleanup.policy": "",
    "compression.gzip.level": "9",
    "compression.type": "zstd",
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.type", "brotli"),
        ("compression.zstd.level", "23"),
        ("min.insync.replicas", "0"),
        ("remote.storage.enable", "true"),
        ("flush.ms", "soon"),
    ],
)
def test_a_value_that_kafka_refuses_is_refused_with_its_name(
    broker: RunningBroker, name: str, value: str
) -> None:
    with pytest.raises(KafkaException, match=name.replace(".", r"\.")) as refused:
        create(broker, "refused", {name: value})
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_every_client_reads_what_was_compressed_again(broker: RunningBroker) -> None:
    """Written with gzip by an idempotent producer, stored in each codec, read by each client."""
    codecs = {"uncompressed": Compression.NONE, "snappy": Compression.SNAPPY, "lz4": Compression.LZ4}
    codecs |= {"zstd": Compression.ZSTD}
    messages = [Message(0, 1_700_000_000_000 + number, b"k", b"value %d" % number) for number in range(300)]
    topics = {f"stored-{name}": codec for name, codec in codecs.items()}
    for topic in topics:
        create(broker, topic, {"compression.type": topic.rpartition("-")[2]})
    answers = PEERS[0].write(broker.address, dict.fromkeys(topics, ("gzip", messages)))
    for topic, codec in topics.items():
        assert [offset for _, offset, _ in answers[topic]] == list(range(300))
        data = (broker.data_dir / f"{topic}-0" / f"{0:020d}.log").read_bytes()
        for position, header in iter_batches(data):
            assert (header.compression, header.base_sequence) == (codec, header.base_offset)
            assert batch_crc_is_valid(data, header, position)
    for reader in PEERS:
        found = reader.read(broker.address, {(topic, 0): 300 for topic in topics})
        assert all([each.message for each in found[topic]] == messages for topic in topics), reader.name


def test_acks_all_is_refused_where_the_topic_wants_more_replicas_than_there_are(
    broker: RunningBroker,
) -> None:
    create(broker, "two-copies", {"min.insync.replicas": "2"})
    settings = {"bootstrap_servers": broker.address, "retries": 0, "enable_idempotence": False}
    careful, quick = (KafkaProducer(acks=acks, **settings) for acks in ("all", 1))
    try:
        with pytest.raises(NotEnoughReplicasError):
            careful.send("two-copies", b"v").get(DEADLINE_SECONDS)
        assert quick.send("two-copies", b"v").get(DEADLINE_SECONDS).offset == 0
    finally:
        careful.close()
        quick.close()
