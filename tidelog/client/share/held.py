"""The records of one partition that this consumer holds, and their acknowledgements.

Owns: what is held and not acknowledged, what is decided and not sent, what was sent and not answered.
Invariants:
- an offset is in one of these at a time. It leaves them when the broker has answered, or its lock ends;
- a group of acknowledgements that the broker refuses because of one of them is sent again in halves: only
  those that it refuses alone have failed;
- a lost answer decides nothing: the same is sent again, and the broker says whether the lock still holds;
- with a session end the locks of its records, as far as one knows: the application gets none of them that it
  has not got, and none again that it has;
- an acknowledgement after the end of the lock is sent too: the broker knows whether another member has the
  record;
- locks are renewed when half of their time has passed: those of records that are processed, and of records
  that the application has not got yet. Those of records that it got and does not process end.

Times are in seconds of one clock. Pure. Source: KIP-932, KIP-1222, Kafka's SharePartition.acknowledge.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.client.share.session import Batch, SharePartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import TopicPartition

GAP: Final = 0
"""The type of an offset that holds no record: compaction removed it, or it is a marker of a transaction."""
_MOST_ATTEMPTS: Final = 5
_MOST_ENDED: Final = 10_000
_GONE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""The broker does not lead the partition any more, so its locks are gone."""

_OF_ONE: Final = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
"""One of the acknowledgements is refused, and with it all others of the partition in the request."""


class AcknowledgeType(IntEnum):
    """What becomes of a record. RENEW begins its lock anew, and the record stays with the consumer."""

    ACCEPT = 1
    """It was processed: no member gets it again."""
    RELEASE = 2
    """It was not processed: a member gets it again, unless it was delivered as often as the group allows."""
    REJECT = 3
    """It cannot be processed: no member gets it again, and it goes to the group's dead letters if it has
    such a topic."""
    RENEW = 4


class Settled(NamedTuple):
    """What an answer decided: offsets that the broker acknowledged, and that it refused."""

    done: list[int]
    refused: list[int]


