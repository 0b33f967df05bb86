"""What a share consumer holds, against a broker that knows each record's lock, whatever order things have."""

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelog.client.share.held import AcknowledgeType, HeldPartition
from tidelog.client.share.session import Batch, SharePartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import TopicPartition

LOCK = 10.0
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
KINDS = st.sampled_from((ACCEPT, RELEASE, REJECT))


class HeldRecords(RuleBasedStateMachine):
    """`locks` and `outcomes` are the broker's: who is not in `locks` is available or done."""

    def __init__(self) -> None:
        super().__init__()
        self.held = HeldPartition(TopicPartition("t", 0), SharePartition(UUID(int=7), 0), 1, lambda: None)
        self.now = 0.0
        self.next_offset = 0
        self.locks: dict[int, float] = {}
        self.outcomes: dict[int, int] = {}
        self.wanted: dict[int, int] = {}
        self.sent: list[Batch] = []
        self.refused: set[int] = set()
        # What the application has, and did not acknowledge.
        self.read: set[int] = set()
        # What it has since a lock that ended.
        self.late: set[int] = set()

    # A session has one request at a time.
    @precondition(lambda self: not self.sent)
    @rule(count=st.integers(1, 5))
    def acquire(self, count: int) -> None:
        offsets = [each for each in range(self.next_offset) if each not in self.locks | self.outcomes][:count]
        offsets += range(self.next_offset, self.next_offset + count - len(offsets))
        self.next_offset = max(self.next_offset, *(each + 1 for each in offsets))
        self.held.acquired(offsets, self.now + LOCK)
        for offset in offsets:
            self.locks[offset] = self.now + LOCK

    def unread(self) -> list[int]:
        return [each for each in range(self.next_offset) if self.held.is_unread(each)]

    @precondition(lambda self: self.unread())
    @rule(data=st.data())
    def read_one(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.unread()))
        assert offset not in self.wanted
        assert offset not in self.read
        self.held.returned(offset)
        self.read.add(offset)
        self.late.discard(offset)

    @precondition(lambda self: self.read | self.late)
    @rule(data=st.data(), kind=KINDS)
    def acknowledge(self, data: st.DataObject, kind: AcknowledgeType) -> None:
        offset = data.draw(st.sampled_from(sorted(self.read | self.late)))
        assert self.held.acknowledge(offset, kind)
        self.read.discard(offset)
        self.late.discard(offset)
        self.wanted[offset] = kind

    @rule(seconds=st.floats(0.5, LOCK))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.locks = {offset: end for offset, end in self.locks.items() if end > self.now}
        ended = self.held.expire(self.now)
        self.read.difference_update(ended)
        self.late.update(ended)

    @precondition(lambda self: not self.sent and self.held.has_to_send())
    @rule()
    def send(self) -> None:
        self.sent = self.held.take()

    @precondition(lambda self: self.sent)
    @rule(is_lost=st.booleans(), is_released=st.booleans())
    def answer(self, is_lost: bool, is_released: bool = False) -> None:
        """`is_released`: with the session the locks of its records ended."""
        sent, self.sent = self.sent, []
        kinds = {
            offset: each.types[(offset - each.first_offset) % len(each.types)]
            for each in sent
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        is_refused = not kinds.keys() <= self.locks.keys()
        if not is_refused:
            for offset, kind in kinds.items():
                del self.locks[offset]
                if kind != RELEASE:
                    assert offset not in self.outcomes
                    self.outcomes[offset] = kind
        if is_lost:
            self.held.session_ended()
            if is_released:
                self.locks.clear()
            return
        code = ErrorCode.INVALID_RECORD_STATE if is_refused else ErrorCode.NONE
        settled = self.held.answered(code, self.now + LOCK)
        self.refused |= set(settled.refused)
        for offset in (*settled.done, *settled.refused):
            self.wanted.pop(offset, None)

    @invariant()
    def nothing_happens_to_a_record_that_the_application_did_not_decide(self) -> None:
        assert set(self.outcomes.values()) <= {ACCEPT, REJECT}

    @invariant()
    def what_is_decided_and_not_settled_is_not_forgotten(self) -> None:
        assert self.wanted.keys() <= self.held.unsettled()

    @invariant()
    def what_the_application_can_read_is_locked(self) -> None:
        assert set(self.unread()) <= self.locks.keys()

    def teardown(self) -> None:
        """Without more losses, everything is settled."""
        for _ in range(200):
            if self.sent:
                self.answer(False)
            elif self.held.has_to_send():
                self.send()
            else:
                break
        assert self.held.unsettled() == set()


TestHeldRecords = HeldRecords.TestCase
TestHeldRecords.settings = settings(stateful_step_count=40)
