"""What a coordinator may show while some of its records are not committed.

Owns the values that keys had before the records that are written and not committed yet: a crash may undo
these. They are kept per write, because writes become committed one by one.

Invariant: records become committed in the order in which they were written.

Pure. Source: Kafka's SnapshotRegistry, which keeps them for all of a coordinator's state.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Uncommitted(Generic[KeyT, ValueT]):
    """Keeps the committed values of keys with uncommitted records, of one machine or of one group."""

    def __init__(self) -> None:
        self._before: dict[KeyT, deque[ValueT]] = {}

    def __bool__(self) -> bool:
        return bool(self._before)

    def written(self, key: KeyT, before: ValueT) -> None:
        """A record of this key is written, in place of this value."""
        present = self._before.get(key)
        if present is None:
            self._before[key] = deque((before,))
        else:
            present.append(before)

    def committed(self, key: KeyT) -> None:
        """The oldest of the records of this key is committed."""
        before = self._before[key]
        before.popleft()
        if not before:
            del self._before[key]

    def shown(self, key: KeyT, present: ValueT) -> ValueT:
        """The committed value of a key; `present` is the value with all that was written."""
        before = self._before.get(key)
        return present if before is None else before[0]

    def __iter__(self) -> Iterator[tuple[KeyT, deque[ValueT]]]:
        """The keys with records that are not committed, and the values before each, the oldest first."""
        return iter(self._before.items())
