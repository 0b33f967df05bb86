"""The groups of one type of one coordinator: with all that was written, and as they may be shown.

Owns which groups exist, and how much memory they hold. Invariant: a group exists from the first record with a
value until the tombstone of its epoch.

Pure. Source: Kafka's GroupMetadataManager.
"""

from collections.abc import Callable, Collection, Iterator, Sized
from typing import Any, Generic, Protocol, Self, TypeVar


class StoredGroup(Protocol):
    """A group that changes only by its records."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def members(self) -> Sized: ...

    def copy(self) -> Self:
        """A group that can be changed without changing this one."""


GroupT = TypeVar("GroupT", bound=StoredGroup)


class _Committed(Generic[GroupT]):
    """A group without the records that are not committed yet."""

    __slots__ = ("group", "waiting")

    def __init__(self, group: GroupT | None) -> None:
        self.group = group
        self.waiting = 0
        """How many records are not committed."""


class GroupTable(Generic[GroupT]):
    """A record has the group's id, `apply_to`, and as its last field a value: None is a tombstone."""

    def __init__(self, make: Callable[[str], GroupT], epoch_record: type) -> None:
        self.held_bytes = 0
        self._make = make
        self._epoch_record = epoch_record
        self._groups: dict[str, GroupT] = {}
        self._committed: dict[str, _Committed[GroupT]] = {}
        """The groups with records that are not committed yet."""

    def apply(self, record: Any) -> None:
        before = self._groups.get(record.group_id)
        self.held_bytes -= 0 if before is None else before.held_bytes
        after = self._applied(before, record)
        if after is None:
            self._groups.pop(record.group_id, None)
            return
        self.held_bytes += after.held_bytes
        if before is None:
            self._groups[record.group_id] = after

    def _applied(self, group: GroupT | None, record: Any) -> GroupT | None:
        """The group after a record, changed in place; None for one that does not exist."""
        is_tombstone = record[-1] is None
        if group is None:
            if is_tombstone:
                return None  # Of a part that does not exist.
            group = self._make(record.group_id)
        record.apply_to(group)
        return None if is_tombstone and isinstance(record, self._epoch_record) else group

    def write(self, record: Any) -> None:
        """Apply a record that is not committed yet."""
        held = self._committed.get(record.group_id)
        if held is None:
            group = self._groups.get(record.group_id)
            held = self._committed[record.group_id] = _Committed(None if group is None else group.copy())
        held.waiting += 1
        self.apply(record)

    def settle(self, record: Any) -> None:
        """The oldest record of its group that was not committed is."""
        held = self._committed[record.group_id]
        held.waiting -= 1
        if not held.waiting:
            del self._committed[record.group_id]
        else:
            held.group = self._applied(held.group, record)

    def get(self, group_id: str) -> GroupT | None:
        return self._groups.get(group_id)

    def committed(self, group_id: str) -> GroupT | None:
        """A group as it may be shown; None for one that does not exist."""
        held = self._committed.get(group_id)
        return self._groups.get(group_id) if held is None else held.group

    def uncommitted_ids(self) -> Iterator[str]:
        """The groups with records that are not committed."""
        return iter(self._committed)

    def knows(self, group_id: str) -> bool:
        return group_id in self._groups

    def ids(self) -> Collection[str]:
        return self._groups.keys()

    def member_count(self, group_id: str) -> int:
        """The members of a group; 0 for one that does not exist."""
        group = self.committed(group_id)
        return 0 if group is None else len(group.members)
