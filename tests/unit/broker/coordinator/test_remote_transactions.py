"""What another broker is asked of transactions: an answer to something else than was asked is an error of its
callers, who ask again."""

import asyncio
from typing import Any

import pytest

from tidelog.broker.coordinator.remote_transactions import Marked, Participation, RemoteTransactions
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import TransactionMarker
from tidelog.protocol.schema import ApiKey, decode_response, encode_response
from tidelog.protocol.types import TopicPartition

PARTITIONS = [TopicPartition("t", 0)]
MARKED = [Marked(TransactionMarker(number, 0, 0, True), PARTITIONS) for number in range(2)]


class BrokenPeer:
    """Answers as it was told."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer

    async def call(self, node_id: int, api_key: ApiKey, values: Any) -> Any:
        version = 4 if api_key == ApiKey.ADD_PARTITIONS_TO_TXN else 1
        return decode_response(api_key, version, encode_response(api_key, version, self.answer))


def codes(found: list[Any]) -> list[Any]:
    return [error.code if isinstance(error, ApiError) else error for error in found]


@pytest.mark.parametrize("answered", [[], [0], [1, 0], [0, 1, 2]])
async def test_an_answer_about_other_markers_is_an_error_of_each_caller(answered: list[int]) -> None:
    peer = BrokenPeer(markers=[{"producer_id": number, "topics": []} for number in answered])
    remote = RemoteTransactions(peer)  # type: ignore[arg-type]
    found = await asyncio.gather(*(remote.write_markers(2, each) for each in MARKED), return_exceptions=True)
    assert codes(found) == [ErrorCode.NETWORK_EXCEPTION] * 2


async def test_an_answer_about_other_transactions_is_an_error_of_each_caller() -> None:
    remote = RemoteTransactions(BrokenPeer(results_by_transaction=[]))  # type: ignore[arg-type]
    asked = [Participation(name, Producer(1, 0), PARTITIONS, only_verify=True) for name in ("a", "a", "b")]
    found = await asyncio.gather(*(remote.take_part(2, each) for each in asked), return_exceptions=True)
    assert codes(found) == [ErrorCode.NETWORK_EXCEPTION] * 3
