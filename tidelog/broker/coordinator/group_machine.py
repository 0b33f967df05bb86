"""All groups of one partition of `__consumer_offsets`: a machine that combines those of members and offsets.

Owns which part takes which kind of record, and what concerns both members and offsets of a group.
Invariants: a group exists as long as it has members, a generation or offsets; a query shows what is
committed, an operation decides on all that was written.

Pure. Source: Kafka's GroupCoordinatorShard.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from tidelog.broker.coordinator.consumer_groups.messages import ConsumerGroupSettings, TopicsView
from tidelog.broker.coordinator.consumer_groups.records import CONSUMER_GROUP_RECORDS
from tidelog.broker.coordinator.consumer_groups.update import AskedToJoin
from tidelog.broker.coordinator.decision import Decision
from tidelog.broker.coordinator.group_types import CLASSIC, GroupTypes
from tidelog.broker.coordinator.groups.messages import DescribedGroup, GroupLimits, ListedGroup
from tidelog.broker.coordinator.groups.rebalance import GroupChanged
from tidelog.broker.coordinator.groups.records import GROUP_RECORDS, GroupRecord
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.broker.coordinator.offsets.committed_offsets import CommittedOffsets
from tidelog.broker.coordinator.offsets.offset_records import OFFSET_RECORDS, OffsetRecord
from tidelog.broker.coordinator.pending_records import InTransaction
from tidelog.broker.coordinator.record_formats import RecordFormats
from tidelog.broker.coordinator.share_groups.machine import ShareGroupSettings
from tidelog.broker.coordinator.share_groups.records import SHARE_GROUP_RECORDS
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import TransactionMarker

GROUP_RECORD_FORMATS = RecordFormats(
    (OFFSET_RECORDS, GROUP_RECORDS, *CONSUMER_GROUP_RECORDS, *SHARE_GROUP_RECORDS)
)
DELETED_AT_ONCE = 500
"""Records of one step of a deletion. Names have at most 32,767 and 249 characters; most are short."""


def _nothing(record: object) -> None:
    """For records that are never shown as committed."""


class _Part(NamedTuple):
    """What takes one kind of record: see `Machine`. Changes are never written."""

    apply: Callable[[Any], None]
    write: Callable[[Any], None] = _nothing
    settle: Callable[[Any], None] = _nothing


class GroupRules(NamedTuple):
    """What the settings of a broker say about groups. `retention_ms`: how long unused offsets are kept."""

    retention_ms: int
    limits: GroupLimits
    settings: ConsumerGroupSettings
    share_settings: ShareGroupSettings


class GroupMachine:
    """Members and offsets of groups. Operations take `now_ms` last and return a Decision."""

    def __init__(self, rules: GroupRules, topics: TopicsView) -> None:
        self.groups = GroupTypes(rules.limits, rules.settings, rules.share_settings, topics)
        self.offsets = CommittedOffsets(self.groups.of, rules.retention_ms)
        offsets, classic, consumer = self.offsets, self.groups.classic, self.groups.consumer
        share = self.groups.share
        self._parts: dict[type, _Part] = {
            OffsetRecord: _Part(offsets.apply, offsets.write, offsets.settle),
            InTransaction: _Part(offsets.apply_pending, offsets.apply_pending),
            TransactionMarker: _Part(offsets.apply_end, offsets.write_end, offsets.settle_end),
            GroupRecord: _Part(classic.apply, classic.write, classic.settle),
            GroupChanged: _Part(classic.apply),
            AskedToJoin: _Part(consumer.apply_change),
            **{
                kind.record_type: _Part(consumer.apply, consumer.write, consumer.settle)
                for kind in CONSUMER_GROUP_RECORDS
            },
            **{
                kind.record_type: _Part(share.apply, share.write, share.settle)
                for kind in SHARE_GROUP_RECORDS
            },
        }

    def set_rules(self, rules: GroupRules) -> None:
        """Let changed settings hold from the next operation on."""
        self.groups.classic.limits = rules.limits
        self.groups.consumer.settings = rules.settings
        self.groups.share.settings = rules.share_settings
        self.offsets.retention_ms = rules.retention_ms

    def apply(self, record: object) -> None:
        self._parts[type(record)].apply(record)

    def write(self, record: object) -> None:
        self._parts[type(record)].write(record)

    def settle(self, record: object) -> None:
        self._parts[type(record)].settle(record)

    def describe(self, group_id: str) -> DescribedGroup:
        """A group that has only offsets is described as empty. One that does not exist, or is of another
        type, is described as dead."""
        group = self.groups.describe(group_id)
        is_unknown = group.state is GroupState.DEAD and self.groups.listed(group_id) is None
        if is_unknown and self.offsets.has_committed(group_id):
            group = group._replace(state=GroupState.EMPTY)
        return group

    def all_ids(self) -> set[str]:
        uncommitted = {*self.groups.uncommitted_ids(), *self.offsets.uncommitted_ids()}
        committed = {*self.groups.ids(), *self.offsets.group_ids} - uncommitted
        return committed.union(each for each in uncommitted if self.listed((each,)))

    def member_count(self, group_id: str) -> int:
        """The members of a group; 0 for one that has only offsets, or does not exist."""
        by_type = (self.groups.consumer, self.groups.share, self.groups.classic)
        return max(each.member_count(group_id) for each in by_type)

    def listed(self, group_ids: Sequence[str]) -> list[ListedGroup]:
        """One entry for each of these groups that still exists."""
        found = []
        for group_id in group_ids:
            group = self.groups.listed(group_id)
            if group is None and self.offsets.has_committed(group_id):
                group = ListedGroup(group_id, GroupState.EMPTY.value, "", CLASSIC)
            if group is not None:
                found.append(group)
        return found

    def delete_some(self, group_id: str, now_ms: int) -> Decision[Any, bool]:
        """Delete some offsets of a group without members, then the group; returns whether more must be
        deleted.

        Raises ApiError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        machine = self.groups.of(group_id)
        if machine is None and not self.offsets.knows(group_id):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        last = () if machine is None else machine.deletion(group_id)
        records = list(islice(self.offsets.removal(group_id), DELETED_AT_ONCE + 1))
        if len(records) > DELETED_AT_ONCE:
            return Decision(records[:DELETED_AT_ONCE], True)
        return Decision((*records, *last), False)

    def forget_idle(self, group_ids: Sequence[str], now_ms: int) -> Decision[Any, None]:
        """Delete those of these groups that no longer have members or offsets."""
        records: list[Any] = []
        for group_id in group_ids:
            if group_id not in self.offsets.group_ids and (machine := self.groups.of(group_id)) is not None:
                records += machine.deletion_if_empty(group_id)
        return Decision(records, None)
