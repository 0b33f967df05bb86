"""Administration of transactions: their list, their state, and an end that an operator decides.

Owns: the requests of `Admin.transactions`. Invariant: ending a transaction fences its producer, so that it
cannot add records later. Source: KIP-664, KIP-939 (prepared transactions).
"""

from collections.abc import Iterable
from functools import partial

from tidelog.client.admin.requests import Requests, itself
from tidelog.client.admin.types import ClaimedTransaction, TransactionDescription, TransactionListing
from tidelog.client.asked_apis import LAST_WITHOUT_EPOCHS, has_epoch_per_transaction
from tidelog.client.coordinators import TRANSACTION
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.connection import Connection
from tidelog.wire.errors import BrokerError

_FIRST_WITH_PATTERNS = 2
_NO_TIMEOUT_MS = 2**31 - 1


class TransactionAdmin:
    """The transactions of a cluster. Every call raises ClientError."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._of = partial(requests.to_coordinator, TRANSACTION)

    async def list(self, pattern: str | None = None, states: Iterable[str] = ()) -> list[TransactionListing]:
        """All transactional ids, sorted, or those that a regular expression in RE2's syntax matches as a
        whole (KIP-1152), or those in one of these states. Raises UnsupportedVersionError if a broker does not
        support patterns, LEADER_NOT_AVAILABLE if the coordinator of some of them is unavailable."""
        at_least = 0 if pattern is None else _FIRST_WITH_PATTERNS
        values: DictOf[types.ListTransactionsRequest] = {
            "transactional_id_pattern": pattern,
            "state_filters": [*states],
        }
        found = []
        answer: types.ListTransactionsResponse
        async for answer in self._requests.to_coordinators(
            TRANSACTION, ApiKey.LIST_TRANSACTIONS, values, lambda _: "the list of transactions", at_least
        ):
            found += [
                TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            ]
        return sorted(found)

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises TRANSACTIONAL_ID_NOT_FOUND."""
        values: DictOf[types.DescribeTransactionsRequest] = {"transactional_ids": [transactional_id]}
        answer: types.DescribeTransactionsResponse = await self._of(
            transactional_id, ApiKey.DESCRIBE_TRANSACTIONS, values, lambda answer: answer.transaction_states
        )
        (found,) = answer.transaction_states
        partitions = (
            TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions
        )
        timeout_ms = found.transaction_timeout_ms
        return TransactionDescription(
            found.transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            None if timeout_ms == _NO_TIMEOUT_MS else timeout_ms,
            None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
            tuple(sorted(partitions)),
        )

    async def commit_prepared(self, transactional_id: str, prepared: tuple[int, int] | None = None) -> None:
        """Commit the transaction that the id's producer prepared.

        `prepared`, if given, is the producer id and epoch that the transaction must have; no other
        transaction is committed. Raises BrokerError(INVALID_TXN_STATE) if there is no such transaction.
        """
        claimed = await self.claim(transactional_id)
        kept = claimed.transaction
        if kept is None or prepared not in (None, kept):
            what = (
                "no transaction" if kept is None else f"the transaction of producer {kept[0]} epoch {kept[1]}"
            )
            raise BrokerError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id!r} has {what}")
        await self.end(claimed, is_commit=True)

    async def claim(self, transactional_id: str) -> ClaimedTransaction:
        """Take over the id, and with it the transaction that it has, prepared or not. The transaction stays
        open. Only the last claim can end it, and its producer can begin no other. An unknown id is created.
        """
        values: DictOf[types.InitProducerIdRequest] = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": _NO_TIMEOUT_MS,
            "enable2_pc": True,
            "keep_prepared_txn": True,
        }
        client: types.InitProducerIdResponse = await self._of(
            transactional_id, ApiKey.INIT_PRODUCER_ID, values, itself
        )
        kept = client.ongoing_txn_producer_id, client.ongoing_txn_producer_epoch
        claim = client.producer_id, client.producer_epoch
        return ClaimedTransaction(transactional_id, claim, None if kept[0] < 0 else kept)

    async def end(self, claimed: ClaimedTransaction, *, is_commit: bool) -> None:
        """Commit or abort a transaction that was claimed. Raises PRODUCER_FENCED after a later claim."""
        producer_id, producer_epoch = claimed.claim
        ending: DictOf[types.EndTxnRequest] = {
            "transactional_id": claimed.transactional_id,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "committed": is_commit,
        }
        await self._of(claimed.transactional_id, ApiKey.END_TXN, ending, itself, _last_end)

    async def abort(self, transactional_id: str, timeout_ms: int = 60_000) -> None:
        """Abort the id's transaction if it has one, prepared or not. The timeout becomes that of the id."""
        values: DictOf[types.InitProducerIdRequest] = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
        }
        await self._of(transactional_id, ApiKey.INIT_PRODUCER_ID, values, itself)


def _last_end(connection: Connection) -> int | None:
    if has_epoch_per_transaction(connection.features):
        return None
    return LAST_WITHOUT_EPOCHS[ApiKey.END_TXN]
