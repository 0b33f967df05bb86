"""Groups whose records become committed later, against groups that get each record when it is committed."""

from collections import deque
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.coordinator.consumer_groups.site import Site
from tidelog.broker.coordinator.consumer_groups import records
from tidelog.broker.coordinator.consumer_groups.group import Current, Subscription
from tidelog.broker.coordinator.group_machine import GroupMachine
from tidelog.broker.coordinator.groups.group import Group
from tidelog.broker.coordinator.groups.records import GroupRecord
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset, OffsetRecord
from tidelog.broker.coordinator.pending_records import InTransaction
from tidelog.protocol.records import TransactionMarker

GROUPS = ("a", "b")
MEMBERS = ("m", "n")
PRODUCERS = (7, 8)

members = st.sampled_from(MEMBERS)
epochs = st.none() | st.integers(1, 9)
offsets = st.builds(
    OffsetRecord,
    st.sampled_from(GROUPS),
    st.sampled_from(("t", "u")),
    st.integers(0, 1),
    st.none() | st.builds(CommittedOffset, st.integers(0, 99)),
)
currents = st.builds(Current, epoch=st.integers(1, 9), assigned=st.just({UUID(int=1): frozenset((0,))}))
written = st.one_of(
    offsets,
    st.builds(InTransaction, st.sampled_from(PRODUCERS), st.just(0), offsets),
    st.builds(TransactionMarker, st.sampled_from(PRODUCERS), st.just(0), st.just(0), st.booleans()),
    st.just(GroupRecord("a", None)),
    st.integers(1, 9).map(lambda generation: GroupRecord("a", Group("a", generation=generation))),
    st.builds(records.GroupEpochRecord, st.just("b"), epochs),
    st.builds(records.TargetEpochRecord, st.just("b"), epochs),
    st.builds(records.MemberRecord, st.just("b"), members, st.none() | st.builds(Subscription)),
    st.builds(records.CurrentRecord, st.just("b"), members, st.none() | currents),
)


def shown(machine: GroupMachine) -> list[Any]:
    of = machine.offsets
    return [
        sorted(machine.listed(sorted(machine.all_ids()))),
        *((group, machine.describe(group), machine.member_count(group)) for group in GROUPS),
        machine.groups.consumer.describe("b"),
        *({topic: dict(each) for topic, each in of.of_group(group)} for group in GROUPS),
    ]


@given(st.lists(written | st.none()))
def test_queries_show_what_is_committed(steps: list[Any]) -> None:
    machine, committed = Site().machine, Site().machine
    waiting: deque[Any] = deque()
    for step in (*steps, *[None] * len(steps)):
        if step is not None:
            machine.write(step)
            waiting.append(step)
        elif waiting:
            machine.settle(waiting[0])
            committed.apply(waiting.popleft())
        assert shown(machine) == shown(committed)
        # An abort is decided, durably, before its markers are written.
        if not any(isinstance(each, TransactionMarker) and not each.is_commit for each in waiting):
            for group in GROUPS:
                assert set(committed.offsets.unstable(group)) <= set(machine.offsets.unstable(group))
    assert not [*machine.groups.uncommitted_ids(), *machine.offsets.uncommitted_ids()]
    for group in GROUPS:
        assert machine.offsets.unstable(group) == committed.offsets.unstable(group)
