"""An object store on virtual time, and the threads of brokers that call it.

Owns the objects, and what becomes of each request: it is applied or not, answered or not, or it arrives after
its caller has had an error, also when the caller has died. A thread of a broker stops at each request until
it is answered, so that those of several brokers mix as the seed says. They are real threads of which one
runs at a time, and never while the loop does.
"""

import errno
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeVar

from tests.simulation.virtual_loop import NODE, Node, NodeDied, VirtualLoop
from tidelog.protocol.types import Buffer
from tidelog.remote_log.object_names import check_names, too_large

ResultT = TypeVar("ResultT")


class Fate(Enum):
    """What becomes of a request."""

    SERVED = auto()
    REPEATED = auto()
    """The store's client sends it twice, and gives the answer to the second."""
    LOST = auto()
    """The caller has an error."""
    UNANSWERED = auto()
    """The caller has an error, and it is applied."""
    LATE = auto()
    """The caller has an error, and it is applied up to `late_s` later."""


class BucketFaults(NamedTuple):
    """Chances of a request, and how long it may take."""

    lost: float = 0
    unanswered: float = 0
    late: float = 0
    repeated: float = 0
    slow: float = 0
    delay_s: float = 0.05
    slow_s: float = 6.0
    late_s: float = 8.0

    def fate(self, rng: random.Random) -> Fate:
        fates = Fate.REPEATED, Fate.LOST, Fate.UNANSWERED, Fate.LATE, Fate.SERVED
        chances = self.repeated, self.lost, self.unanswered, self.late
        return rng.choices(fates, (*chances, 1 - sum(chances)))[0]


class Bucket:
    """The objects of all brokers, by their names."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults = BucketFaults()
        self.is_down = False
        self.has_put: Callable[[str, bytes], None] = lambda *_: None
        self.has_deleted: Callable[[str], None] = lambda _: None
        self.late: set[str] = set()
        """What requests were about that were applied after their callers had an error, or had died."""
        self.requests = 0
        self.failures = 0
        self.fate: Callable[[str], Fate] = lambda _: self.faults.fate(rng)
        """Of a request about an object of this name."""
        self._loop = loop
        self._rng = rng

    def request(
        self, apply: Callable[[], object], answered: Callable[[object, OSError | None], None], name: str
    ) -> None:
        """Apply it some time, and answer it some time."""
        self.requests += 1
        caller = NODE.get()
        assert caller is not None
        rng, faults = self._rng, self.faults
        longest_s = faults.slow_s if rng.random() < faults.slow else faults.delay_s
        arrives_s, answers_s = rng.random() ** 2 * longest_s, rng.random() ** 2 * longest_s
        fate = Fate.LOST if self.is_down else self.fate(name)

        def arrive() -> tuple[object, OSError | None]:
            if fate is Fate.LATE or caller.is_dead:
                self.late.add(name)
            try:
                return apply(), None
            except OSError as error:
                return None, error

        if fate in (Fate.SERVED, Fate.REPEATED):
            if fate is Fate.REPEATED:
                self._later(arrives_s * rng.random(), arrive)
            self._later(arrives_s, lambda: self._later(answers_s, answered, *arrive()))
            return
        self.failures += 1
        error = OSError(errno.EIO, f"{name}: the store does not answer")
        self._later(arrives_s + answers_s, answered, None, error)
        if fate is Fate.UNANSWERED:
            self._later(arrives_s, arrive)
        elif fate is Fate.LATE:
            self._later(arrives_s + answers_s + rng.random() * faults.late_s, arrive)

    def _later(self, seconds: float, work: Callable[..., object], *arguments: object) -> None:
        # As nobody: what a broker sent arrives, also if it is dead.
        self._loop.call_later(seconds, work, *arguments, context=Context())

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = data
        self.has_put(name, data)

    def put_new(self, name: str, data: bytes) -> bool:
        if name in self.objects:
            return False
        self.put(name, data)
        return True

    def get(self, name: str) -> bytes:
        """Raises FileNotFoundError."""
        if name not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", name)
        return self.objects[name]

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            if self.objects.pop(name, None) is not None:
                self.has_deleted(name)


class VirtualStore:
    """What one broker has of the bucket. Implements `ObjectStore`, in threads of `SteppedThreads` only."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def put(self, name: str, pieces: Iterable[Buffer]) -> None:
        check_names(name)
        data = b"".join(pieces)
        self._ask(name, lambda: self._bucket.put(name, data))

    def put_new(self, name: str, data: bytes) -> bool:
        check_names(name)
        return self._ask(name, lambda: self._bucket.put_new(name, data))

    def get(self, name: str, most_bytes: int) -> bytes:
        data = self._ask(name, lambda: self._bucket.get(name))
        if len(data) > most_bytes:
            raise too_large(name, len(data), most_bytes)
        return data

    def get_range(self, name: str, position: int, size: int) -> Buffer:
        return self._ask(name, lambda: self._bucket.get(name)[position : position + size])

    def names(self, folder: str) -> list[str]:
        found = self._bucket.objects
        return self._ask(folder, lambda: [name for name in found if name.startswith(f"{folder}/")])

    def delete(self, names: Sequence[str]) -> None:
        check_names(*names)
        if names:
            self._ask(names[0], lambda: self._bucket.delete(names))

    def _ask(self, name: str, apply: Callable[[], ResultT]) -> ResultT:
        call = _CALL.get()
        assert call is not None, f"{name}: the store is called on the event loop"
        return call.ask(self._bucket, apply, name)


