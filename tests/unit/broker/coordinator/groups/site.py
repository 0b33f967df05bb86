"""The machine of groups on a clock that is set by hand: its decisions are carried out at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from tidelog.broker.coordinator.decision import Decision, Parked, Timer
from tidelog.broker.coordinator.groups.group import Group, Protocol
from tidelog.broker.coordinator.groups.machine import Groups
from tidelog.broker.coordinator.groups.messages import (
    GroupLimits,
    JoinRequest,
    MemberIdentity,
    SyncRequest,
)
from tidelog.broker.coordinator.groups.records import GroupRecord
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.protocol.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 30_000
DELAY_MS = 3_000
LIMITS = GroupLimits(
    initial_rebalance_delay_ms=DELAY_MS,
    min_session_timeout_ms=6_000,
    max_session_timeout_ms=1_800_000,
    max_size=1_000,
    max_bytes=1 << 30,
)


class Asked:
    """One request. `answer` is None while it is parked."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer


class Coordinator(ABC):
    """Carries out what a machine decides at once, without a loop and without a disk."""

    machine: Any
    now_ms: int
    timers: dict[Hashable, Timer]
    parked: dict[Hashable, Asked]
    journal_works = True

    @abstractmethod
    def write(self, records: Sequence[Any]) -> None:
        """Put records into the log."""

    def run(self, operation: Callable[[int], Decision[Any, Any]]) -> Asked:
        decision = operation(self.now_ms)
        if decision.records and not self.journal_works:
            return Asked(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.write(decision.records)
        for change in (*decision.records, *decision.changes):
            self.machine.apply(change)
        for key, timer in decision.timers.items():
            self.timers.pop(key, None)
            if timer is not None:
                self.timers[key] = timer
        for key, answer in decision.released.items():
            self.parked.pop(key).answer = answer  # Whoever is released was parked.
        asked = Asked()
        if isinstance(decision.response, Parked):
            assert decision.response.key not in self.parked
            self.parked[decision.response.key] = asked
        else:
            asked.answer = decision.response
        return asked

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and timers fire in their order."""
        end_ms = self.now_ms + duration_ms
        while due := [
            (timer.at_ms, str(key), key) for key, timer in self.timers.items() if timer.at_ms <= end_ms
        ]:
            at_ms, _, key = min(due, key=lambda each: each[:2])
            self.now_ms = max(self.now_ms, at_ms)
            self.run(self.timers.pop(key).operation)
        self.now_ms = end_ms


def assert_awaited(timers: Iterable[Any], machine: Groups) -> None:
    """A group waits for each timer of a classic group."""
    for kind, group_id, *member_id in timers:
        group = machine._groups.get(group_id) or Group.new(group_id)
        waiting: Mapping[str, object] = {
            "session": {*group.members, *group.pending_joins}.issuperset(member_id),
            "join phase": group.state is GroupState.PREPARING_REBALANCE,
            "sync phase": group.pending_syncs,
        }
        assert waiting.get(kind, True), f"{group_id} does not wait for its timer {kind} {member_id}"


@dataclass
class Site(Coordinator):
    """A coordinator of classic groups."""

    limits: GroupLimits = LIMITS
    now_ms: int = 1_000
    records: list[GroupRecord] = field(default_factory=list)
    timers: dict[Hashable, Timer] = field(default_factory=dict)
    parked: dict[Hashable, Asked] = field(default_factory=dict)
    journal_works: bool = True

    def __post_init__(self) -> None:
        self.machine = Groups(self.limits)
        self._numbers = count(1)

    def write(self, records: Sequence[GroupRecord]) -> None:
        self.records += records

    def run(self, operation: Callable[[int], Decision[Any, Any]]) -> Asked:
        asked = super().run(operation)
        assert_awaited(self.timers, self.machine)
        return asked

    def restarted(self) -> "Site":
        """A coordinator that knows of this one what it wrote."""
        site = Site(self.limits, self.now_ms)
        site._numbers = self._numbers
        site.records += self.records
        for record in self.records:
            site.machine.apply(record)
        site.run(partial(site.machine.loaded, [*site.machine.ids()]))
        return site

    # Requests

    def join(
        self,
        member_id: str = "",
        group_id: str = "g",
        *,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        requires_known_member_id: bool = False,
        can_skip_assignment: bool = True,
    ) -> Asked:
        request = JoinRequest(
            group_id,
            member_id,
            instance_id,
            "" if member_id else f"m{next(self._numbers)}",
            session_timeout_ms,
            rebalance_timeout_ms,
            protocol_type,
            tuple(Protocol(name, data) for name, data in (protocols or {"range": b"topics"}).items()),
            "client",
            "/127.0.0.1",
            requires_known_member_id,
            can_skip_assignment,
        )
        return self.run(lambda now_ms: self.machine.join(request, now_ms))

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        group_id: str = "g",
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Asked:
        request = SyncRequest(
            group_id, generation, member_id, instance_id, protocol_type, protocol, assignments or {}
        )
        return self.run(lambda now_ms: self.machine.sync(request, now_ms))

    def heartbeat(
        self, member_id: str, generation: int, group_id: str = "g", instance_id: str | None = None
    ) -> ErrorCode:
        asked = self.run(
            lambda now_ms: self.machine.heartbeat(group_id, member_id, instance_id, generation, now_ms)
        )
        code: ErrorCode = asked.answer
        return code

    def leave(self, *member_ids: str, instance_id: str | None = None, group_id: str = "g") -> list[ErrorCode]:
        leaving = [MemberIdentity(member_id, instance_id) for member_id in member_ids]
        codes: list[ErrorCode] = self.run(lambda now_ms: self.machine.leave(group_id, leaving, now_ms)).answer
        return codes

    def state(self, group_id: str = "g") -> GroupState:
        state: GroupState = self.machine.describe(group_id).state
        return state

    def members(self, group_id: str = "g") -> list[str]:
        return [member.member_id for member in self.machine.describe(group_id).members]

    def stable(self, count: int = 2, group_id: str = "g", **static: str) -> list[str]:
        """Make a group of so many members, or of static ones, with assignments; the leader comes first."""
        instances: list[str | None] = [*static.values()] or [None] * count
        joins = [self.join(group_id=group_id, instance_id=each) for each in instances]
        self.pass_ms(2 * DELAY_MS)
        ids = [joined.answer.member_id for joined in joins]
        generation = joins[0].answer.generation
        for member_id in reversed(ids):
            self.sync(member_id, generation, {each: each.encode() for each in ids}, group_id)
        assert self.state(group_id) is GroupState.STABLE
        return ids
