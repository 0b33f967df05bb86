"""One machine of transactions with its log and its clock, for tests that ask it as its shell does."""

from collections.abc import Callable
from typing import Any

from tidelog.broker.coordinator.transactions.machine import Transactions
from tidelog.broker.coordinator.transactions.messages import (
    Initialization,
    Initialized,
    ProducerIdNeeded,
    TransactionLimits,
)
from tidelog.broker.coordinator.transactions.records import TRANSACTION_RECORD_FORMATS
from tidelog.broker.coordinator.transactions.transaction import NO_PRODUCER, Producer, Transaction
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import TopicPartition

NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
LIMITS = TransactionLimits()
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Site:
    """`log` holds the encoded records; `markers` what was written to partitions, in order."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.next_id = 100
        self.markers: list[tuple[Producer, bool, TopicPartition]] = []
        self.limits = LIMITS
        self.machine = Transactions(LIMITS)

    def run(self, operation: Callable[[int], Any]) -> Any:
        decision = operation(self.now_ms)
        for record in decision.records:
            self.log.append(TRANSACTION_RECORD_FORMATS.encode(record))
            self.machine.apply(record)
        return decision.response

    def restart(self, kept: int | None = None) -> None:
        """Lose all but the first `kept` records, and replay the others."""
        del self.log[len(self.log) if kept is None else kept :]
        self.machine = Transactions(self.limits)
        for key, value in self.log:
            self.machine.apply(TRANSACTION_RECORD_FORMATS.decode(key, value))
        self.machine.confirm_replayed(self.now_ms)

    def _with_id(self, operation: Callable[[int | None], Any]) -> Any:
        try:
            return self.run(operation(None))
        except ProducerIdNeeded:
            self.next_id += 1
            return self.run(operation(self.next_id))

    def initialize(self, name: str = "x", expected: Producer = NO_PRODUCER, **more: Any) -> Any:
        asked = Initialization(name, more.pop("timeout_ms", TIMEOUT_MS), expected, **more)
        return self._with_id(lambda fresh: self.machine.initialize(asked, fresh))

    def begin(self, name: str = "x", expected: Producer = NO_PRODUCER, **more: Any) -> Producer:
        """The pair of a client that begins, and that asks again until it has one."""
        while True:
            try:
                answer = self.initialize(name, expected, **more)
            except ApiError as error:
                if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise
                answer = None
            if isinstance(answer, Initialized):
                return answer.client
            self.finish(name)

    def add(self, client: Producer, *partitions: TopicPartition, name: str = "x") -> None:
        self.run(self.machine.add_partitions(name, client, partitions))
        self.machine.confirm(name, client, partitions)

    def end(self, client: Producer, is_commit: bool = True, version: int = 2, name: str = "x") -> Producer:
        def operation(fresh: int | None) -> Any:
            return self.machine.end(
                name, client, is_commit=is_commit, version=version, fresh_producer_id=fresh
            )

        answer: Producer = self._with_id(operation)
        return answer

    def held(self, name: str = "x") -> Transaction:
        held = self.machine.get(name)
        assert held is not None
        return held

    def finish(self, name: str = "x") -> None:
        """Write the markers of a decided transaction, and complete it."""
        held = self.machine.get(name)
        if held is None or not held.state.is_decided:
            return
        for partition in sorted(held.partitions):
            self.markers.append((held.producer, held.is_commit, partition))
        self.run(self.machine.complete(name, held.producer))


def code_of(call: Callable[..., Any], *arguments: Any, **more: Any) -> ErrorCode:
    try:
        call(*arguments, **more)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
