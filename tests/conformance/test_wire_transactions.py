"""Requests of a transaction that arrive together on one connection take effect in their order."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.raw import NOW_MS, RawClient, connected
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import ProduceRequest, encode_produce_request
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

IN_FLIGHT = 5
READ_STATE = (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["x"]})
Named = Mapping[str, Any]


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RawClient]:
    # A request behind EndTxn waits for the markers, which a slow disk may take longer for than the default.
    monkeypatch.setattr(
        "tidelog.broker.coordinator.transaction_coordinator.ENDING_WAIT_SECONDS", DEADLINE_SECONDS
    )
    config = BrokerConfig(data_dir=tmp_path, port=0, http_port=-1)
    async with await Broker.start(config) as broker, connected(broker.port) as connection:
        await connection.create()
        yield connection


async def begun(client: RawClient) -> Named:
    await client.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "x", "key_type": 1})
    wanted = {"transactional_id": "x", "transaction_timeout_ms": 60_000}
    given = await client.ask(ApiKey.INIT_PRODUCER_ID, 5, wanted)
    assert given.error_code == ErrorCode.NONE
    named = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    return {"transactional_id": "x", **named}


async def send_batch(client: RawClient, named: Named, sequence: int) -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, f"{named['producer_epoch']}-{sequence}".encode())
    batch = builder.build(
        producer_id=named["producer_id"],
        producer_epoch=named["producer_epoch"],
        base_sequence=sequence,
        is_transactional=True,
    )
    request = ProduceRequest(named["transactional_id"], -1, 30_000, [("t", [(0, bytes(batch))])])
    await client.send(ApiKey.PRODUCE, 12, encode_produce_request(12, request))


async def test_each_reader_behind_a_change_of_a_transaction_sees_it(client: RawClient) -> None:
    named = await begun(client)
    offsets = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
    added = {f"v3_and_below_{name}": value for name, value in named.items()}
    group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    read_offsets = (ApiKey.OFFSET_FETCH, 8, {"groups": [group], "require_stable": True})
    latest = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}
    marker = {
        "producer_id": 99,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": "t", "partition_indexes": [0]}],
    }
    requests: list[tuple[ApiKey, int, Named]] = [
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {**added, "v3_and_below_topics": [{"name": "t", "partitions": [0]}]},
        ),
        READ_STATE,
        (ApiKey.ADD_OFFSETS_TO_TXN, 3, {**named, "group_id": "g"}),
        READ_STATE,
        (ApiKey.TXN_OFFSET_COMMIT, 3, {**named, "group_id": "g", "topics": offsets}),
        read_offsets,
        (ApiKey.END_TXN, 3, {**named, "committed": True}),
        READ_STATE,
        (ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]}),
        (ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [latest]}),
    ]
    await client.send_together(requests)
    _, began, _, grew, _, unstable, _, ended, _, end = [await client.receive() for _ in requests]
    states = [answer.transaction_states[0] for answer in (began, grew, ended)]
    assert [len(state.topics) for state in states[:2]] == [1, 2]
    assert [state.transaction_state for state in states[:2]] == ["Ongoing", "Ongoing"]
    assert states[2].transaction_state in ("PrepareCommit", "CompleteCommit")
    assert unstable.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert end.topics[0].partitions[0].offset >= 1


async def test_batches_in_flight_are_stored_in_order_though_the_first_adds_its_partition(
    client: RawClient,
) -> None:
    """Transaction version 2: Produce 12 adds the partition, EndTxn 5 gives the next epoch."""
    named = dict(await begun(client))
    for transaction in range(3):
        for sequence in range(IN_FLIGHT):
            await send_batch(client, named, sequence)
        results = [await client.receive_result() for _ in range(IN_FLIGHT)]
        first = transaction * (IN_FLIGHT + 1)
        assert [(result.error_code, result.base_offset) for result in results] == [
            (ErrorCode.NONE, first + number) for number in range(IN_FLIGHT)
        ]
        ended = await client.ask(ApiKey.END_TXN, 5, {**named, "committed": True})
        assert (ended.error_code, ended.producer_epoch) == (ErrorCode.NONE, transaction + 1)
        await send_batch(client, {**named, "producer_epoch": ended.producer_epoch}, 1)  # Out of order.
        assert (await client.receive_result()).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        named["producer_epoch"] = ended.producer_epoch
