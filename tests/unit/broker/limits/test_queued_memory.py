"""The account of what connections hold, who gives way and who never does: crowds of clients, in numbers."""

from dataclasses import dataclass, replace

import pytest

from tidelog.broker.limits.queued_memory import (
    PATIENCE_SECONDS,
    TURN_SECONDS,
    Held,
    Large,
    Patience,
    QueuedMemory,
    judge,
)

BOUND = 1000
LOOK_SECONDS = 0.1


def held(receiving: int = 0, missing: int = 0, unsent: int = 0, waiting: int = 0) -> Held:
    return Held(receiving, missing, unsent, waiting, handed=unsent, completed=0, is_sending=True)


def large(name: str, what: Held, receiving_seconds: float = 0.0, unsent_seconds: float = 0.0) -> Large[str]:
    patience = Patience(what, 0.0)
    patience.receiving_seconds, patience.unsent_seconds = receiving_seconds, unsent_seconds
    return Large(name, what, patience)


def short_memory(*everybody: Large[str], bound: int = BOUND) -> QueuedMemory:
    memory = QueuedMemory(bound)
    memory.measured(sum(one.held.total for one in everybody), len(everybody))
    assert memory.is_short
    return memory


def cut(*everybody: Large[str]) -> list[str]:
    return [one.key for one in judge(everybody, short_memory(*everybody)).cut]


def held_back(*everybody: Large[str]) -> set[str]:
    return set(judge(everybody, short_memory(*everybody)).held_back)


