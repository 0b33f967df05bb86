"""The machine of groups against a small model: what any member may see, whatever the others do.

The model knows dynamic members of one protocol in one group without an initial delay. Each request is put to
both, and time passes for both; answers, state, members and who waits must be the same after each step.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.broker.coordinator.groups.site import LIMITS, REBALANCE_MS, SESSION_MS, Asked, Site
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.protocol.errors import ErrorCode

FOREVER = 1 << 60
SLOTS = st.integers(0, 3)
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL, REBALANCING = ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS
EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE


class Model:
    """`expiry` has the members in the order in which they came; those who wait do not expire."""

    def __init__(self) -> None:
        self.state, self.generation, self.leader, self.phase_end_ms = EMPTY, 0, "", FOREVER
        self.expiry: dict[str, int] = {}
        self.metadata: dict[str, bytes] = {}
        self.joining: set[str] = set()
        self.unsynced: set[str] = set()
        self.waiting: set[str] = set()
        self.generations: dict[int, tuple[str, list[str]]] = {}

    def refusal(self, member_id: str, generation: int) -> ErrorCode | None:
        if member_id not in self.expiry:
            return UNKNOWN
        return None if generation == self.generation else ILLEGAL

    def alive(self, member_id: str, now_ms: int) -> None:
        if member_id not in self.joining | self.waiting:
            self.expiry[member_id] = now_ms + SESSION_MS

    def _begin(self, now_ms: int) -> None:
        if self.state is PREPARING:
            return
        self.phase_end_ms = now_ms if self.state is EMPTY else now_ms + REBALANCE_MS
        called_back, self.waiting = self.waiting, set()
        for member_id in called_back:
            self.alive(member_id, now_ms)
        self.state, self.unsynced = PREPARING, set()

    def _settle(self, now_ms: int) -> None:
        if now_ms < self.phase_end_ms and not self.joining >= self.expiry.keys():
            return
        self.expiry = {each: now_ms + SESSION_MS for each in self.expiry if each in self.joining}
        self.joining, self.unsynced = set(), set(self.expiry)
        self.generation += 1
        self._lead()
        self.generations[self.generation] = (self.leader, list(self.expiry))
        self.state = COMPLETING if self.expiry else EMPTY
        self.phase_end_ms = now_ms + REBALANCE_MS if self.expiry else FOREVER

    def _lead(self) -> None:
        self.leader = self.leader if self.leader in self.expiry else next(iter(self.expiry), "")

    def join(self, member_id: str, metadata: bytes, now_ms: int) -> ErrorCode | None:
        is_same = self.metadata.get(member_id) == metadata
        if (
            member_id in self.expiry
            and is_same
            and (self.state is COMPLETING or (self.state is STABLE and member_id != self.leader))
        ):
            self.alive(member_id, now_ms)
            return NONE
        self._begin(now_ms)
        self.metadata[member_id] = metadata
        self.expiry[member_id] = FOREVER
        self.joining.add(member_id)
        self._lead()
        self._settle(now_ms)
        return None

    def sync(self, member_id: str, generation: int, now_ms: int) -> ErrorCode | None:
        code = self.refusal(member_id, generation)
        if code is not None or self.state is PREPARING:
            return code or REBALANCING
        self.unsynced.discard(member_id)
        self.phase_end_ms = self.phase_end_ms if self.unsynced else FOREVER
        if self.state is COMPLETING and member_id != self.leader:
            self.waiting.add(member_id)
            self.expiry[member_id] = FOREVER
            return None
        called, self.waiting, self.state = self.waiting, set(), STABLE
        for each in (member_id, *called):
            self.alive(each, now_ms)
        return NONE

    def heartbeat(self, member_id: str, generation: int, now_ms: int) -> ErrorCode:
        code = self.refusal(member_id, generation)
        if code is None:
            self.alive(member_id, now_ms)
            return REBALANCING if self.state is PREPARING else NONE
        return code

    def remove(self, gone: set[str], now_ms: int) -> None:
        self._begin(now_ms)
        for member_id in gone:
            del self.expiry[member_id]
            self.joining.discard(member_id)
        self._lead()
        self._settle(now_ms)

    def pass_until(self, end_ms: int) -> None:
        while True:
            join_end_ms = self.phase_end_ms if self.state is PREPARING else FOREVER
            sync_end_ms = self.phase_end_ms if self.state is not PREPARING else FOREVER
            events = [(at, f"session {each}", {each}) for each, at in self.expiry.items()]
            events += [(join_end_ms, "join phase", set()), (sync_end_ms, "sync phase", set(self.unsynced))]
            at_ms, kind, gone = min(events, key=lambda event: event[:2])
            if at_ms > end_ms:
                return
            if kind == "join phase":
                self._settle(at_ms)
            else:
                self.remove(gone, at_ms)


class GroupsAgainstTheModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.site = Site(LIMITS._replace(initial_rebalance_delay_ms=0))
        self.model = Model()
        self.names = [""] * 4
        self.joins: list[tuple[str, Asked]] = []

    def settle(self) -> None:
        self.site.pass_ms(0)

    @rule(slot=SLOTS, metadata=st.sampled_from([b"a", b"a", b"b"]))
    def join(self, slot: int, metadata: bytes) -> None:
        member_id = self.names[slot]
        before = set(self.site.members())
        asked = self.site.join(member_id, protocols={"range": metadata})
        if member_id and member_id not in self.model.expiry:
            assert asked.answer.error_code == UNKNOWN
            self.names[slot] = ""
            return
        if not member_id:
            (member_id,) = {*self.site.members()} - before
            self.names[slot] = member_id
        expected = self.model.join(member_id, metadata, self.site.now_ms)
        assert expected is None or asked.answer.error_code == expected
        self.joins.append((member_id, asked))
        self.settle()

    @rule(slot=SLOTS, age=st.sampled_from([0, 0, 0, 1]))
    def sync(self, slot: int, age: int) -> None:
        member_id, generation = self.names[slot], self.model.generation - age
        assignments = {each: f"{generation} {each}".encode() for each in self.model.expiry}
        asked = self.site.sync(member_id, generation, assignments)
        expected = self.model.sync(member_id, generation, self.site.now_ms)
        assert (None if asked.answer is None else asked.answer.error_code) == expected
        if expected == NONE:
            assert asked.answer.assignment == f"{generation} {member_id}".encode()

    @rule(count=st.integers(2, 4), leader_assigns=st.booleans())
    def members_do_what_they_should(self, count: int, leader_assigns: bool) -> None:
        """Else most runs would never see a stable group of several members."""
        for slot in range(count):
            if self.names[slot] not in self.model.expiry:
                self.names[slot] = ""
            self.join(slot, self.model.metadata.get(self.names[slot], b"a"))
        for slot in range(4):
            name = self.names[slot]
            if name in self.model.expiry and self.model.state is PREPARING:
                self.join(slot, self.model.metadata[name])
        leaders = [slot for slot in range(4) if self.names[slot] == self.model.leader]
        for slot in [*range(4), *leaders] if leader_assigns else range(4):
            if leader_assigns or slot not in leaders:
                self.sync(slot, 0)

    @rule(slot=SLOTS, age=st.sampled_from([0, 0, 0, 1]))
    def heartbeat(self, slot: int, age: int) -> None:
        member_id, generation = self.names[slot], self.model.generation - age
        expected = self.model.heartbeat(member_id, generation, self.site.now_ms)
        assert self.site.heartbeat(member_id, generation) == expected

    @rule(slot=SLOTS)
    def leave(self, slot: int) -> None:
        member_id = self.names[slot]
        expected = NONE if member_id in self.model.expiry else UNKNOWN
        assert self.site.leave(member_id) == [expected]
        if expected == NONE:
            self.model.remove({member_id}, self.site.now_ms)
        self.settle()

    @rule(duration_ms=st.sampled_from([1, 3_000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, duration_ms: int) -> None:
        self.model.pass_until(self.site.now_ms + duration_ms)
        self.site.pass_ms(duration_ms)

    @rule(seconds=st.sampled_from([5, REBALANCE_MS // 1000]))
    def time_passes_and_members_are_alive(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            for slot in range(4):
                self.heartbeat(slot, 0)
            self.time_passes(5_000)

    @invariant()
    def both_are_in_the_same_state(self) -> None:
        state = self.site.state()
        assert (EMPTY if state is GroupState.DEAD else state) == self.model.state
        assert self.site.members() == list(self.model.expiry)

    @invariant()
    def whoever_waits_is_parked_and_nobody_else(self) -> None:
        parked: set[Any] = {("join", "g", each) for each in self.model.joining}
        assert self.site.parked.keys() == parked | {("sync", "g", each) for each in self.model.waiting}

    @invariant()
    def members_of_a_generation_are_told_the_same_and_the_leader_of_all(self) -> None:
        for member_id, asked in self.joins:
            if asked.answer is None or asked.answer.error_code != NONE:
                continue
            leader, members = self.model.generations[asked.answer.generation]
            assert member_id in members
            assert asked.answer.leader == leader
            told = [each.member_id for each in asked.answer.members]
            assert told == (members if member_id == leader else [])
        self.joins = [(member_id, asked) for member_id, asked in self.joins if asked.answer is None]

    def teardown(self) -> None:
        """Whoever goes silent, the group comes to its end, and nothing is left of its members."""
        self.site.pass_ms(4 * REBALANCE_MS)
        assert not self.site.members()
        assert not self.site.parked
        assert not self.site.timers


TestGroupsAgainstTheModel = GroupsAgainstTheModel.TestCase
