"""ProducerStates and RefusedBatches against a short model, over producers, epochs, retries, refusals, the
wrap, expiry and restarts."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.unit.broker.storage.support import header
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import Append, Duplicate, ProducerRules, Refusal, Verdict
from tidelog.broker.storage.refused_batches import MOST_BATCHES, REMEMBERED_MS, RefusedBatches
from tidelog.broker.storage.snapshot import load_newest, write_snapshot
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import MAX_SEQUENCE

RING = MAX_SEQUENCE + 1
EXPIRATION_MS = 1000
LIMIT = 4
ISSUED = 6


class Model:
    """The rules in the plainest words: sequences are listed, not computed."""

    def __init__(self) -> None:
        self.producers: dict[int, tuple[int, list[tuple[int, int, int]], int]] = {}
        self.order: list[int] = []
        self.evicted: dict[int, int] = {}
        self.refused: dict[tuple[int, int], dict[int, tuple[int, int, int]]] = {}

    def answer(self, pid: int, epoch: int, first: int, count: int, code: int, now_ms: int) -> int:
        """What a batch gets that is refused with this code by itself."""
        known = self.refused.setdefault((pid, epoch), {})
        if code in (45, 59) and (expected := self.expected(pid, epoch)) is not None:
            codes = []
            while expected != first:
                missing = known.get(expected)
                if missing is None or now_ms - missing[2] >= REMEMBERED_MS or len(codes) == len(known):
                    break
                codes.append(missing[1])
                expected = (expected + missing[0]) % RING
            if codes and expected == first:
                code = codes[0]
        known.pop(first, None)
        if code in RETRIED:
            known[first] = (count, code, now_ms)
            for oldest in list(known)[:-MOST_BATCHES]:
                del known[oldest]
        return code

    def expected(self, pid: int, epoch: int) -> int | None:
        if pid not in self.producers:
            return 0 if pid < ISSUED and epoch > self.evicted.get(pid, -1) else None
        stored_epoch, batches, _ = self.producers[pid]
        return (batches[-1][0] + batches[-1][1]) % RING if epoch == stored_epoch else 0

    def check(self, pid: int, epoch: int, first: int, count: int, rules: ProducerRules) -> object:
        if pid not in self.producers:
            if rules.reject_unknown_sequence and epoch <= self.evicted.get(pid, -1):
                return 59
            return 59 if rules.reject_unknown_sequence and (pid >= ISSUED or first != 0) else "append"
        stored_epoch, batches, _ = self.producers[pid]
        if epoch == stored_epoch:
            for batch_first, batch_count, base_offset in batches:
                if (batch_first, batch_count) == (first, count):
                    return ("duplicate", base_offset)
        if epoch < stored_epoch:
            return 47
        if epoch > stored_epoch:
            return "append" if first == 0 else 45
        last = (batches[-1][0] + batches[-1][1] - 1) % RING
        if first == (last + 1) % RING:
            return "append"
        behind = [(last - (first + i)) % RING < RING // 2 for i in range(count)]
        return 46 if all(behind) and rules.duplicate_below_window else 45

    def apply(self, pid: int, epoch: int, first: int, count: int, base_offset: int, now_ms: int) -> None:
        stored_epoch, batches, _ = self.producers.get(pid, (-1, [], 0))
        kept = batches[-4:] if epoch == stored_epoch else []
        if pid in self.order:
            self.order.remove(pid)
        elif len(self.order) == LIMIT:
            idle = self.order.pop(0)
            self.evicted[idle] = self.producers.pop(idle)[0]
        self.order.append(pid)
        self.producers[pid] = (epoch, [*kept, (first, count, base_offset)], now_ms)

    def expire(self, now_ms: int) -> None:
        for pid in [p for p in self.order if now_ms - self.producers[p][2] >= EXPIRATION_MS]:
            self.order.remove(pid)
            del self.producers[pid]


def outcome(verdict: Verdict) -> object:
    if isinstance(verdict, Append):
        return "append"
    if isinstance(verdict, Duplicate):
        return ("duplicate", verdict.base_offset)
    assert isinstance(verdict, Refusal)
    assert verdict.code in ErrorCode
    return int(verdict.code)


RETRIED = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
codes = st.sampled_from([*RETRIED, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE])
pids = st.integers(0, ISSUED + 1)
epochs = st.integers(0, 3)
counts = st.integers(1, 12)
starts = st.one_of(
    st.integers(0, 40), st.integers(MAX_SEQUENCE - 40, MAX_SEQUENCE), st.integers(0, MAX_SEQUENCE)
)


class ProducerStateMachine(RuleBasedStateMachine):
    @initialize(reject=st.booleans(), below_window=st.booleans())
    def start(self, reject: bool, below_window: bool) -> None:
        self.producer_rules = ProducerRules(reject, below_window, EXPIRATION_MS, LIMIT)
        self.machine = ProducerStates(self.producer_rules, lambda: ISSUED)
        self.model = Model()
        self.refused = RefusedBatches()
        self.end_offset = 0
        self.now_ms = 1_000_000
        self.clock_error_ms = 0
        self.machine.expire(self.clock_ms)

    @property
    def clock_ms(self) -> int:
        """What the broker's clock shows: it may have been set while the broker was down."""
        return self.now_ms + self.clock_error_ms

    def send(self, pid: int, epoch: int, first: int, count: int) -> None:
        sent = header(pid, epoch, first, count)
        expected = self.model.check(pid, epoch, first, count, self.producer_rules)
        verdict = self.machine.check(sent)
        assert outcome(verdict) == expected, (pid, epoch, first, count, verdict)
        if isinstance(verdict, Refusal):
            self.refuse(pid, epoch, first, count, verdict.code)
        if expected == "append":
            self.machine.apply(sent, self.end_offset, self.clock_ms)
            self.model.apply(pid, epoch, first, count, self.end_offset, self.now_ms)
            self.end_offset += count

    @rule(pid=pids, epoch=epochs, first=starts, count=counts)
    def send_anything(self, pid: int, epoch: int, first: int, count: int) -> None:
        self.send(pid, epoch, first, count)

    @rule(pid=pids, count=counts)
    def send_the_next(self, pid: int, count: int) -> None:
        epoch, batches, _ = self.model.producers.get(pid, (0, [], 0))
        self.send(pid, epoch, (batches[-1][0] + batches[-1][1]) % RING if batches else 0, count)

    @rule(pid=pids, back=st.integers(0, 4), shift=st.sampled_from([0, 0, 0, 1, -1]), count=st.none() | counts)
    def send_again(self, pid: int, back: int, shift: int, count: int | None) -> None:
        if pid in self.model.producers:
            epoch, batches, _ = self.model.producers[pid]
            first, first_count, _ = batches[-1 - back % len(batches)]
            self.send(pid, epoch, (first + shift) % RING, count or first_count)

    def refuse(self, pid: int, epoch: int, first: int, count: int, code: ErrorCode) -> None:
        sent = header(pid, epoch, first, count)
        answered = self.refused.answered("t", 0, sent, code, self.machine, self.now_ms)
        assert answered == self.model.answer(pid, epoch, first, count, code, self.now_ms)

    @rule(pid=pids, code=codes, sizes=st.lists(st.tuples(counts, st.booleans()), min_size=2, max_size=7))
    def refuse_the_next_ones(self, pid: int, code: ErrorCode, sizes: list[tuple[int, bool]]) -> None:
        """Those that are pipelined: the first is refused, the others get there, but for some."""
        epoch = self.model.producers.get(pid, (0, [], 0))[0]
        first = self.model.expected(pid, epoch) or 0
        for number, (count, is_lost) in enumerate(sizes):
            if not number:
                self.refuse(pid, epoch, first, count, code)
            elif not is_lost:
                self.send(pid, epoch, first, count)
            first = (first + count) % RING

    @rule(pid=pids, epoch=epochs, first=starts, count=counts, code=codes)
    def refuse_anything(self, pid: int, epoch: int, first: int, count: int, code: ErrorCode) -> None:
        self.refuse(pid, epoch, first, count, code)

    @rule(pid=pids, count=counts)
    def bump_the_epoch(self, pid: int, count: int) -> None:
        epoch = self.model.producers.get(pid, (0, [], 0))[0]
        self.send(pid, epoch + 1, 0, count)

    @rule(passed=st.sampled_from([0, 1, EXPIRATION_MS // 2, EXPIRATION_MS - 1, EXPIRATION_MS, REMEMBERED_MS]))
    def time_passes(self, passed: int) -> None:
        self.now_ms += passed
        while self.machine.expire(self.clock_ms, 2):
            pass
        self.model.expire(self.now_ms)

    @rule(down_ms=st.sampled_from([0, 0, 1, EXPIRATION_MS, 10**9, -1, -(10**9)]))
    def restart(self, down_ms: int) -> None:
        self.clock_error_ms += down_ms
        with TemporaryDirectory() as name:
            folder = Path(name)
            write_snapshot(Disk(), folder, self.end_offset, self.machine.view())
            loaded = load_newest(Disk(), folder, self.end_offset)
        assert loaded.offset == self.end_offset
        self.machine = ProducerStates(self.producer_rules, lambda: ISSUED, loaded.frozen, self.clock_ms)

    def teardown(self) -> None:
        self.look()

    @rule()
    def look(self) -> None:
        """Sometimes only: looking packs what was written lately, and the rules must hold before, too."""
        entries = list(self.machine.entries())
        assert [entry.producer_id for entry in entries] == self.model.order
        for entry in entries:
            epoch, batches, last_append_ms = self.model.producers[entry.producer_id]
            assert (entry.producer_epoch, entry.last_append_ms) == (epoch, last_append_ms)
            assert [(b.base_offset, b.offset_delta + 1) for b in entry.batches] == [
                (base_offset, count) for _, count, base_offset in batches
            ]


TestProducerState = ProducerStateMachine.TestCase
