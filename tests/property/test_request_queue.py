"""The queue of one connection against a model: answers leave in the order of the requests, whatever happens.

The model takes requests while the queue lets it, and answers those that wait in any order.
"""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.limits.queued_memory import QueuedMemory
from tidelog.broker.net.request_queue import RequestQueue, Waiting
from tidelog.protocol.types import Buffer

MOST_REQUESTS = 6
MOST_BYTES = 5_000
MOST_RESERVED_BYTES = 2_000


class Request(Waiting):
    """A request, or some that arrived together, with as many answers."""

    def __init__(self, first: int, rng: random.Random) -> None:
        self.answer: list[Buffer] | None = None
        self.requests = rng.choice((1, 1, 3))
        self.holds_back = rng.random() < 0.2
        self.held_bytes = rng.choice((0, 0, 700))
        self.reserved_bytes = rng.choice((0, 0, 1_000, 1 << 40))
        self.ids = range(first, first + self.requests)
        self.is_abandoned = False

    def abandon(self) -> None:
        self.is_abandoned = True

    def interrupt(self) -> None:
        """Nothing waits for other clients here."""


def frame(ids: range) -> list[Buffer]:
    return [b"%4d" % number * 50 for number in ids]


def ids_in(out: list[Buffer]) -> list[int]:
    return [int(bytes(buffer[:4])) for buffer in out]


@settings(max_examples=200)
@given(st.integers(0, 1 << 32), st.booleans())
def test_answers_leave_in_order_within_the_bounds_and_nothing_stays_held(seed: int, ends: bool) -> None:
    rng = random.Random(seed)
    queue = RequestQueue(MOST_REQUESTS, MOST_BYTES, MOST_RESERVED_BYTES, QueuedMemory(1 << 30))
    waiting: list[Request] = []
    out: list[Buffer] = []
    taken, last = 0, None
    for _ in range(100):
        holders = [request for request in waiting if request.holds_back]
        assert queue.holder is (holders[0] if holders else None)
        held_bytes = sum(request.held_bytes for request in waiting)
        assert queue.held_bytes >= held_bytes
        assert queue.room() <= MOST_REQUESTS - sum(request.requests for request in waiting)
        if queue.is_ended:
            break
        match rng.choice(("take", "take", "answer", "effect", "full")):
            case "take" if queue.holder is None and not queue.is_full():
                if queue.waiting and rng.random() < 0.4:
                    if ends and last is None and rng.random() < 0.1:
                        last = taken
                        queue.add_answer([])
                        continue
                    queue.add_answer(frame(range(taken, taken + 1)))
                    taken += 1
                    continue
                request = Request(taken, rng)
                waiting.append(request)
                taken += request.requests
                assert queue.add(request) == request.held_bytes
                assert request.reserved_bytes <= MOST_RESERVED_BYTES
            case "answer" if waiting:
                request = waiting.pop(rng.randrange(len(waiting)))
                request.answer = frame(request.ids)
                queue.answered(request, out)
            case "effect" if queue.holder is not None:
                request = next(request for request in waiting if request is queue.holder)
                request.holds_back, freed_bytes = False, request.held_bytes
                request.held_bytes = 0
                assert queue.effect_taken(request, freed_bytes)
            case "full":
                queue.is_writing_paused = True
                assert queue.is_full()
                queue.is_writing_paused = False
        sent = ids_in(out)
        assert sent == list(range(len(sent)))
        assert last is None or len(sent) <= last
    while waiting and not queue.is_ended:
        request = waiting.pop()
        request.answer = frame(request.ids)
        queue.answered(request, out)
    assert ids_in(out) == list(range(taken if last is None else last))
    assert queue.is_ended is (last is not None)
    queue.abandon()
    assert queue.held_bytes == 0
    assert queue.room() == MOST_REQUESTS
    assert not queue.is_full()
    assert all(request.is_abandoned for request in waiting)


def test_a_queue_without_an_end_holds_nothing_once_all_is_answered() -> None:
    rng = random.Random(1)
    queue = RequestQueue(MOST_REQUESTS, MOST_BYTES, MOST_RESERVED_BYTES, QueuedMemory(1 << 30))
    first, second = Request(0, rng), Request(3, rng)
    for request in (first, second):
        request.holds_back = False
        queue.add(request)
    second.answer = frame(second.ids)
    out: list[Buffer] = []
    assert queue.answered(second, out) == sum(map(len, second.answer))
    assert not out
    first.answer = frame(first.ids)
    assert queue.answered(first, out) == 0
    assert out == [*first.answer, *second.answer]
    assert queue.held_bytes == len(queue.waiting) == 0
