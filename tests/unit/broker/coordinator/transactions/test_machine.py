"""What producers with a transactional id may do in which state, and what they are answered: `machine.txt`.

`machine.txt` holds with a restart before each command too; `unconfirmed.txt` is about what one replaces.
"""

from pathlib import Path

import pytest

from tests.scripts import Case, cases
from tests.unit.broker.coordinator.transactions.site import TIMEOUT_MS, Site
from tidelog.broker.coordinator.decision import Decision
from tidelog.broker.coordinator.transactions.records import TransactionRecord
from tidelog.broker.coordinator.transactions.transaction import (
    LAST_EPOCH,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    Producer,
)
from tidelog.protocol.types import TopicPartition

_FOLDER = Path(__file__).parent


class Script:
    """The commands. A producer is `id:epoch`, its last epoch `last`; a partition is `topic-index`."""

    def __init__(self) -> None:
        self.site = Site()

    def initialize(self, name: str, *words: str) -> str:
        """Words: the expected producer, `timeout=MS`, `two-phase`, `keep`, `kept`: both."""
        expected, more = NO_PRODUCER, {"timeout_ms": TIMEOUT_MS}
        for word in words:
            if word.startswith("timeout="):
                more["timeout_ms"] = int(word.removeprefix("timeout="))
            elif ":" in word:
                expected = _producer(word)
            else:
                more |= {"two-phase": _TWO_PHASE, "keep": _KEEP, "kept": _TWO_PHASE | _KEEP}[word]
        answer = self.site.initialize(name, expected, **more)
        if answer is None:
            return self._shown(name, "aborts first")
        kept = "" if answer.kept == NO_PRODUCER else f" keeps {_text(answer.kept)}"
        return self._shown(name, f"{_text(answer.client)}{kept}")

    def begin_many(self, count: str) -> None:
        for number in range(int(count)):
            self.site.begin(f"id-{number:03}")

    def add(self, name: str, client: str, *partitions: str) -> str:
        self.site.add(_producer(client), *map(_partition, partitions), name=name)
        return self._shown(name)

    def add_unconfirmed(self, name: str, client: str, *partitions: str) -> str:
        self.site.run(self.site.machine.add_partitions(name, _producer(client), map(_partition, partitions)))
        return self._shown(name)

    def confirm(self, name: str, client: str, *partitions: str) -> None:
        self.site.machine.confirm(name, _producer(client), list(map(_partition, partitions)))

    def permits(self, name: str, client: str, partition: str) -> str:
        return self.site.machine.permits(name, _producer(client), _partition(partition)).name

    def end(self, name: str, client: str, outcome: str, version: str = "2") -> str:
        answer = self.site.end(_producer(client), outcome == "commit", int(version), name)
        return self._shown(name, _text(answer))

    def write_markers(self, name: str) -> str:
        before = len(self.site.markers)
        self.site.finish(name)
        written = (
            f"{'commit' if is_commit else 'abort'} {_text(producer)} {partition.topic}-{partition.partition}"
            for producer, is_commit, partition in self.site.markers[before:]
        )
        return self._shown(name, *written)

    def markers_written(self, name: str, producer: str) -> str:
        """Of this producer, which may be one of an earlier decision."""
        self.site.run(self.site.machine.complete(name, _producer(producer)))
        return self._shown(name)

    def exhaust(self, name: str) -> str:
        """Give the client of an id the last epoch that a client may have."""
        held = self.site.held(name)
        record = TransactionRecord(
            name, held._replace(producer=Producer(held.producer.producer_id, LAST_EPOCH - 1))
        )
        self.site.run(lambda now_ms: Decision((record,), None))
        return self._shown(name)

    def restart(self) -> None:
        self.site.restart()

    def wait(self, milliseconds: str) -> None:
        self.site.now_ms += int(milliseconds)

    def abort_timed_out(self) -> str:
        names = list(self.site.machine.active_ids())
        aborted = self.site.run(lambda now_ms: self.site.machine.abort_timed_out(names, now_ms))
        return "\n".join(self._shown(name) for name in aborted)

    def forget_idle(self) -> str:
        names = list(self.site.machine.ids())
        self.site.run(lambda now_ms: self.site.machine.forget_idle(names, now_ms))
        return self.ids()

    def ids(self) -> str:
        names = list(self.site.machine.ids())
        return " ".join(names if len(names) < 5 else (names[0], names[1], f"{len(names) - 2} more"))

    def describe(self, name: str) -> str:
        self.site.run(lambda now_ms: Decision((), self.site.machine.describe(name)))
        return self._shown(name)

    def records(self) -> str:
        return str(len(self.site.log))

    def ids_given(self) -> str:
        return str(self.site.next_id - 100)

    def bytes(self) -> str:
        return str(self.site.machine.held_bytes)

    def allow_bytes(self, more: str) -> None:
        """More than are held now."""
        self.site.limits = self.site.limits._replace(max_bytes=self.site.machine.held_bytes + int(more))
        self.site.machine.limits = self.site.limits

    def _shown(self, name: str, *before: str) -> str:
        """The state of an id as it is written."""
        held = self.site.machine.get(name)
        if held is None:
            return "\n".join((*before, f"{name}: unknown"))
        state = [held.state.label, _text(held.producer)]
        if held.client != held.producer:
            state.append(f"then {_text(held.client)}")
        if held.timeout_ms == NO_TIMEOUT_MS:
            state.append("without timeout")
        state += sorted(f"{topic}-{index}" for topic, index in held.partitions)
        return "\n".join((*before, f"{name}: {' '.join(state)}"))


_TWO_PHASE = {"has_two_phase_commit": True}
_KEEP = {"keeps_prepared": True}


def _producer(word: str) -> Producer:
    producer_id, epoch = word.split(":")
    numbers = {"last": LAST_EPOCH - 1, "fenced": LAST_EPOCH}
    return Producer(int(producer_id), numbers.get(epoch) or int(epoch))


def _text(producer: Producer) -> str:
    names = {LAST_EPOCH - 1: "last", LAST_EPOCH: "fenced"}
    return f"{producer.producer_id}:{names.get(producer.epoch, producer.epoch)}"


def _partition(word: str) -> TopicPartition:
    topic, index = word.split("-")
    return TopicPartition(topic, int(index))


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
@cases(_FOLDER / "machine.txt")
async def test_machine(case: Case, restarts: bool, rewrite: bool) -> None:
    script = Script()
    await case.play(script, rewrite, script.restart if restarts else lambda: None)


@cases(_FOLDER / "unconfirmed.txt")
async def test_unconfirmed(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
