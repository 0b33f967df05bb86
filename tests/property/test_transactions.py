"""The machine of transactions under crashes: whatever is lost, each transaction has one outcome, everywhere.

A request is put to the machine. The broker may die before its record is written, or after it and before the
answer; or between any two markers. The client, which got no answer, repeats its request.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.broker.coordinator.transactions.site import TIMEOUT_MS, Site
from tidelog.broker.coordinator.transactions.messages import Initialization, Initialized
from tidelog.broker.coordinator.transactions.transaction import NO_PRODUCER, Producer
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import TopicPartition

CRASHES = st.sampled_from([None, None, None, "before", "after"])
PARTITIONS = st.lists(st.integers(0, 3), min_size=1, max_size=3)
VERSIONS = st.sampled_from([1, 2])
RETRIABLE = ErrorCode.CONCURRENT_TRANSACTIONS


class Crash(Exception):
    pass


class Crashing(Site):
    """Dies in the next operation: before its records are written, or after."""

    dies: str | None = None

    def run(self, operation: Callable[[int], Any]) -> Any:
        dies, self.dies = self.dies, None
        if dies == "before":
            raise Crash
        written = len(self.log)
        response = super().run(operation)
        if dies == "after" and len(self.log) > written:
            raise Crash
        return response


class Client:
    def __init__(self, pair: Producer) -> None:
        self.pair = pair
        self.added: set[int] = set()
        self.is_fenced = False


class TransactionsUnderCrashes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.site = Crashing()
        self.clients: list[Client] = []
        self.pairs: set[Producer] = set()
        self.promised: dict[tuple[Producer, int], bool] = {}
        """(pair of the markers, partition) -> the outcome in a client's answer."""

    def ask(self, request: Callable[[], Any], crash: str | None = None) -> Any:
        """The answer, or the code, of a client that repeats its request until it has one."""
        self.site.dies = crash
        while True:
            try:
                return request()
            except Crash:
                self.site.restart()
            except ApiError as error:
                if error.code != RETRIABLE:
                    return error.code
                self.site.finish()

    def initialize(self, expected: Producer, keeps: bool, crash: str | None) -> Any:
        asked = Initialization("x", TIMEOUT_MS, expected, keeps, keeps)

        def request() -> Any:
            while (
                answer := self.site._with_id(lambda fresh: self.site.machine.initialize(asked, fresh))
            ) is None:
                self.site.finish()
            return answer

        return self.ask(request, crash)

    @rule(crash=CRASHES, keeps=st.sampled_from([False, False, True]))
    def a_client_begins(self, crash: str | None, keeps: bool) -> None:
        answer = self.initialize(NO_PRODUCER, keeps, crash)
        assert isinstance(answer, Initialized)
        assert answer.client not in self.pairs
        self.pairs.add(answer.client)
        client = Client(answer.client)
        for older in self.clients:
            older.is_fenced = True
        if answer.kept != NO_PRODUCER:
            client.added = {partition.partition for partition in self.site.held().partitions}
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(crash=CRASHES, back=st.sampled_from([1, 1, 1, 2]))
    def a_client_goes_on_after_an_error(self, crash: str | None, back: int) -> None:
        client = self.clients[-min(back, len(self.clients))]
        answer = self.initialize(client.pair, False, crash)
        if client.is_fenced:
            assert answer == ErrorCode.PRODUCER_FENCED
            return
        assert isinstance(answer, Initialized)
        assert answer.client not in self.pairs
        assert self.initialize(client.pair, False, None) == answer
        self.pairs.add(answer.client)
        client.pair, client.added = answer.client, set()

    @precondition(lambda self: self.clients)
    @rule(partitions=PARTITIONS, crash=CRASHES, back=st.sampled_from([1, 1, 1, 2]))
    def a_client_adds_partitions(self, partitions: list[int], crash: str | None, back: int) -> None:
        client = self.clients[-min(back, len(self.clients))]
        wanted = [TopicPartition("t", index) for index in partitions]
        answer = self.ask(lambda: self.site.add(client.pair, *wanted), crash)
        if client.is_fenced:
            assert answer == ErrorCode.PRODUCER_FENCED
        elif self.site.held().following != NO_PRODUCER:
            assert answer == ErrorCode.INVALID_TXN_STATE
        else:
            assert answer is None
            client.added.update(partitions)
            assert self.site.machine.permits("x", client.pair, wanted[0]) == ErrorCode.NONE

    @precondition(lambda self: self.clients)
    @rule(is_commit=st.booleans(), version=VERSIONS, crash=CRASHES, back=st.sampled_from([1, 1, 1, 2]))
    def a_client_ends_its_transaction(
        self, is_commit: bool, version: int, crash: str | None, back: int
    ) -> None:
        client = self.clients[-min(back, len(self.clients))]
        if not client.added and not client.is_fenced:
            return
        data = self.site.held().producer

        def request() -> Any:
            answer = self.site.end(client.pair, is_commit, version)
            self.site.finish()
            return answer

        answer = self.ask(request, crash)
        if client.is_fenced:
            assert answer == ErrorCode.PRODUCER_FENCED
            return
        assert isinstance(answer, Producer)
        markers = data._replace(epoch=data.epoch + 1) if version == 2 else data
        for index in client.added:
            self.promised[markers, index] = is_commit
            assert (markers, is_commit, TopicPartition("t", index)) in self.site.markers
        if version == 2:
            assert answer not in self.pairs
            self.pairs.add(answer)
        else:
            self.site.markers.clear()
            self.promised.clear()
        client.pair, client.added = answer, set()

    @rule(crash=CRASHES)
    def the_timeout_passes(self, crash: str | None) -> None:
        self.site.now_ms += TIMEOUT_MS + 1
        names = list(self.site.machine.active_ids())
        aborts: list[bool] = [
            held.has_timeout and not held.state.is_decided for held in map(self.site.held, names)
        ]

        def request() -> Any:
            return self.site.run(lambda now_ms: self.site.machine.abort_timed_out(names, now_ms))

        self.ask(request, crash)
        self.site.finish()
        if any(aborts):
            self.clients[-1].is_fenced = True

    @rule(written=st.integers(0, 3))
    def the_broker_dies_between_two_markers(self, written: int) -> None:
        held = self.site.machine.get("x")
        if held is not None and held.state.is_decided:
            for partition in sorted(held.partitions)[:written]:
                self.site.markers.append((held.producer, held.is_commit, partition))
        self.site.restart()

    @invariant()
    def no_partition_has_two_outcomes_of_one_transaction(self) -> None:
        outcomes: dict[tuple[Producer, TopicPartition], bool] = {}
        for markers, is_commit, partition in self.site.markers:
            assert outcomes.setdefault((markers, partition), is_commit) == is_commit
        for (markers, index), is_commit in self.promised.items():
            assert outcomes[markers, TopicPartition("t", index)] == is_commit

    @invariant()
    def what_is_idle_has_no_partition_without_its_marker(self) -> None:
        held = self.site.machine.get("x")
        if held is not None and held.state.is_idle:
            assert not held.partitions


TestTransactionsUnderCrashes = TransactionsUnderCrashes.TestCase