class _Call:
    """One call in a thread of its own."""

    def __init__(self, loop: VirtualLoop, work: Callable[[], Any]) -> None:
        node = NODE.get()
        assert node is not None
        self.node: Node = node
        self.future = loop.create_future()
        self.is_abandoned = False
        self._loop = loop
        self._goes_on, self._has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._answer: tuple[Any, BaseException | None] = None, None
        self.has_ended = False
        context = copy_context()
        context.run(_CALL.set, self)
        self._thread = threading.Thread(target=context.run, args=(self._run, work), daemon=True)

    def begin(self) -> None:
        self._thread.start()
        self.go_on()

    def go_on(self) -> None:
        """Let the thread run until its next request, or its end."""
        self._goes_on.release()
        self._has_stopped.acquire()
        if not self.has_ended or self.node.is_dead or self.future.done():
            return
        result, error = self._answer
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)

    def abandon(self) -> None:
        """Undo the thread: it sees that its node is dead."""
        self.is_abandoned = True
        while self._thread.ident is not None and not self.has_ended:
            self._goes_on.release()
            self._has_stopped.acquire()

    def _run(self, work: Callable[[], Any]) -> None:
        self._goes_on.acquire()
        try:
            self._answer = work(), None
        except BaseException as error:
            self._answer = None, error
        self.has_ended = True
        self._has_stopped.release()

    def ask(self, bucket: Bucket, apply: Callable[[], ResultT], name: str) -> ResultT:
        """In the thread."""
        if not self.is_abandoned:
            bucket.request(apply, self._answered, name)
            self._has_stopped.release()
            self._goes_on.acquire()
        if self.node.is_dead or self.is_abandoned:
            raise NodeDied
        result, error = self._answer
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _answered(self, result: object, error: OSError | None) -> None:
        self._answer = result, error
        self._loop.call_soon(self.go_on, context=self.node.context)


_CALL: "ContextVar[_Call | None]" = ContextVar("call", default=None)


class SteppedThreads(Executor):
    """In the place of `StoreThreads`."""

    _calls: Final[list[_Call]] = []
    """Those of the present run."""

    def __init__(self, count: int, name: str) -> None:
        """As many as are wanted."""

    def begin(self, loop: VirtualLoop, work: Callable[[], Any]) -> Any:
        """The future of a call that takes its first step soon."""
        call = _Call(loop, work)
        self._calls[:] = [each for each in self._calls if not each.has_ended]
        self._calls.append(call)
        loop.call_soon(call.begin)
        return call.future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """What is in progress goes on."""

    @classmethod
    def abandon(cls) -> None:
        """End what dead nodes left, after a run."""
        for call in cls._calls:
            call.abandon()
        cls._calls.clear()
