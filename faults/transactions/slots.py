"""The processors of one transactional id: starts them, kills and pauses them, and replaces those that end.

Owns the processes. Invariants: while a slot is open at least one of its processes runs or is being started,
after `close` none; each process has a name and a journal of its own.
"""

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Final

from faults.schedule import FaultKind, Step
from faults.transactions.client import Job
from faults.transactions.history import Attempt, AttemptId, Outcome, attempts_of

_PAUSE_BEFORE_NEXT_S: Final = 0.1


class Slot:
    """`client` is one of `CLIENTS`; `name` is that of the slot alone."""

    def __init__(
        self, name: str, client: str, job: Job, seed: int, folder: Path, oddities: Counter[str]
    ) -> None:
        self.name = name
        self.client = client
        self.job = job
        self.started = 0
        """How many processes were started."""
        self._seed = seed
        self._folder = folder
        self.oddities = oddities
        """How processes ended by themselves; shared by all slots."""
        self._running: dict[str, Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = False

    async def start(self) -> None:
        self._is_open = True
        await self._start_another()

    async def disturb(self, step: Step) -> None:
        """Carry out a step on the newest process. Pauses end by themselves."""
        if not self._running:
            return
        newest = next(reversed(self._running.values()))
        match step.kind:
            case FaultKind.KILL_PROCESSOR:
                _signal(newest, signal.SIGKILL)
                await self._start_another()
            case FaultKind.PAUSE_PROCESSOR:
                self._pause(newest, step)
            case FaultKind.TWO_PROCESSORS:
                await self._start_another()
            case FaultKind.ZOMBIE:
                self._pause(newest, step)
                await self._start_another()

    async def replace(self) -> None:
        """Kill all processes, which make no progress, and start another."""
        self.oddities[f"{self.client}: killed, because it made no progress"] += 1
        for process in list(self._running.values()):
            _signal(process, signal.SIGKILL)
        await self._start_another()

    def attempts(self) -> dict[AttemptId, Attempt]:
        """What the journals of all its processes say. Blocking."""
        attempts: dict[AttemptId, Attempt] = {}
        for path in self._folder.glob(f"{self.name}-*.journal"):
            attempts |= attempts_of(path.stem, path.read_text().splitlines())
        return attempts

    def has_committed(self) -> bool:
        """Whether one of its processes has committed a transaction. Blocking."""
        return any(attempt.outcome is Outcome.COMMITTED for attempt in self.attempts().values())

    async def close(self) -> None:
        """Kill every process."""
        self._is_open = False
        for process in list(self._running.values()):
            _signal(process, signal.SIGKILL)
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _start_another(self) -> None:
        name = f"{self.name}-{self.started}"
        self.started += 1
        job = json.dumps(asdict(self.job))
        journal = self._folder / f"{name}.journal"
        command = (
            "-m",
            "faults.transactions.processor",
            name,
            self.client,
            str(self._seed),
            str(journal),
            job,
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
        )
        self._running[name] = process
        self._begin_task(self._watch(name, process))

    async def _watch(self, name: str, process: Process) -> None:
        """Wait for its end, and start another if no process is left."""
        _, errors = await process.communicate()
        del self._running[name]
        if process.returncode != -signal.SIGKILL:
            # The first words name the error; the rest may differ each time.
            last = (errors.decode(errors="replace").strip().splitlines() or ["silent"])[-1]
            self.oddities[f"{self.client}: ended with {last.partition(':')[0]}"] += 1
        if self._is_open and not self._running:
            await asyncio.sleep(_PAUSE_BEFORE_NEXT_S)
            if self._is_open and not self._running:
                await self._start_another()

    def _pause(self, process: Process, step: Step) -> None:
        _signal(process, signal.SIGSTOP)
        self._begin_task(_continue_after(process, step.duration_ms / 1000))

    def _begin_task(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _continue_after(process: Process, seconds: float) -> None:
    await asyncio.wait([asyncio.create_task(process.wait())], timeout=seconds)
    _signal(process, signal.SIGCONT)


def _signal(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
