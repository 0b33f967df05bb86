"""A batch begins a transaction only if the coordinator, which is on another broker, says that it may."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.raw import NOW_MS, connected
from tests.several.brokers import Brokers, brokers
from tests.several.test_coordinators import PARTITIONS, coordinated_by
from tests.several.test_topics import asked
from tests.waiting import until
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.broker.coordinator.remote_transactions import RemoteTransactions
from tidelog.broker.coordinator.shards import partition_of
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import NewTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import ProduceRequest, encode_produce_request
from tidelog.protocol.records import RecordBatchBuilder, TransactionMarker
from tidelog.protocol.schema import ApiKey

COORDINATOR, LEADER = 1, 2
WITHOUT_ADDING, ADDS = 11, 12


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, (COORDINATOR, LEADER)) as running:
        await running[LEADER].services.topics.create("t", NewTopic(assignments={0: [LEADER]}))
        await running.make_internal_topics()
        yield running


class Client:
    """A producer that says what no library lets it say."""

    def __init__(self, cluster: Brokers) -> None:
        self._cluster = cluster
        self.name = coordinated_by(cluster, COORDINATOR, TRANSACTIONS_TOPIC)
        self.producer = (-1, -1)
        self._sequence = 0

    async def begin(self) -> None:
        values = {"transactional_id": self.name, "transaction_timeout_ms": 60_000}
        no_producer = {"producer_id": -1, "producer_epoch": -1}
        answer = await self.ask(COORDINATOR, ApiKey.INIT_PRODUCER_ID, 4, **values, **no_producer)
        self.producer = (answer.producer_id, answer.producer_epoch)

    async def ask(self, node_id: int, key: ApiKey, version: int, /, **values: Any) -> Any:
        return await asked(self._cluster, node_id, key, version, **values)

    async def produce(self, version: int) -> ErrorCode:
        builder = RecordBatchBuilder()
        builder.append(NOW_MS, None, b"v", ())
        producer_id, epoch = self.producer
        batch = bytes(
            builder.build(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self._sequence,
                is_transactional=True,
            )
        )
        request = ProduceRequest(self.name, -1, 30_000, [("t", [(0, batch)])])
        async with connected(self._cluster[LEADER].port) as client:
            await client.send(ApiKey.PRODUCE, version, encode_produce_request(version, request))
            code = ErrorCode((await client.receive_result()).error_code)
        self._sequence += code == ErrorCode.NONE
        return code

    async def add_partition(self) -> None:
        producer_id, epoch = self.producer
        answer = await self.ask(
            COORDINATOR,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        )
        (topic,) = answer.results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == ErrorCode.NONE

    async def commit_offset(self, group: str, version: int) -> ErrorCode:
        producer_id, epoch = self.producer
        partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
        answer = await self.ask(
            LEADER,
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id=self.name,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[{"name": "t", "partitions": [partition]}],
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.fixture
async def client(cluster: Brokers) -> Client:
    made = Client(cluster)
    await made.begin()
    return made


def replica_of(cluster: Brokers) -> Replica:
    return cluster[LEADER].services.replicas["t", 0]


async def test_a_batch_of_no_transaction_is_refused_and_one_of_a_transaction_is_stored(
    cluster: Brokers, client: Client
) -> None:
    assert await client.produce(WITHOUT_ADDING) == ErrorCode.TRANSACTION_ABORTABLE
    assert replica_of(cluster).log.end_offset == 0
    await client.add_partition()
    for _ in range(2):
        assert await client.produce(WITHOUT_ADDING) == ErrorCode.NONE
    assert len(replica_of(cluster).log.transactions) == 1


async def test_a_batch_lets_its_partition_take_part(cluster: Brokers, client: Client) -> None:
    assert await client.produce(ADDS) == ErrorCode.NONE
    described = await client.ask(
        COORDINATOR, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[client.name]
    )
    (state,) = described.transaction_states
    assert [(each.topic, each.partitions) for each in state.topics] == [("t", [0])]


async def test_an_older_epoch_begins_no_transaction(cluster: Brokers, client: Client) -> None:
    older = client.producer
    await client.begin()
    client.producer = older
    for version in (WITHOUT_ADDING, ADDS):
        assert await client.produce(version) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert replica_of(cluster).log.end_offset == 0


async def test_an_answer_of_the_coordinator_is_valid_for_one_transaction(
    cluster: Brokers, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.add_partition()
    really = RemoteTransactions.take_part
    markers = [True, False]

    async def take_part(self: RemoteTransactions, *asked: Any) -> Any:
        answer = await really(self, *asked)
        if not markers or markers.pop(0):
            marker = TransactionMarker(*client.producer, 0, is_commit=False)
            await replica_of(cluster).append_marker(marker, NOW_MS)
        return answer

    monkeypatch.setattr(RemoteTransactions, "take_part", take_part)
    assert await client.produce(WITHOUT_ADDING) == ErrorCode.NONE  # It was asked once more.
    marker = TransactionMarker(*client.producer, 0, is_commit=False)
    await replica_of(cluster).append_marker(marker, NOW_MS)
    assert await client.produce(WITHOUT_ADDING) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert len(replica_of(cluster).log.transactions) == 0
    monkeypatch.undo()
    assert await client.produce(WITHOUT_ADDING) == ErrorCode.NONE  # The coordinator has it still.


async def test_a_producer_tries_again_while_the_coordinator_does_not_answer(
    cluster: Brokers, client: Client
) -> None:
    await client.add_partition()
    await cluster.kill(COORDINATOR)
    for version in (WITHOUT_ADDING, ADDS):
        assert await client.produce(version) == ErrorCode.NOT_ENOUGH_REPLICAS
    await cluster.start(COORDINATOR)
    codes = []

    async def is_stored() -> bool:
        codes.append(await client.produce(WITHOUT_ADDING))
        return codes[-1] == ErrorCode.NONE

    while not await is_stored():
        assert codes[-1] == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_offsets_are_committed_in_a_transaction_only_if_its_coordinator_agrees(
    cluster: Brokers, client: Client
) -> None:
    group = coordinated_by(cluster, LEADER)
    assert await client.commit_offset(group, 3) == ErrorCode.INVALID_TXN_STATE
    assert await client.commit_offset(group, 4) == ErrorCode.TRANSACTION_ABORTABLE
    assert await client.commit_offset(group, 5) == ErrorCode.NONE
    producer_id, epoch = client.producer
    await client.ask(
        COORDINATOR,
        ApiKey.END_TXN,
        3,
        transactional_id=client.name,
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=True,
    )
    where = OFFSETS_TOPIC, partition_of(group, PARTITIONS)
    replica = cluster[LEADER].services.replicas[where]
    # The offset is shown once the marker is committed.
    await until(lambda: not replica.log.transactions and replica.high_watermark == replica.log.end_offset)
    answer = await client.ask(LEADER, ApiKey.OFFSET_FETCH, 7, group_id=group, topics=None)
    assert answer.topics[0].partitions[0].committed_offset == 7
