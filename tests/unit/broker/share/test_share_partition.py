"""What a share partition does with each record, and what that costs: `share_partition.txt`.

`tests/property` compares it with a model.
"""

from pathlib import Path

from tests.scripts import Case, cases
from tidelog.broker.coordinator.share_states.state import StateBatch
from tidelog.broker.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Limits,
    RecordState,
    SharePartition,
    Update,
)
from tidelog.protocol.errors import ApiError

MILLION = 1_000_000
LIMITS = Limits(max_delivery_count=5, max_record_locks=2 * MILLION, lock_duration_ms=100)


class Script:
    """The commands. Offsets are `3` or `0..3`, times in milliseconds; a lock lasts 100."""

    def __init__(self) -> None:
        self.partition = SharePartition(0, (), LIMITS)
        self.updates: list[Update] = []

    def limit(self, *words: str) -> None:
        """Other limits: `max_record_locks=2`."""
        values = (word.split("=") for word in words)
        self.partition.limits = self.partition.limits._replace(**{name: int(each) for name, each in values})

    def stored(self, start: str, *batches: str) -> None:
        """It begins with these: `4..6:AVAILABLE:2`."""
        parts = (each.split(":") for each in batches)
        states = [
            StateBatch(*_range(where), RecordState[state] if state.isalpha() else int(state), int(count))
            for where, state, count in parts
        ]
        self.partition = SharePartition(int(start), states, self.partition.limits)

    def acquire(self, member: str, read: str, batches: str, *words: str) -> str:
        """What was read, and in which batches: `0..1,2..3`; or `0..9/ 2` for batches of two. Words: `most=`,
        `answer=` records in a batch of the answer, `strict`."""
        options = dict(word.split("=") for word in words if "=" in word)
        first, last = _range(read)
        if "/" in read:
            found = [(at, at + int(batches) - 1) for at in range(first, last + 1, int(batches))]
        else:
            found = [_range(each) for each in batches.split(",")]
        most, size = int(options.get("most", 2 * MILLION)), int(options.get("answer", 2 * MILLION))
        strict = "strict" in words
        taken = self.partition.acquire(
            member, first, last + 1, found, most, is_strict=strict, batch_size=size, now_ms=0
        )
        return _lines(f"{first}-{last} delivery {count}" for first, last, count in taken)

    def acknowledge(self, member: str, *words: str) -> str:
        """`0..3:ACCEPT` or `0..1:ACCEPT,RELEASE`; also numbers, or nothing; what is to be stored."""
        asked, before = [], list(self.partition.runs())
        for where, _, kinds in (word.partition(":") for word in words):
            kinds_of = [
                AcknowledgeType[each] if each.isalpha() else int(each) for each in kinds.split(",") if each
            ]
            asked.append(Acknowledgement(*_range(where), kinds_of))
        try:
            self.updates.append(self.partition.acknowledge(member, asked, 50))
        except ApiError:
            assert list(self.partition.runs()) == before
            raise
        return _stored(self.updates[-1])

    def after(self, *numbers: str) -> str:
        """Start and completed records once these updates are stored, by default all."""
        updates = [self.updates[int(each)] for each in numbers] or self.updates
        return "start {}, complete {}".format(*self.partition.after(updates))

    def settle(self) -> None:
        for each in self.updates:
            self.partition.settle(each)
        self.updates.clear()

    def undo(self) -> None:
        self.partition.undo(self.updates.pop())

    def expire(self, now: str) -> str:
        return _lines(f"{first}-{end - 1}" for first, end, *_ in self.partition.expire(int(now)).before)

    def log_begins(self, offset: str) -> None:
        self.partition.log_begins_at(int(offset))

    def dead_letters(self, where: str) -> str:
        found = self.partition.dead_letters(*_range(where))
        return _lines("rejected" if each.is_rejected else "delivered too often" for each in found)

    def runs(self) -> str:
        ends = f"start {self.partition.start_offset}, next {self.partition.next_fetch_offset}"
        counts = f"end {self.partition.end_offset}, in flight {self.partition.in_flight_count}"
        runs = [f"{first}-{end - 1} {run.state.name}" for first, end, run in self.partition.runs()]
        return _lines([f"{ends}, {counts}", *runs[:5]]) + f"\n{len(runs)} runs" * (len(runs) > 5)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.split("/")[0].partition("..")
    return int(first), int(last or first)


def _stored(update: Update) -> str:
    shown = [
        f"{each.first}-{each.last} state {each.state} delivery {each.delivery_count}"
        for each in update.batches
    ]
    return _lines(shown[:5]) + f"\n{len(shown)} batches" * (len(shown) > 5)


def _lines(lines: object) -> str:
    return "\n".join(lines) or "nothing"  # type: ignore[arg-type]


@cases(Path(__file__).parent / "share_partition.txt")
async def test_share_partition(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


def test_every_second_record_is_a_run_of_its_own_until_the_others_follow() -> None:
    partition = SharePartition(0, (), LIMITS)
    options = {"is_strict": False, "batch_size": 1, "now_ms": 0}
    partition.acquire("m", 0, 10_000, [(0, 9_999)], 10_000, **options)  # type: ignore[arg-type]
    types = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE] * 5_000
    update = partition.acknowledge("m", [Acknowledgement(0, 9_999, types)], 0)
    assert partition.after([update]) == (1, 4_999)
    assert len(update.batches) == 10_000
    partition.settle(update)
    assert partition.run_count == 9_999
    partition.acquire("m", 1, 10_000, [(1, 9_999)], 10_000, **options)  # type: ignore[arg-type]
    odd = [Acknowledgement(offset, offset, [1]) for offset in range(1, 10_000, 2)]
    partition.settle(partition.acknowledge("m", odd, 0))
    assert (partition.start_offset, partition.run_count) == (10_000, 0)
