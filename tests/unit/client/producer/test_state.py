"""What a producer sends, and what each answer means for a batch and those behind it: `state.txt`."""

from pathlib import Path

from tests.scripts import Case, cases
from tidelog.client import TopicPartition
from tidelog.client.producer.batch import Identity, ProducerBatch
from tidelog.client.producer.state import ProducerState
from tidelog.client.producer.verdicts import Action, Verdict
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import batch_crc_is_valid, read_batch_header
from tidelog.protocol.types import MAX_SEQUENCE

VIA, ELSEWHERE = object(), object()


class Script:
    """The commands. A batch has a letter; its partition is 0, or 1 for a capital letter.

    After a command that concerns a partition come its batches in flight, as `name identity/sequence`, with
    `!` while they are on the wire."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.state.set_producer_id(7, 0)
        self.batches: dict[str, ProducerBatch] = {}

    def producer(self, kind: str, lease_ms: str = "") -> None:
        """Begin as another kind: without an id, transactional, in a session, not idempotent."""
        self.state = ProducerState(
            is_idempotent=kind != "plain", lease_ms=int(lease_ms) if lease_ms else None
        )
        if kind not in ("new", "plain"):
            self.state.set_producer_id(7, 0)
        self.state.is_transactional = kind == "transactional"
        self.state.is_session = kind == "session"

    def set_id(self, identity: str) -> None:
        self.state.set_producer_id(*map(int, identity.split(":")))

    def identity(self) -> str:
        return "needed" if self.state.needs_producer_id else _identity(self.state.identity)

    def resume(self, partition: str, identity: str, next_sequence: str) -> None:
        producer_id, epoch = map(int, identity.split(":"))
        self.state.resume(_key(partition), Identity(producer_id, epoch), int(next_sequence))

    def at_the_last_sequence(self) -> None:
        """Let partition 0 have stored a batch that ends before the last sequence."""
        before = self.state.take_new(_batch("x", 1, 0), VIA)
        self.state._partitions[before.key].next_sequence = MAX_SEQUENCE
        before.base_sequence = MAX_SEQUENCE - 1
        self.state.on_answer(before, ErrorCode.NONE)

    def send(self, *words: str) -> str:
        """Words: `name=records`, `deadline=MS`, `at=MS`."""
        given = {name: int(value) for name, value in (word.split("=") for word in words)}
        deadline_ms, now_ms = given.pop("deadline", 1_000), given.pop("at", 0)
        for name, records in given.items():
            made = self.batches[name] = _batch(name, records, deadline_ms)
            try:
                self.state.take_new(made, VIA, now_ms)
            except RuntimeError as error:
                return str(error).rsplit(": ")[-1]
            made.encode(Compression.NONE)
        return self._flight(made.key)

    def accepts(self, partition: str, via: str = "") -> str:
        return _yes(self.state.accepts_new(_key(partition), ELSEWHERE if via else VIA))

    def answer(self, name: str, code: str = "NONE", offset: str = "-1") -> str:
        one = self.batches[name]
        try:
            verdict = self.state.on_answer(one, ErrorCode[code], base_offset=int(offset))
        except RuntimeError as error:
            return str(error).split(", but ")[-1]
        return "\n".join((_verdict(verdict), self._flight(one.key)))

    def lose(self, *names: str) -> str:
        told = [_verdict(self.state.on_lost(self.batches[name], 0)) for name in names]
        return "\n".join((*told, self._flight(self.batches[names[0]].key)))

    def lose_until(self, name: str, retry_at_ms: str) -> str:
        return _verdict(self.state.on_lost(self.batches[name], int(retry_at_ms)))

    def not_sent(self, name: str) -> str:
        told = _verdict(self.state.on_not_sent(self.batches[name], 0))
        return f"{told} attempts {self.batches[name].attempts}"

    def retry(self, partition: str = "0", now_ms: str = "0") -> str:
        again = self.state.take_retry(_key(partition), VIA, int(now_ms))
        return "nothing" if again is None else self._flight(_key(partition))

    def retry_due(self) -> str:
        return f"{self.state.retry_due_ms(_key('0'))} ms"

    def split(self, name: str) -> str:
        parts = self.batches[name].split()
        self.batches.update((f"{name}{number}", part) for number, part in enumerate(parts))
        self.state.split(self.batches[name], parts)
        for part in parts:
            part.encode(Compression.NONE)
        return self._flight(parts[0].key)

    def expire(self, now_ms: str) -> str:
        told = [_verdict(each) for each in self.state.expire(_key("0"), int(now_ms))]
        return "\n".join((*told, self._flight(_key("0"))))

    def close(self) -> str:
        return "\n".join(
            f"{self._name(each.batch)} {_verdict(each)}" for each in self.state.abandon_all("closed")
        )

    def renew(self, now_ms: str) -> str:
        self.state.renew(_key("0"), int(now_ms))
        return self.identity()

    def next(self, partition: str) -> str:
        identity, sequence = self.state.next_sequence(_key(partition))
        return f"{_identity(identity)}/{sequence}"

    def bytes_of(self, name: str) -> str:
        """What the batch's bytes say of its producer."""
        data = self.batches[name].encode(Compression.NONE)
        header = read_batch_header(data)
        assert batch_crc_is_valid(data, header)
        return f"{header.producer_id}:{header.producer_epoch}/{header.base_sequence}"

    def _flight(self, key: TopicPartition) -> str:
        told = [
            f"{self._name(each)} {_identity(each.identity)}/{each.base_sequence}{'!' * each.is_on_wire}"
            for each in self.state.in_flight(key)
        ]
        return ", ".join(told) or "none in flight"

    def _name(self, one: ProducerBatch) -> str:
        return next(name for name, each in self.batches.items() if each is one)


def _batch(name: str, records: int, deadline_ms: int) -> ProducerBatch:
    made = ProducerBatch(_key("1" if name.isupper() else "0"), 10_000, 0, deadline_ms)
    for number in range(records):
        made.builder.append(1_000, None, b"%d" % number)
    return made


def _key(partition: str) -> TopicPartition:
    return TopicPartition("t", int(partition))


def _identity(identity: Identity | None) -> str:
    return "none" if identity is None else f"{identity.producer_id}:{identity.epoch}"


def _verdict(verdict: Verdict) -> str:
    error = verdict.error
    told = [verdict.action.name]
    if verdict.action is Action.STORED:
        told.append(f"at {verdict.base_offset}")
    if error is not None:
        told.append(f"{type(error).__name__}: {str(error).split('. ')[0]}")
    return " ".join(told)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


@cases(Path(__file__).parent / "state.txt")
async def test_state(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
