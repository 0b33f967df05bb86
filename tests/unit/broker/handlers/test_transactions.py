"""What a transactional producer is answered, from its first request to the end of its transaction."""

from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker
from tests.unit.broker.handlers.transactional import TransactionalClient, transactional_batch
from tests.waiting import until
from tidelog.broker.coordinator.transactions import machine
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.schema import ApiKey

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED


async def test_a_partition_that_cannot_be_written_holds_its_transaction_back_and_the_rest_gets_its_markers(
    asker: Asker,
) -> None:
    await asker.create("t", 2)
    client, other = TransactionalClient(asker), TransactionalClient(asker, "y")
    await client.begin()
    await other.begin()
    await client.add(("t", 0), ("t", 1))
    asker.replica("t", 0).fail(OSError("the disk is gone"))
    assert await client.end() == NONE
    await until(lambda: asker.replica("t", 1).log.end_offset == 1)
    assert (await client.described()).transaction_state == "PrepareCommit"
    assert await client.end() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert await client.add(("t", 1)) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert await other.add(("t", 1)) == [NONE]


async def test_a_batch_whose_partition_may_be_added_later_is_sent_again_and_the_transaction_goes_on(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The markers of the transaction before it become durable just when the coordinator has given up."""
    await asker.create("t")
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    transactions = asker.services.transactions

    async def add(*_: Any) -> None:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "add_partitions", add)
        assert (await client.produce("t")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await client.produce("t")).error_code == NONE
    assert await client.end() == NONE


def give_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each id and each partition needs more than all may hold from now on."""
    monkeypatch.setattr(machine, "_ID_BYTES", 1 << 40)
    monkeypatch.setattr(machine, "_PARTITION_BYTES", 1 << 40)


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda client: client.add(("t", 0), ("t", 1)), ErrorCode.INVALID_TXN_STATE),
        (lambda client: client.add_offsets("g", 3), ErrorCode.INVALID_TXN_STATE),
        (lambda client: client.add_offsets("g", 4), ErrorCode.TRANSACTION_ABORTABLE),
        (lambda client: client.commit_offset("g", "t", 1, 5), ErrorCode.TRANSACTION_ABORTABLE),
    ],
    ids=["partitions", "offsets-3", "offsets-4", "commit-of-offsets"],
)
async def test_a_transaction_without_memory_to_grow_can_only_be_aborted(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, ask: Any, code: ErrorCode
) -> None:
    await asker.create("t", 2)
    client = TransactionalClient(asker)
    await client.begin()
    await client.add(("t", 0))
    give_no_more_memory(monkeypatch)
    answer = await ask(client)
    assert set(answer if isinstance(answer, list) else [answer]) == {code}
    assert await client.end(is_commit=False) == NONE


async def test_a_produce_request_that_finds_no_memory_for_its_transaction_makes_it_abort(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t")
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    give_no_more_memory(monkeypatch)
    assert (await client.produce("t")).error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert (await TransactionalClient(asker, "y").begin()).error_code == ErrorCode.POLICY_VIOLATION


async def test_batches_for_several_partitions_are_added_and_stored_together(asker: Asker) -> None:
    await asker.create("t", 2)
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    batch = transactional_batch(client.pair)
    request = ProduceRequest(client.name, -1, 30_000, [("t", [(0, batch), (1, batch), (7, batch)])])
    answer = await asker.call(ApiKey.PRODUCE, 12, request)
    codes = [result.error_code for result in answer[0][1]]
    assert codes == [NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [topic.partitions for topic in (await client.described()).topics] == [[0, 1]]
