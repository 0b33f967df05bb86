"""What share groups promise, checked at each delivery and each acknowledgement of each broker.

Owns which records were accepted, and who holds which lock, by what brokers answer and the clock. `find` is
told what contradicts a rule: a record that is accepted is not delivered again, whichever broker dies. While a
lock holds, nobody else gets its record. A record is delivered as often as the limit says, at most. What
nobody accepted has a dead letter at the end.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any
from unittest.mock import patch

from tests.simulation.virtual_loop import VirtualLoop
from tidelog.broker.coordinator.share_states.state import SharePartitionKey
from tidelog.broker.share import dead_letters
from tidelog.broker.share.held import HeldPartition, Stored
from tidelog.broker.share.partitions import SharePartitions
from tidelog.broker.share.share_partition import Acknowledgement, AcknowledgeType, Acquired
from tidelog.protocol.errors import ApiError

_Place = tuple[SharePartitionKey, int]
_LASTING = (AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


class ShareChecks:
    """Of all brokers and all their lives, while `installed`."""

    def __init__(self, loop: VirtualLoop, find: Callable[[str], None]) -> None:
        self._loop = loop
        self._find = find
        self._locks: dict[HeldPartition, dict[int, tuple[str, int]]] = {}
        """What a leader gave: who has it, and until when."""
        self.done: set[_Place] = set()
        self.asked: set[_Place] = set()
        """What a member wanted to accept or reject, whatever the answer."""
        self._accepted: set[_Place] = set()
        """Of them, what was not to be rejected."""
        self._rejected: set[_Place] = set()
        self.counts: dict[_Place, int] = {}
        self.expired = 0
        """Locks that had ended when their record was delivered again."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        checks = self
        acquire, acknowledge = SharePartitions._acquired, HeldPartition.acknowledge
        release = HeldPartition.release

        async def acquired(self: SharePartitions, held: HeldPartition, wanted: Any, config: Any) -> Any:
            got = await acquire(self, held, wanted, config)
            if got is not None:
                checks._given(held, wanted.member_id, got.acquired)
            return got

        def acknowledged(
            self: HeldPartition, member_id: str, each: Sequence[Acknowledgement], stored: Stored
        ) -> None:
            mine = checks._asked(self, member_id, each)

            def checked(error: ApiError | None) -> None:
                if error is None:
                    checks._stored(self, member_id, each, mine)
                stored(error)

            acknowledge(self, member_id, each, checked)

        def released(self: HeldPartition, member_id: str, stored: Stored) -> None:
            checks._end(self, checks._of(self, member_id))
            release(self, member_id, stored)

        with (
            patch.object(SharePartitions, "_acquired", acquired),
            patch.object(HeldPartition, "acknowledge", acknowledged),
            patch.object(HeldPartition, "release", released),
            # Until all is healed: else a group goes on without those that cannot be written.
            patch.object(dead_letters, "_BACKOFF_SECONDS", repeat(1.0)),
        ):
            yield

    def _given(self, held: HeldPartition, member_id: str, acquired: Sequence[Acquired]) -> None:
        now, limits = self._loop.now_ms(), held.machine.limits
        locks = self._locks.setdefault(held, {})
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                place = held.key, offset
                what = f"{held.replica.topic}-{held.key.partition} at offset {offset}"
                holder, deadline_ms = locks.get(offset, ("", 0))
                if deadline_ms > now:
                    self._find(f"{what} is given to {member_id} while {holder} holds it")
                if place in self.done:
                    self._find(f"{what} was accepted, and is delivered again")
                if count > limits.max_delivery_count:
                    self._find(f"{what} is delivered more often than {limits.max_delivery_count} times")
                self.expired += bool(holder)
                self.counts[place] = max(count, self.counts.get(place, 0))
                locks[offset] = member_id, now + limits.lock_duration_ms

    def _of(self, held: HeldPartition, member_id: str) -> list[int]:
        """What the member may hold."""
        return [offset for offset, (who, _) in self._locks.get(held, {}).items() if who == member_id]

    def _end(self, held: HeldPartition, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._locks[held].pop(offset, None)

    def _asked(self, held: HeldPartition, member_id: str, asked: Sequence[Acknowledgement]) -> set[int]:
        """Which of these records the member holds now. A refusal may end their locks or not."""
        kinds = _kinds(asked)
        lasting = {(held.key, offset): kind for offset, kind in kinds.items() if kind in _LASTING}
        self.asked |= lasting.keys()
        self._accepted |= {place for place, kind in lasting.items() if kind != AcknowledgeType.REJECT}
        mine = kinds.keys() & set(self._of(held, member_id))
        self._end(held, [offset for offset in mine if kinds[offset] != AcknowledgeType.RENEW])
        return mine

    def _stored(
        self, held: HeldPartition, member_id: str, asked: Sequence[Acknowledgement], mine: Collection[int]
    ) -> None:
        """What a member did not hold is before the start offset: Kafka answers success for that."""
        deadline_ms = self._loop.now_ms() + held.machine.limits.lock_duration_ms
        for offset, kind in _kinds(asked).items():
            if offset not in mine:
                continue
            if kind == AcknowledgeType.RENEW and offset in self._locks[held]:
                self._locks[held][offset] = member_id, deadline_ms
            if kind in _LASTING and (held.key, offset) in self.done:
                self._find(f"offset {offset} of {held.key} is accepted twice")
            if kind in _LASTING:
                self.done.add((held.key, offset))
            if kind == AcknowledgeType.REJECT:
                self._rejected.add((held.key, offset))

    def never_done(self, key: SharePartitionKey, end_offset: int, limit: int) -> list[int]:
        """Records that nobody accepted, and that were not delivered as often as they might be."""
        return [
            offset
            for offset in range(end_offset)
            if (key, offset) not in self.asked and self.counts.get((key, offset), 0) < limit
        ]

    def needs_dead_letter(self, key: SharePartitionKey, offset: int) -> bool:
        """Of a record before the start offset."""
        return (key, offset) in self._rejected or (key, offset) not in self._accepted


def _kinds(asked: Sequence[Acknowledgement]) -> Mapping[int, int]:
    return {
        offset: types[(offset - first) % len(types)]
        for first, last, types in asked
        for offset in range(first, last + 1)
    }
