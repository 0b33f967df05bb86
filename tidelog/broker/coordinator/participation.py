"""Asks the coordinator of a transaction on another broker whether partitions of this broker take part.

Owns the answer of that coordinator, and how long it is valid. The answer comes some time after the question,
so the transaction may end between it and the append. A `MarkerWatch` of the replica, which begins before the
request, shows that: an answer from before a marker of its producer permits nothing.

On the event loop. Source: KIP-890, part 1 (verification), part 2 (the partition is added implicitly), and
Kafka's VerificationGuard.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.broker.cluster.catalog import NO_LEADER
from tidelog.broker.coordinator.remote_transactions import Participation, RemoteTransactions
from tidelog.broker.coordinator.transaction_coordinator import TransactionCoordinator
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.replicas.leader import MarkerWatch
from tidelog.broker.replicas.replica import Replica
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import TopicPartition

_ANOTHER_WORD = frozenset(
    {ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""What clients get COORDINATOR_NOT_AVAILABLE for: the coordinator does not answer, moves, or does not know
yet of a new topic."""

_SOON_ANOTHER = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_PAUSE_SECONDS = 0.01
ASKED_FOR_SECONDS = 0.1
"""As long as a coordinator lets its own clients wait for markers. After it, the client asks again."""


class VerificationResult(NamedTuple):
    """The coordinator's answer about one partition, and the watch that shows whether it may have changed."""

    code: ErrorCode
    watch: MarkerWatch

    @property
    def now(self) -> ErrorCode:
        """What holds at an append in this step of the loop: COORDINATOR_LOAD_IN_PROGRESS where it is unknown,
        so that the client asks again."""
        if self.code == ErrorCode.NONE and self.watch.has_seen_marker:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self.code


class TransactionParticipation:
    """Asks other brokers whether partitions of this one take part in a transaction."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        remote: RemoteTransactions,
        replicas: Mapping[tuple[str, int], Replica],
        node_id: int,
    ) -> None:
        self._transactions = transactions
        self._remote = remote
        self._replicas = replicas
        self._node_id = node_id

    def is_asked_elsewhere(self, transactional_id: str) -> bool:
        """Whether another broker coordinates the id. If none does, this one raises that."""
        return self._transactions.leader_of(transactional_id) not in (NO_LEADER, self._node_id)

    async def ask(
        self, transactional_id: str, client: Producer, partitions: Sequence[TopicPartition], *, adds: bool
    ) -> dict[TopicPartition, VerificationResult]:
        """The answers of coordinators about partitions of this broker. With `adds` they take part from now
        on, if they may.

        A client begins its next transaction before all have the markers of the last one. So it is asked again
        where these are lacking still, or came meanwhile: once, and until `ASKED_FOR_SECONDS` have passed.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + ASKED_FOR_SECONDS
        words: dict[TopicPartition, VerificationResult] = {}
        left = partitions
        is_again = False
        while left:
            found = await self._ask_once(transactional_id, client, left, adds=adds)
            words |= found
            left = [where for where, word in found.items() if word.now in _SOON_ANOTHER]
            if is_again and loop.time() >= until:
                break
            is_again = True
            if any(found[where].code != ErrorCode.NONE for where in left):
                await asyncio.sleep(_PAUSE_SECONDS)
        return words

    async def _ask_once(
        self, transactional_id: str, client: Producer, partitions: Sequence[TopicPartition], *, adds: bool
    ) -> dict[TopicPartition, VerificationResult]:
        watches: dict[TopicPartition, MarkerWatch] = {}
        for where in partitions:
            replica = self._replicas.get(where)
            if replica is not None:  # Else the append is refused.
                watches[where] = replica.watch_markers(client.producer_id)
        leader_id = self._transactions.leader_of(transactional_id)
        asked = Participation(transactional_id, client, list(watches), only_verify=not adds)
        try:
            codes = await self._remote.take_part(leader_id, asked)
        except ApiError as error:
            codes = dict.fromkeys(watches, error.code)
        words = {}
        for where, watch in watches.items():
            code = codes.get(where, ErrorCode.UNKNOWN_SERVER_ERROR)
            words[where] = VerificationResult(
                ErrorCode.COORDINATOR_NOT_AVAILABLE if code in _ANOTHER_WORD else code, watch
            )
        return words
