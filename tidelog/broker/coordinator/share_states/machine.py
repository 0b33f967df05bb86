"""The states of share partitions in one partition of `__share_group_state`: a pure machine.

Owns which states exist, and whose writes count. Invariants:
- a write of an earlier leader, or of an earlier state (offsets that were altered since), is refused;
- who reads as a later leader fences the leaders before it, durably;
- a snapshot follows so many updates as the settings say, so a replay reads few records of each state.

Pure. Source: Kafka's ShareCoordinatorShard.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from tidelog.broker.coordinator.decision import Decision
from tidelog.broker.coordinator.share_states.records import ShareSnapshotRecord, ShareUpdateRecord
from tidelog.broker.coordinator.share_states.state import (
    UNCHANGED,
    UNINITIALIZED,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from tidelog.protocol.errors import ApiError, ErrorCode


class StateWrite(NamedTuple):
    """What the leader of a partition wants to store. Start offset -1: as it is."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Sequence[StateBatch]


class ShareStates:
    """Operations take `now_ms` last and return a Decision."""

    def __init__(self, updates_per_snapshot: int, clock_ms: Callable[[], int]) -> None:
        """`clock_ms` is the wall clock, for the timestamps in the records."""
        self.updates_per_snapshot = updates_per_snapshot
        self._clock_ms = clock_ms
        self.states: dict[SharePartitionKey, ShareState] = {}
        self._updates: dict[SharePartitionKey, int] = {}
        """How many updates follow the newest snapshot."""

    def apply(self, record: ShareSnapshotRecord | ShareUpdateRecord) -> None:
        key = record.key
        if isinstance(record, ShareSnapshotRecord):
            self._updates.pop(key, None)
            if record.state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = record.state
            return
        state = self.states.get(key)
        if state is not None and state.snapshot_epoch == record.snapshot_epoch:
            self.states[key] = state.updated(
                record.leader_epoch, record.start_offset, record.complete_count, record.batches
            )
            self._updates[key] = self._updates.get(key, 0) + 1

    write = apply

    def settle(self, record: ShareSnapshotRecord | ShareUpdateRecord) -> None:
        """All answers wait until what they show is durable."""

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int
    ) -> Decision[Any, None]:
        """Begin a state; one of this epoch stays as it is. Raises ApiError(FENCED_STATE_EPOCH)."""
        present = self.states.get(key)
        if present is not None and present.state_epoch == state_epoch:
            return Decision((), None)
        self._check_state_epoch(present, state_epoch)
        now = self._clock_ms()
        epoch = 0 if present is None else present.snapshot_epoch + 1
        leader_epoch = UNINITIALIZED if present is None else present.leader_epoch
        state = ShareState(epoch, state_epoch, leader_epoch, start_offset, 0, now, now)
        return Decision((ShareSnapshotRecord(key, state),), None)

    def read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> Decision[Any, ShareState]:
        """The state, for the leader of this epoch. Raises ApiError: FENCED_LEADER_EPOCH, INVALID_REQUEST."""
        state = self._present(key, leader_epoch)
        if leader_epoch <= state.leader_epoch:
            return Decision((), state)
        return Decision(
            self._stored(
                key, state, StateWrite(state.state_epoch, leader_epoch, UNCHANGED, state.complete_count, ())
            ),
            state,
        )

    def update(self, key: SharePartitionKey, asked: StateWrite, now_ms: int) -> Decision[Any, None]:
        """Raises ApiError: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, INVALID_REQUEST."""
        state = self._present(key, asked.leader_epoch)
        self._check_state_epoch(state, asked.state_epoch)
        return Decision(self._stored(key, state, asked), None)

    def _stored(self, key: SharePartitionKey, state: ShareState, asked: StateWrite) -> Sequence[Any]:
        if self._updates.get(key, 0) < self.updates_per_snapshot:
            return (ShareUpdateRecord(key, state.snapshot_epoch, *asked[1:]),)
        return (ShareSnapshotRecord(key, self._as_snapshot(state.updated(*asked[1:]))),)

    def _as_snapshot(self, state: ShareState) -> ShareState:
        return state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=self._clock_ms())

    def summary(self, key: SharePartitionKey, now_ms: int) -> Decision[Any, ShareState]:
        """The state, without its batches, for operators. Raises ApiError(INVALID_REQUEST)."""
        return Decision((), self._present(key, UNINITIALIZED)._replace(batches=()))

    def delete(self, key: SharePartitionKey, now_ms: int) -> Decision[Any, None]:
        """One that does not exist stays so."""
        return Decision((ShareSnapshotRecord(key, None),) if key in self.states else (), None)

    def snapshots(
        self, keys: Iterable[SharePartitionKey], exists: Callable[[UUID], bool], now_ms: int
    ) -> Decision[Any, None]:
        """Store these states whole, and remove those of topics that do not exist."""
        return Decision(
            [
                ShareSnapshotRecord(key, self._as_snapshot(state) if exists(key.topic_id) else None)
                for key in keys
                if (state := self.states.get(key)) is not None
            ],
            None,
        )

    def _present(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        state = self.states.get(key)
        if state is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"group {key.group_id} has no state of partition {key.partition} of topic {key.topic_id}",
            )
        if leader_epoch != UNINITIALIZED and leader_epoch < state.leader_epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"expected leader epoch {state.leader_epoch}, got {leader_epoch}: another broker leads",
            )
        return state

    @staticmethod
    def _check_state_epoch(state: ShareState | None, state_epoch: int) -> None:
        if state is not None and state_epoch < state.state_epoch:
            raise ApiError(
                ErrorCode.FENCED_STATE_EPOCH,
                f"expected state epoch {state.state_epoch}, got {state_epoch}: the offsets were altered",
            )
