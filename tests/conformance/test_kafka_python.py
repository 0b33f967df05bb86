"""What kafka-python does beyond writing and reading: it speaks the newest versions that are advertised."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.errors import (
    ElectionNotNeededError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
)
from kafka.protocol.admin.topics import ElectionType

from tests.conformance.conftest import RunningBroker
from tests.conformance.peers.pure import KafkaPython
from tests.conformance.several import BrokerProcess
from tests.waiting import DEADLINE_SECONDS

_PATIENCE_S = DEADLINE_SECONDS
PEER = KafkaPython()


@pytest.fixture(scope="module")
def admin(broker: RunningBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    yield client
    client.close()


def test_the_broker_is_taken_for_kafka_4(broker: RunningBroker) -> None:
    """By the newest versions of Produce, Fetch and ListOffsets."""
    producer = PEER.producer(broker.address)
    assert producer.config["api_version"] >= (4, 2)
    producer.close()


def test_the_admin_lists_and_describes_topics(broker: RunningBroker, admin: KafkaAdminClient) -> None:
    admin.create_topics([NewTopic("described", 2, 1)])
    assert "described" in admin.list_topics()
    (described,) = admin.describe_topics(["described"])
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1]
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("described", 2, 1)])
    admin.create_partitions({"described": NewPartitions(5)})
    (described,) = admin.describe_topics(["described"])
    assert len(described["partitions"]) == 5
    admin.delete_topics(["described"])
    assert "described" not in admin.list_topics()


@pytest.mark.one_broker("counts log folders")
def test_the_admin_asks_what_operators_ask(broker: RunningBroker, admin: KafkaAdminClient) -> None:
    admin.create_topics([NewTopic("operated", 1, 1)])
    ((folder,),) = [described["log_dirs"] for described in admin.describe_log_dirs()]
    assert "operated" in {topic["name"] for topic in folder["topics"]}
    elected = admin.elect_leaders(ElectionType.PREFERRED, {"operated": [0]}, raise_errors=False)
    (partition,) = elected.replica_election_results[0].partition_result
    assert partition.error_code == ElectionNotNeededError.errno
    assert not admin.list_partition_reassignments()
    (metadata,) = admin.describe_metadata_quorum()["topics"]
    assert metadata["topic_name"] == "__cluster_metadata"
    assert "operated" in admin.list_config_resources()["topic"]
    admin.delete_topics(["operated"])


def test_an_offset_that_is_not_there_is_out_of_range(broker: RunningBroker) -> None:
    PEER.create_topics(broker.address, {"short": 1})
    consumer = PEER.consumer(broker.address)
    where = TopicPartition("short", 0)
    consumer.assign([where])
    consumer.seek(where, 5)
    with pytest.raises(OffsetOutOfRangeError):
        consumer.poll(timeout_ms=_PATIENCE_S * 1000)
    consumer.close()


def test_a_record_past_the_limit_of_the_broker_is_refused(broker: RunningBroker) -> None:
    PEER.create_topics(broker.address, {"too-large": 1})
    producer = PEER.producer(broker.address, max_request_size=3_000_000)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send("too-large", b"x" * 2_000_000).get(_PATIENCE_S)
    producer.close()


async def test_each_record_is_stored_once_and_in_order_through_a_kill(tmp_path: Path) -> None:
    count = 1000
    async with BrokerProcess(tmp_path / "data") as process:
        address = f"127.0.0.1:{process.port}"
        await asyncio.to_thread(PEER.create_topics, address, {"survivor": 1})
        settings = {"batch_size": 1000, "retry_backoff_ms": 20, "reconnect_backoff_max_ms": 100}
        producer = await asyncio.to_thread(PEER.producer, address, **settings)
        numbers = iter(range(count))
        answers = [producer.send("survivor", b"%d" % n, partition=0) for n in islice(numbers, count // 2)]
        await asyncio.to_thread(answers[count // 10].get, _PATIENCE_S)
        # A quick broker would have stored them all before the kill comes.
        process.pause()
        answers += [producer.send("survivor", b"%d" % n, partition=0) for n in numbers]
        await process.kill_9()
        assert not answers[-1].is_done
        await process.start()
        offsets = [(await asyncio.to_thread(answer.get, _PATIENCE_S)).offset for answer in answers]
        await asyncio.to_thread(producer.close)
        assert offsets == list(range(count))
        found = await asyncio.to_thread(PEER.read, address, {("survivor", 0): count})
    assert [stored.message.value for stored in found["survivor"]] == [b"%d" % n for n in range(count)]
