"""The checker finds each kind of damage that is planted, and nothing where there is none: `checker.txt`."""

from collections.abc import Sequence
from pathlib import Path

from faults import checker
from faults.checker import Finding, Ledger, Mark, Stored, check, check_sequences, compare
from tests.scripts import Case, cases
from tidelog.protocol.records import BatchHeader


class Script:
    """The commands. A fate is the offset of an acknowledgement, or the name of another one."""

    def __init__(self) -> None:
        self.ledgers: dict[int, Ledger] = {}
        self.logs: dict[int, list[Stored]] = {}

    def sent(self, *words: str) -> None:
        """One record for each fate; words: `writer=`, `partition=`."""
        options = dict(word.split("=") for word in words if "=" in word)
        writer, partition = int(options.get("writer", 0)), int(options.get("partition", 0))
        ledger = self.ledgers.setdefault(writer, Ledger(writer, f"writer {writer}"))
        for word in words:
            if "=" not in word:
                fate = int(word) if word.isdigit() else getattr(checker, word)
                ledger.record_outcome(partition, ledger.sent(partition), fate)
        self.logs.setdefault(partition, [])

    def take_back(self) -> None:
        """A record that writer 0 sent."""
        self.ledgers[0].sent(0)
        self.ledgers[0].taken_back(0)

    def close(self) -> None:
        self.ledgers[0].close()

    def stored(self, *words: str) -> str:
        """Records of partition 0 from offset 0 on, `W/P/C` of another writer and partition, `-` for a hole,
        `x` for bytes that are no record; then all findings."""
        self.logs[0] = _log(words)
        return _text(check(list(self.ledgers.values()), self.logs))

    def stored_in(self, partition: str, *words: str) -> None:
        self.logs[int(partition)] = _log(words)

    def read(self, *words: str) -> str:
        """What another reader saw of what was stored last."""
        return _text(compare(0, "files", _log(words), self.logs[0]))

    def batches(self, *words: str) -> str:
        """`ID:EPOCH/SEQUENCE*COUNT`, one behind the other."""
        found, offset = [], 0
        for word in words:
            sender, _, count = word.partition("*")
            producer, _, sequence = sender.partition("/")
            number, _, epoch = producer.partition(":")
            records = int(count or 1)
            numbers = (int(number), int(epoch), int(sequence), records)
            found.append(BatchHeader(offset, 0, 0, 2, 0, 0, records - 1, 0, 0, *numbers))
            offset += records
        return _text(check_sequences(0, found))


def _log(words: Sequence[str]) -> list[Stored]:
    return [
        Stored(offset, None if word == "x" else Mark(*map(int, f"0/0/{word}".split("/")[-3:])))
        for offset, word in enumerate(words)
        if word != "-"
    ]


def _text(findings: list[Finding]) -> str:
    return "\n".join(f"{each.kind.name}: {each.text}" for each in findings) or "nothing"


@cases(Path(__file__).parent / "checker.txt")
async def test_checker(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
