"""All groups of one partition of `__consumer_offsets`: a machine that combines those of members and offsets.

Owns which part takes which kind of record, and what concerns both members and offsets of a group. Invariant:
a group exists as long as it has members, a generation or offsets.

Pure. Source: Kafka's GroupCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from tidelog.broker.coordinator.decision import Decision
from tidelog.broker.coordinator.groups.machine import Groups
from tidelog.broker.coordinator.groups.messages import DescribedGroup, GroupLimits, ListedGroup
from tidelog.broker.coordinator.groups.rebalance import GroupChanged
from tidelog.broker.coordinator.groups.records import GROUP_RECORDS, GroupRecord
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.broker.coordinator.offsets.committed_offsets import CommittedOffsets
from tidelog.broker.coordinator.offsets.offset_records import OFFSET_RECORDS, OffsetRecord
from tidelog.broker.coordinator.record_formats import RecordFormats
from tidelog.protocol.errors import ApiError, ErrorCode

GROUP_RECORD_FORMATS = RecordFormats((OFFSET_RECORDS, GROUP_RECORDS))
DELETED_AT_ONCE = 500
"""Records of one step of a deletion. Names have at most 32,767 and 249 characters; most are short."""


class GroupMachine:
    """Members and offsets of groups. Operations take `now_ms` last and return a Decision."""

    def __init__(self, retention_ms: int, limits: GroupLimits) -> None:
        """`retention_ms`: how long unused offsets are kept."""
        self.groups = Groups(limits)
        self.offsets = CommittedOffsets(self.groups, retention_ms)
        self._parts: dict[type, Callable[[Any], None]] = {
            OffsetRecord: self.offsets.apply,
            GroupRecord: self.groups.apply,
            GroupChanged: self.groups.apply,
        }

    def set_rules(self, retention_ms: int, limits: GroupLimits) -> None:
        """Let changed settings hold from the next operation on."""
        self.groups.limits = limits
        self.offsets.retention_ms = retention_ms

    def apply(self, record: object) -> None:
        self._parts[type(record)](record)

    def describe(self, group_id: str, now_ms: int) -> Decision[Any, DescribedGroup]:
        """A group that does not exist is described as dead, one that has only offsets as empty."""
        group = self.groups.describe(group_id)
        if group.state is GroupState.DEAD and group_id in self.offsets.group_ids:
            group = group._replace(state=GroupState.EMPTY)
        return Decision((), group)

    def ids(self, now_ms: int) -> Decision[Any, list[str]]:
        """The ids of all groups."""
        return Decision((), sorted(self.all_ids()))

    def all_ids(self) -> set[str]:
        """The ids of all groups."""
        return {*self.groups.ids(), *self.offsets.group_ids}

    def member_count(self, group_id: str) -> int:
        """The members of a group; 0 for one that has only offsets, or does not exist."""
        return self.groups.member_count(group_id)

    def listed(self, group_ids: Sequence[str], now_ms: int) -> Decision[Any, list[ListedGroup]]:
        """One entry for each of these groups that still exists."""
        groups = [self.describe(group_id, now_ms).response for group_id in group_ids]
        return Decision(
            (),
            [
                ListedGroup(group.group_id, group.state, group.protocol_type)
                for group in groups
                if isinstance(group, DescribedGroup) and group.state is not GroupState.DEAD
            ],
        )

    def delete_some(self, group_id: str, now_ms: int) -> Decision[Any, bool]:
        """Delete some offsets of a group without members, then the group; returns whether more must be
        deleted.

        Raises ApiError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        has_offsets = group_id in self.offsets.group_ids
        if not has_offsets and not self.groups.knows(group_id):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        last = self.groups.deletion(group_id) if self.groups.knows(group_id) else ()
        records = list(islice(self.offsets.removal(group_id), DELETED_AT_ONCE + 1))
        if len(records) > DELETED_AT_ONCE:
            return Decision(records[:DELETED_AT_ONCE], True)
        return Decision((*records, *last), False)

    def forget_idle(self, group_ids: Sequence[str], now_ms: int) -> Decision[Any, None]:
        """Delete those of these groups that no longer have members or offsets."""
        idle = (group_id for group_id in group_ids if group_id not in self.offsets.group_ids)
        records = [record for group_id in idle for record in self.groups.deletion_if_empty(group_id)]
        return Decision(records, None)
