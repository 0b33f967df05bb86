"""What a broker process uses during an attack, and whether a normal client is served.

Owns the measures: processor time that the broker used while one small request waited, the small requests
answered, and how far its memory grew at most. It measures processor time, not
wall-clock time, because on a busy machine both broker and client wait. Linux only (reads /proc).
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from faults.wire import Wire

_NS_PER_MS: Final = 1_000_000
_PAUSE_S: Final = 0.002
_LOOK_S: Final = 0.01
_MOST_PER_SAMPLE_MS: Final = 100
_RESET_PEAK: Final = "5"


@dataclass(frozen=True)
class Cost:
    """`grown_kb` is the peak over what there was before; `waited_cpu_ms` the most that one request waited."""

    answered: int
    waited_cpu_ms: float
    cpu_ms: float
    grown_kb: int


def why_not() -> str:
    """Why nothing can be measured here; "" where it can."""
    return "" if Path("/proc/self/clear_refs").exists() else "the cost of a peer is read from /proc"


class Gauge:
    """`async with Gauge(pid, port, topic) as gauge: …`, then `gauge.cost`."""

    def __init__(self, pid: int, port: int, topic: str) -> None:
        self._process = Path(f"/proc/{pid}")
        self._port = port
        self._topic = topic
        self._answered = 0
        self._waited_ns = 0
        self._is_over = False
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.cost = Cost(0, 0.0, 0.0, 0)

    async def __aenter__(self) -> Self:
        """Returns once a first request was answered."""
        (self._process / "clear_refs").write_text(_RESET_PEAK)
        self._before_kb = self._status_kb("VmRSS")
        self._began_ns = self._cpu_ns()
        self._asking = asyncio.create_task(self._ask_on())
        await asyncio.wait((self._asking, self._first), return_when=asyncio.FIRST_COMPLETED)
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Waits for the answer that is due. Raises what a client that behaves met instead of answers."""
        self._is_over = True
        (ended,) = await asyncio.gather(self._asking, return_exceptions=True)
        self.cost = Cost(
            self._answered,
            self._waited_ns / _NS_PER_MS,
            (self._cpu_ns() - self._began_ns) / _NS_PER_MS,
            self._status_kb("VmHWM") - self._before_kb,
        )
        if isinstance(ended, BaseException):
            raise ended

    async def _ask_on(self) -> None:
        """Ask for the end of a partition and for its records, in turn, and note what each answer cost."""
        async with Wire.connected(self._port) as wire:
            while not self._is_over:
                await self._note_wait(
                    wire.read(self._topic, 0, 0) if self._answered % 2 else wire.offset_at(self._topic, 0, -1)
                )
                self._answered += 1
                if not self._first.done():
                    self._first.set_result(None)
                await asyncio.sleep(_PAUSE_S)

    async def _note_wait(self, request: Coroutine[Any, Any, object]) -> None:
        """Wait for an answer, also for one that never comes, and note what that cost."""
        asking = asyncio.create_task(request)
        seen_ns, waited_ns = self._cpu_ns(), 0
        while not asking.done():
            await asyncio.wait((asking,), timeout=_LOOK_S)
            before_ns, seen_ns = seen_ns, self._cpu_ns()
            waited_ns += min(seen_ns - before_ns, _MOST_PER_SAMPLE_MS * _NS_PER_MS)
            self._waited_ns = max(self._waited_ns, waited_ns)
        await asking

    def _cpu_ns(self) -> int:
        """Of all its threads. It ends with the process."""
        try:
            tasks = list((self._process / "task").iterdir())
            return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
        except OSError:
            return 0

    def _status_kb(self, name: str) -> int:
        try:
            fields = (self._process / "status").read_text().split()
        except OSError:
            return 0
        return int(fields[fields.index(f"{name}:") + 1])