class HeldPartition:
    """Those of partition `key` that broker `node_id` gave. `on_change` is called if there is something to
    send."""

    __slots__ = (
        "_attempts", "_decided", "_ended", "_got", "_open", "_processed", "_renewal_retries", "_retries",
        "_sent", "_unrenewed", "_wanted_renewals", "key", "node_id", "on_change", "share_partition",
    )  # fmt: skip

    def __init__(
        self,
        key: TopicPartition,
        share_partition: SharePartition,
        node_id: int,
        on_change: Callable[[], None],
    ) -> None:
        self.key = key
        self.share_partition = share_partition
        self.node_id = node_id
        self.on_change = on_change
        # The end of the lock of each offset that is not acknowledged.
        self._open: dict[int, float] = {}
        # Those of them that the application got, and that it processes.
        self._got: set[int] = set()
        self._processed: set[int] = set()
        self._wanted_renewals: set[int] = set()
        # Renewals that were refused together, and offsets whose renewal was refused alone.
        self._renewal_retries: list[list[int]] = []
        self._unrenewed: set[int] = set()
        # Those that the application got, and whose lock ended: the newest ones.
        self._ended: dict[int, None] = {}
        self._decided: dict[int, int] = {}
        # Groups that were refused or not answered, and are sent again.
        self._retries: list[dict[int, int]] = []
        self._sent: dict[int, int] = {}
        self._attempts = 0

    def __repr__(self) -> str:
        return f"<{self.key.topic}-{self.key.partition}: {len(self._open)} records held>"

    # What the application does

    def acquired(self, offsets: Iterable[int], lock_end: float) -> None:
        """The broker gave these records to this consumer. The application does not get again what it has
        since before the session ended: it acknowledges that, or the acknowledgement is sent again."""
        unsettled = self.unsettled()
        for offset in offsets:
            if offset not in unsettled:
                self._open[offset] = lock_end
            self._unrenewed.discard(offset)

    def passed_over(self, offsets: Iterable[int], kind: int) -> None:
        """Acknowledge offsets that the application does not get."""
        for offset in offsets:
            if self._open.pop(offset, None) is not None:
                self._decided[offset] = kind
        self.on_change()

    def returned(self, offset: int) -> None:
        """The application has the record now."""
        self._got.add(offset)

    def not_returned(self, offset: int) -> None:
        """The application has not got the record after all."""
        self._got.discard(offset)

    def is_unread(self, offset: int) -> bool:
        """Whether the record is held, and the application has not got it."""
        return offset in self._open and offset not in self._got

    def awaits_acknowledgement(self, offset: int) -> bool:
        """Whether the application did not acknowledge the record, though its lock may have ended."""
        return offset in self._open or offset in self._ended

    def begin(self, offset: int) -> None:
        """The application processes the record: its lock is renewed."""
        self._processed.add(offset)

    def end(self, offset: int) -> None:
        """The application does not process the record any more."""
        self._processed.discard(offset)

    def acknowledge(self, offset: int, kind: AcknowledgeType) -> bool:
        """False if it was acknowledged already."""
        if offset not in self._open and offset not in self._ended:
            return False
        self._ended.pop(offset, None)
        if kind is AcknowledgeType.RENEW:
            self._wanted_renewals.add(offset)
        else:
            self._forget(offset)
            self._decided[offset] = kind
        self.on_change()
        return True

    # Facts

    @property
    def open_count(self) -> int:
        """How many records are held and not acknowledged."""
        return len(self._open)

    @property
    def is_processing(self) -> bool:
        return bool(self._processed)

    def unsettled(self) -> set[int]:
        """The offsets whose acknowledgements were not answered."""
        return {*self._decided, *_parted(self._sent)[1]}.union(*self._retries)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, and nothing waits for an answer."""
        return not self._open and not self.unsettled()

    @property
    def has_ended(self) -> bool:
        """Whether the application has records whose lock ended."""
        return bool(self._ended)

    def has_to_send(self) -> bool:
        """Whether acknowledgements wait to be sent. Those of renewals are not among them."""
        return bool(self._decided or self._retries)

    def has_renewals(self, now: float, lock_seconds: float, *, renews: bool) -> bool:
        """Whether a lock must be renewed now: by the application's wish or, with `renews`, by its time."""
        return bool(
            self._wanted_renewals or self._renewal_retries or (renews and self._due(now, lock_seconds))
        )

    @property
    def is_last(self) -> bool:
        """Whether one request is enough for everything that waits to be sent."""
        return len(self._retries) + bool(self._decided) <= 1

    def next_at(self, lock_seconds: float, *, renews: bool) -> float | None:
        """When the next lock must be renewed, or ends; None if nothing is held."""
        early = lock_seconds / 2 if renews else 0.0
        return min(
            (end - early if self._is_renewed(offset) else end for offset, end in self._open.items()),
            default=None,
        )

    # Requests

    def take(self) -> list[Batch]:
        """What to send now: one group of acknowledgements."""
        if self._retries:
            self._sent = self._retries.pop(0)
        else:
            self._sent, self._decided = self._decided, {}
        return batches_of(self._sent)

    def take_renewals(self, now: float, lock_seconds: float, *, renews: bool) -> list[Batch]:
        """As `take`, but the locks to renew."""
        if self._renewal_retries:
            self._sent = dict.fromkeys(self._renewal_retries.pop(0), AcknowledgeType.RENEW)
        else:
            due = self._due(now, lock_seconds) if renews else []
            self._sent = dict.fromkeys(self._wanted_renewals.union(due), AcknowledgeType.RENEW)
            self._wanted_renewals = set()
        return batches_of(self._sent)

    def answered(self, code: ErrorCode, lock_end: float) -> Settled:
        """The answer to what was taken. Renewed locks end at `lock_end`."""
        sent, self._sent = self._sent, {}
        self._attempts += 1
        if code is ErrorCode.NONE:
            self._attempts = 0
            renewed, done = _parted(sent)
            self._open |= dict.fromkeys(renewed & self._open.keys(), lock_end)
            for offset in done:
                # An acknowledgement that was sent again may have met the next lock of this consumer.
                self._forget(offset)
            return Settled(done, [])
        if code in _OF_ONE and len(sent) > 1:
            offsets = sorted(sent)
            half = len(offsets) // 2
            for part in (offsets[:half], offsets[half:]):
                if sent[part[0]] == AcknowledgeType.RENEW:
                    self._renewal_retries.append(part)
                else:
                    self._retries.append({each: sent[each] for each in part})
            return Settled([], [])
        if code.retriable and code not in _GONE and self._attempts < _MOST_ATTEMPTS:
            self._retries.append(sent)
            return Settled([], [])
        self._attempts = 0
        renewals, refused = _parted(sent)
        # Their locks may still hold: the broker says so when they are acknowledged.
        self._unrenewed |= renewals & self._open.keys()
        for offset in refused:
            self._forget(offset)
        return Settled(
            [each for each in refused if sent[each] == GAP], [each for each in refused if sent[each] != GAP]
        )

    def session_ended(self) -> None:
        """There is no answer to what was taken. The application does not get what it has not got yet: the
        broker may have given it to another member."""
        _, offsets = _parted(self._sent)
        if offsets:
            self._retries.append({offset: self._sent[offset] for offset in offsets})
        self._sent = {}
        for offset in self._open.keys() - self._got:
            self._forget(offset)

    def expire(self, now: float) -> list[int]:
        """Forget records whose lock has ended. Returns those that the application has."""
        ended = [offset for offset, end in self._open.items() if end <= now]
        got = [offset for offset in ended if offset in self._got]
        for offset in ended:
            self._forget(offset)
        self._ended |= dict.fromkeys(got)
        for offset in list(self._ended)[:-_MOST_ENDED]:
            del self._ended[offset]
        return got

    def give_up(self) -> list[int]:
        """The broker cannot be asked any more: nothing is held. Returns what was not acknowledged."""
        lost = sorted(self.unsettled())
        self._ended |= dict.fromkeys(self._got & self._open.keys())
        self._got.clear()
        self._open, self._decided, self._retries, self._sent = {}, {}, [], {}
        return lost

    def _forget(self, offset: int) -> None:
        self._open.pop(offset, None)
        self._got.discard(offset)
        self._wanted_renewals.discard(offset)
        self._unrenewed.discard(offset)

    def _is_renewed(self, offset: int) -> bool:
        is_wanted = offset in self._processed or offset not in self._got
        return is_wanted and offset not in self._unrenewed

    def _due(self, now: float, lock_seconds: float) -> list[int]:
        soon = now + lock_seconds / 2
        is_sent = self._sent
        return [
            offset
            for offset, end in self._open.items()
            if end <= soon and self._is_renewed(offset) and offset not in is_sent
        ]


def batches_of(acknowledged: dict[int, int]) -> list[Batch]:
    """Types by offset as batches: offsets without a gap between them are one."""
    batches: list[Batch] = []
    for offset in sorted(acknowledged):
        if batches and batches[-1].last_offset == offset - 1:
            first, _, kinds = batches[-1]
            batches[-1] = Batch(first, offset, kinds)
            kinds.append(acknowledged[offset])
        else:
            batches.append(Batch(offset, offset, [acknowledged[offset]]))
    return [each if len(set(each.types)) > 1 else each._replace(types=each.types[:1]) for each in batches]


def _parted(sent: dict[int, int]) -> tuple[set[int], list[int]]:
    """The offsets whose locks are renewed, and those that are acknowledged."""
    renewed = {offset for offset, kind in sent.items() if kind == AcknowledgeType.RENEW}
    return renewed, [offset for offset in sent if offset not in renewed]