def test_what_is_taken_is_added_until_it_is_measured_what_is_really_held() -> None:
    memory = QueuedMemory(BOUND)
    memory.taken_bytes += BOUND // 2
    assert memory.taken_bytes <= memory.look_at_bytes
    memory.taken_bytes += 1
    assert memory.taken_bytes > memory.look_at_bytes
    memory.passed(4)
    assert (memory.is_short, memory.is_exhausted, memory.share_bytes) == (True, False, BOUND // 8)
    memory.measured(7, 4)
    assert (memory.is_short, memory.taken_bytes) == (False, 7)
    assert memory.look_at_bytes == BOUND // 2


def test_nothing_is_served_while_the_bound_may_be_passed_until_that_is_measured() -> None:
    memory = QueuedMemory(BOUND)
    memory.taken_bytes = BOUND
    memory.passed(2)
    assert not memory.is_exhausted
    memory.taken_bytes = BOUND + 1
    assert memory.taken_bytes > memory.look_at_bytes
    memory.passed(2)
    assert memory.is_exhausted
    memory.measured(BOUND - 1, 2)
    assert (memory.is_short, memory.is_exhausted) == (True, False)


def test_measuring_is_due_again_only_after_a_good_part_of_the_bound_was_taken() -> None:
    for total in (0, BOUND // 2 - 1, BOUND // 2, BOUND - 1, 2 * BOUND):
        memory = QueuedMemory(BOUND)
        memory.measured(total, 1)
        assert memory.look_at_bytes - total >= BOUND // 16


def test_above_the_bound_the_greediest_is_cut_and_no_more_than_needed() -> None:
    everybody = (
        large("most", held(unsent=500)),
        large("less", held(unsent=300)),
        large("frame", held(receiving=250)),
        large("waiting", held(waiting=200)),
    )
    assert cut(*everybody) == ["most"]


def test_of_two_that_hold_the_same_the_one_is_cut_that_the_broker_has_waited_for() -> None:
    assert cut(large("quick", held(unsent=600)), large("slow", held(unsent=600), 0, 1.0)) == ["slow"]
    assert cut(large("quick", held(600, 5)), large("slow", held(600, 5), 1.0)) == ["slow"]
    assert cut(large("large", held(unsent=800)), large("old", held(unsent=300), 0, 5.0)) == ["old"]


def test_while_memory_is_short_no_connection_holds_more_than_a_share_for_long() -> None:
    long = PATIENCE_SECONDS + 1
    old = large("old", held(unsent=300), 0, long)
    assert cut(old, large("new", held(unsent=300))) == ["old"]
    # No more are cut than it takes for memory to be short no longer.
    assert cut(old, large("older", held(unsent=300), 0, long + 1), large("new", held(unsent=100))) == [
        "older"
    ]


def test_who_waits_for_the_broker_is_not_cut_below_the_bound() -> None:
    assert cut(large("waits", held(waiting=900))) == []


def test_above_its_share_a_connection_is_not_read_until_it_holds_less() -> None:
    everybody = (large("unsent", held(unsent=400)), large("waiting", held(waiting=400)))
    assert held_back(*everybody) == {"unsent", "waiting"}


def test_frames_that_wait_to_be_served_are_no_reason_to_hold_back() -> None:
    assert held_back(large("backlog", held(receiving=700))) == set()


def test_frames_are_read_further_if_their_rest_fits_and_the_first_always() -> None:
    first, second, third = (
        large("first", held(200, 100), 0.0),
        large("second", held(200, 100), TURN_SECONDS),
        large("third", held(200, 100), 2 * TURN_SECONDS),
    )
    assert held_back(first, second, third) == {"second", "third"}
    assert held_back(large("first", held(200, 30)), large("second", held(200, 30)), third) == {"third"}
    assert held_back(large("only", held(990, 500))) == set()


def test_the_reason_is_what_the_most_of_it_is() -> None:
    assert large("one", held(3, 1, 2, 1)).reason == "a frame does not arrive completely"
    assert large("one", held(2, 1, 3, 1)).reason == "answers are not read"
    assert large("one", held(1, 1, 2, 3)).reason == "requests wait"


def test_the_time_that_is_waited_for_a_frame_begins_anew_with_each_frame() -> None:
    patience = Patience(held(100, 50), 0.0)
    patience.look(held(100, 50), 1.0, was_read=True)
    assert patience.receiving_seconds == 1.0
    patience.look(held(100, 50), 2.0, was_read=False)
    assert patience.receiving_seconds == 1.0
    patience.look(replace(held(100, 50), completed=1), 3.0, was_read=True)
    assert patience.receiving_seconds == 0.0


def test_a_frame_is_not_waited_for_that_is_on_the_way_to_its_end() -> None:
    patience = Patience(held(100, 1000), 0.0)
    for step in range(1, 6):
        patience.look(held(100 + 150 * step, 1000 - 150 * step), step, was_read=True)
    assert patience.receiving_seconds == 0.0
    patience.look(held(851, 249), 6.0, was_read=True)
    assert patience.receiving_seconds == 1.0


def test_who_reads_a_little_of_his_answers_is_waited_for_and_who_reads_all_that_there_was_is_not() -> None:
    patience = Patience(held(unsent=100), 0.0)
    patience.look(replace(held(unsent=99), handed=100), 1.0, was_read=True)
    patience.look(replace(held(unsent=198), handed=200), 2.0, was_read=True)
    assert patience.unsent_seconds == 2.0
    patience.look(replace(held(unsent=100), handed=200), 3.0, was_read=True)
    assert patience.unsent_seconds == 0.0


@dataclass(eq=False)
class Sender:
    """A client in the midst of a frame. One with a rate of 0 sends nothing more."""

    size: int
    rate: int
    came: int = 0
    frames: int = 0

    def held(self) -> Held:
        missing = self.size - self.came if self.came else 0
        return Held(self.came, missing, 0, 0, 0, self.frames, self.rate > 0)

    def read(self) -> None:
        self.came += min(self.rate, self.size - self.came)
        if self.came == self.size:
            self.came = 0
            self.frames += 1


class Crowd:
    """Senders and the rules, look after look."""

    def __init__(self, senders: list[Sender], bound: int) -> None:
        self.senders = senders
        self.memory = QueuedMemory(bound)
        self.cut: list[Sender] = []
        self.most = 0
        self._patience: dict[Sender, Patience] = {}
        self._back: set[Sender] = set()
        self._now = 0.0

    def step(self) -> None:
        self._now += LOOK_SECONDS
        for sender in self.senders:
            if sender not in self._back:
                sender.read()
        memory = self.memory
        memory.measured(sum(sender.came for sender in self.senders), len(self.senders))
        self.most = max(self.most, memory.taken_bytes)
        known, self._patience = self._patience, {}
        found = []
        for sender in self.senders if memory.is_short else ():
            if sender.came > memory.share_bytes:
                patience = known.get(sender) or Patience(sender.held(), self._now)
                if sender in known:
                    patience.look(sender.held(), self._now, was_read=sender not in self._back)
                self._patience[sender] = patience
                found.append(Large(sender, sender.held(), patience))
        verdict = judge(found, memory)
        self._back = set(verdict.held_back)
        for one in verdict.cut:
            self.cut.append(one.key)
            self.senders.remove(one.key)


def test_many_clients_with_large_frames_are_served_in_turn_and_none_is_disconnected() -> None:
    everybody = [Sender(size=200, rate=20) for _ in range(200)]
    crowd = Crowd(list(everybody), bound=10_000)
    for _ in range(2000):
        crowd.step()
    assert crowd.cut == []
    assert crowd.most <= 10_000
    served = sorted(sender.frames for sender in everybody)
    assert 0 < served[-1] <= 2 * served[0]


@pytest.mark.parametrize(
    ("size", "rate", "kept", "steps", "frames"),
    [(200, 0, 60, 100, 10), (200, 0, 74, 100, 10), (200, 0, 95, 100, 10), (2000, 1, 70, 2000, 200)],
)
def test_active_senders_are_served_whatever_idle_and_slow_ones_hold(
    size: int, rate: int, kept: int, steps: int, frames: int
) -> None:
    slow = [Sender(size=size, rate=rate, came=kept) for _ in range(100)]
    sender = Sender(size=300, rate=100)
    crowd = Crowd([*slow, sender], bound=10_000)
    for _ in range(steps):
        crowd.step()
    assert sender.frames >= frames
    assert sender not in crowd.cut
    assert crowd.most <= 10_000
