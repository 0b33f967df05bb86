"""What is held, and what each answer of the broker does to it: `held.txt`."""

from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from tests.scripts import Case, cases
from tidelog.client import AcknowledgeType, TopicPartition
from tidelog.client.share.held import GAP, HeldPartition
from tidelog.client.share.session import Batch, SharePartition
from tidelog.protocol.errors import ErrorCode

LOCK = 30.0


class Script:
    """The commands. Offsets are `1 2` or `1-9`; a time is in seconds, a lock lasts 30."""

    def __init__(self) -> None:
        partition = TopicPartition("t", 0), SharePartition(UUID(int=7), 0)
        self.held = HeldPartition(*partition, 1, lambda: None)

    def acquire(self, *words: str) -> None:
        """From time 0 on, or locked `until=` another time."""
        ends = [float(word[6:]) for word in words if word.startswith("until=")]
        self.held.acquired(_offsets(word for word in words if "=" not in word), *(ends or [LOCK]))

    def read(self, *words: str) -> None:
        for offset in _offsets(words):
            self.held.returned(offset)

    def hold(self, *words: str) -> None:
        self.acquire(*words)
        self.read(*words)

    def put_back(self, offset: str) -> None:
        self.held.not_returned(int(offset))

    def begin(self, offset: str) -> None:
        """To process it."""
        self.held.begin(int(offset))

    def end(self, offset: str) -> None:
        self.held.end(int(offset))

    def pass_over(self, *words: str) -> None:
        self.held.passed_over(_offsets(words), GAP)

    def acknowledge(self, kind: str, *words: str) -> str | None:
        """The offsets of which that was too late."""
        late = [each for each in _offsets(words) if not self.held.acknowledge(each, AcknowledgeType[kind])]
        return " ".join(("too late:", *map(str, late))) if late else None

    def send(self) -> str:
        return _text(self.held.take()) if self.held.has_to_send() else "nothing to send"

    def renew(self, now: str, who: str = "consumer") -> str:
        """Send what is due, of which the application asked for a part or for all."""
        renews = who == "consumer"
        if not self.held.has_renewals(float(now), LOCK, renews=renews):
            return "nothing is due"
        return _text(self.held.take_renewals(float(now), LOCK, renews=renews))

    def next(self, who: str = "consumer") -> str:
        return str(self.held.next_at(LOCK, renews=who == "consumer"))

    def answer(self, code: str = "NONE", until: str = "60") -> str:
        settled = self.held.answered(ErrorCode[code], float(until))
        refused = f", refused {' '.join(map(str, settled.refused))}" * bool(settled.refused)
        return f"done {' '.join(map(str, settled.done)) or '-'}{refused}"

    def lose(self) -> None:
        """The session with the broker ends."""
        self.held.session_ended()

    def expire(self, now: str) -> str:
        return f"expired: {' '.join(map(str, self.held.expire(float(now)))) or '-'}"

    def expire_many(self, now: str) -> str:
        return str(len(self.held.expire(float(now))))

    def give_up(self) -> str:
        return f"lost: {' '.join(map(str, sorted(self.held.give_up())))}"

    def state(self) -> str:
        unsettled = " ".join(map(str, sorted(self.held.unsettled())))
        unread = " ".join(str(each) for each in range(10) if self.held.is_unread(each))
        idle = ", idle" * self.held.is_idle + ", to be sent at once" * (not self.held.is_last)
        return f"{self.held.open_count} open, unread {unread or '-'}, unsettled {unsettled or '-'}{idle}"


def _offsets(words: Iterable[str]) -> list[int]:
    ranges = (word.partition("-") for word in words)
    return [each for first, _, last in ranges for each in range(int(first), int(last or first) + 1)]


def _text(batches: list[Batch]) -> str:
    return "\n".join(
        f"{first}-{last} {' '.join('GAP' if each == GAP else AcknowledgeType(each).name for each in types)}"
        for first, last, types in batches
    )


@cases(Path(__file__).parent / "held.txt")
async def test_held(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
