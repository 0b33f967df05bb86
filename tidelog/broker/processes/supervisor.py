"""The parent process of a broker of several processes: it starts the others, watches them, and ends them in
order.

Owns the addresses, which are bound before anything is started, the locks of the data folder, and the
processes: that of the store first, then those that serve. It has no thread and no event loop, so that fork is
safe whenever a process has to be started again. All have the modules that it imported, in shared memory.

Invariants: standard output begins with `broker_started`, once every process serves; if a process ends before,
the start has failed, and all end; a process that ends later is started again, with a growing delay if it
keeps ending; one whose event loop does not turn for `broker.session.timeout.ms` is killed, so that it is
started again; at the end the broker processes are stopped first and the store last. If this process is
killed, the others notice and stop by themselves.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any, Final, NoReturn

import structlog

from tidelog.broker.app import http_host, not_started
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.processes import of_processes
from tidelog.broker.net.endpoints import BindError, bind
from tidelog.broker.net.http import import_libraries
from tidelog.broker.observability import log_events
from tidelog.broker.processes import broker_process, store_process
from tidelog.broker.processes.ownership_lock import Held, patience_seconds, take
from tidelog.broker.processes.parent_pipe import FirstEnd, OtherEnd, longest_silence_seconds, parent_pipe
from tidelog.broker.processes.restarts import Restarts
from tidelog.broker.storage.manager import DataFolderError
from tidelog.protocol.settings import ConfigError

logger = structlog.get_logger(__name__)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_CRASHED: Final = 70
"""The exit code of a process that an exception ended (EX_SOFTWARE)."""
_PAUSED_SECONDS: Final = 1.0
"""A wait that takes so much longer than it should."""


class _Process:
    """A process that the parent process starts, and starts again when it ends."""

    def __init__(self, name: str, serve: Callable[[OtherEnd], int]) -> None:
        self.name = name
        self.serve = serve
        self.pid = 0
        """0: it does not run."""
        self.line: FirstEnd | None = None
        self.starts_at = 0.0
        """When it has to be started, by the monotonic clock."""
        self.heard_at = 0.0
        """When it last said that its loop turns, by that clock."""
        self.began = 0.0
        self.exit_code = 0
        self._restarts = Restarts()

    @property
    def facts(self) -> Mapping[str, Any] | None:
        """What it said when it began to serve; None until then."""
        return None if self.line is None else self.line.facts

    def ended(self, exit_code: int, now: float) -> float:
        """It has ended; in how many seconds it has to be started again."""
        self.pid, self.exit_code = 0, exit_code
        if self.line is not None:
            self.line.close()
            self.line = None
        seconds = self._restarts.seconds_until_next(now - self.began)
        self.starts_at = now + seconds
        return seconds


class _StartFailed(Exception):
    """A process ended before all served; it has said why."""


class Supervisor:
    """Starts, watches and ends the processes of one broker."""

    def __init__(self, config: BrokerConfig, count: int) -> None:
        self._config = config
        self._configs = of_processes(config, count)
        self._longest_silence = longest_silence_seconds(config)
        self._asked = ""
        """The signal that asks to end."""
        self._wake_read, self._wake_write = -1, -1
        self._own: list[socket.socket] = []
        """Sockets that no other process needs."""
        self._shared: dict[str, socket.socket] = {}
        self._locks: Held | None = None
        self._http: socket.socket | None = None
        self._store = _Process("store", self._serve_store)
        self._brokers = [
            _Process(str(number), partial(self._serve_broker, number)) for number in range(count)
        ]
        self._is_open = False
        """Whether every process has served at the same time."""

    def run(self) -> int:
        """Serve until a signal ends it; returns the exit code."""
        try:
            self._open()
        except (BindError, ConfigError, DataFolderError, OSError) as error:
            return not_started(error, self._config.data_dir)
        if self._http is not None:
            import_libraries()
        gc.collect()
        gc.freeze()  # The collector would write into pages that the processes share.
        with self._signals():
            try:
                self._start()
                while not self._asked:
                    self._turn(self._start_again())
                code = 0
            except _StartFailed:
                code = 0 if self._asked else 1
            self._stop()
        self._close()
        return code

    def _open(self) -> None:
        """Lock the folder and bind all addresses. Raises what may be wrong with them."""
        self._locks = take(self._config.data_dir, patience_seconds(self._config))
        for listener in self._config.listener_configs:
            shared = bind(listener.host, listener.port, listener.setting)
            self._shared[listener.name] = shared
        if self._config.http_port >= 0:
            self._http = bind(http_host(self._config), self._config.http_port, "http.port")
        self._configs = [self._with_own_ports(config) for config in self._configs]

    def _with_own_ports(self, config: BrokerConfig) -> BrokerConfig:
        """The settings with ports that stay the same whenever the process is started again."""
        ports = []
        for listener in config.listener_configs:
            # It never listens: it only keeps the port from others while the process does not run.
            held = bind(listener.host, listener.port, listener.setting)
            self._own.append(held)
            ports.append(int(held.getsockname()[1]))
        own = config.with_ports(ports)
        return (
            own if self._http is None else own.with_settings({"http.port": int(self._http.getsockname()[1])})
        )

    def _serve_store(self, line: OtherEnd) -> int:
        for shared in self._shared.values():
            shared.close()
        count = len(self._configs)
        return store_process.serve(self._config, count, line, self._http, is_again=self._is_open)

    def _serve_broker(self, number: int, line: OtherEnd) -> int:
        if self._http is not None:
            self._http.close()
        return broker_process.serve(self._configs[number], self._config.data_dir, number, line, self._shared)

    def _start(self) -> None:
        """Start all processes, and log that once they serve. Raises _StartFailed."""
        self._fork(self._store)
        self._until_serving([self._store])
        for each in self._brokers:
            self._fork(each)
        self._until_serving(self._brokers)
        logger.info("broker_started", **self._started_event())
        self._is_open = True
        for each in (self._store, *self._brokers):
            if each.line is not None:
                each.line.let_go()

    def _until_serving(self, processes: Sequence[_Process]) -> None:
        while any(each.facts is None for each in processes):
            self._turn(None)
            if self._asked or any(not each.pid for each in processes):
                raise _StartFailed

    def _started_event(self) -> dict[str, object]:
        facts = [each.facts or {} for each in self._brokers]
        ports = {name: int(each.getsockname()[1]) for name, each in self._shared.items()}
        config = self._config.with_ports(list(ports.values()))
        return {
            "port": next(iter(ports.values())),
            "http_port": None if self._http is None else int(self._http.getsockname()[1]),
            "listeners": [listener.listened for listener in config.listener_configs],
            "advertised_listeners": [listener.advertised for listener in config.listener_configs],
            "data_dir": str(config.data_dir.absolute()),
            "node_id": config.node_id,
            "cluster_id": facts[0].get("cluster_id"),
            "processes": [
                {
                    "process": int(each.name),
                    "pid": each.pid,
                    "node_id": one.get("node_id"),
                    "port": one.get("port"),
                }
                for each, one in zip(self._brokers, facts, strict=True)
            ],
        }

    def _start_again(self) -> float | None:
        """Start what has ended and whose time has come, and kill what hangs; in how many seconds the next one
        is due."""
        now = time.monotonic()
        waiting = []
        for each in (self._store, *self._brokers):
            if each.pid:
                if each.facts is not None:
                    waiting.append(max(each.heard_at + self._longest_silence - now, 0))
                    if not waiting[-1]:
                        self._kill(each)
            elif each.starts_at <= now:
                self._fork(each)
            else:
                waiting.append(each.starts_at - now)
        return min(waiting, default=None)

    def _kill(self, process: _Process) -> None:
        logger.error(
            "hung_process_killed",
            process=process.name,
            pid=process.pid,
            silent_seconds=self._longest_silence,
            advice="nothing to do: it is started again; if nobody sent SIGSTOP, report this",
        )
        os.kill(process.pid, signal.SIGKILL)
        process.heard_at = time.monotonic()

    def _fork(self, process: _Process) -> None:
        first, other = parent_pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        process.began = time.monotonic()
        # Until the other process has handlers of its own, a signal to it would be noted here, and lost there.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if pid == 0:
            first.close()
            self._become(process, other)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        other.close()
        process.pid, process.line = pid, FirstEnd(first)

    def _become(self, process: _Process, line: socket.socket) -> NoReturn:
        """The life of another process, after the fork."""
        code = _CRASHED
        try:
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                # Ctrl-C goes to all processes of a terminal, and the first one asks the others in order.
                signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            for each in (self._store, *self._brokers):
                if each.line is not None:
                    each.line.close()
            for held in self._own:
                held.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            if self._locks is not None:
                os.close(self._locks.first)
            log_events.set_process(process.name)
            code = process.serve(OtherEnd(line))
        except BaseException as error:
            logger.error("process_failed", error=repr(error), advice="report this", exc_info=error)
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _turn(self, seconds: float | None) -> None:
        """Wait for a signal, for a message of a process, or `seconds`."""
        lines = [each.line for each in (self._store, *self._brokers) if each.line is not None]
        watched: list[FirstEnd | int] = [self._wake_read, *lines]
        began = time.monotonic()
        ready, _, _ = select.select(watched, [], [], seconds)
        if seconds is not None and (late := time.monotonic() - began - seconds) > _PAUSED_SECONDS:
            # This process was paused itself, as the others may have been.
            for each in (self._store, *self._brokers):
                each.heard_at += late
        for line in lines:
            if line in ready:
                self._hear(line)
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 1024)
        self._reap()

    def _hear(self, line: FirstEnd) -> None:
        had_facts = line.facts is not None
        is_open = line.read()
        process = next(each for each in (self._store, *self._brokers) if each.line is line)
        process.heard_at = time.monotonic()
        if not is_open:
            # It is gone, or it broke the rules; either way its end is awaited.
            process.line = None
            line.close()
        elif self._is_open and not had_facts and line.facts is not None:
            logger.info("process_started_again", process=process.name, pid=process.pid)
            line.let_go()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            process = next((each for each in (self._store, *self._brokers) if each.pid == pid), None)
            if process is None:
                continue  # One that another process left, if this one is the first of a container.
            code = os.waitstatus_to_exitcode(status)
            seconds = process.ended(code, time.monotonic())
            if self._is_open and not self._asked:
                logger.error(
                    "process_ended",
                    process=process.name,
                    pid=pid,
                    exit_code=code,
                    starts_again_in_seconds=seconds,
                    advice="check its earlier events; its partitions wait, and the other processes serve",
                )

    def _stop(self) -> None:
        """End the broker processes, then the store."""
        logger.info("broker_stopping", signal=self._asked)
        for shared in self._shared.values():
            shared.close()
        if self._http is not None:
            self._http.close()
        for processes in (self._brokers, [self._store]):
            for each in processes:
                if each.pid:
                    os.kill(each.pid, signal.SIGTERM)
                    os.kill(each.pid, signal.SIGCONT)  # A stopped process would not get it.
            while any(each.pid for each in processes):
                self._turn(None)
        logger.info("broker_stopped")

    def _close(self) -> None:
        for held in self._own:
            held.close()
        if self._locks is not None:
            os.close(self._locks.every)
            os.close(self._locks.first)
        sys.stdout.flush()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals wake `_turn`, and those that ask to end are noted."""
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _SIGNALS:
            signal.signal(number, self._ask)
        try:
            yield
        finally:
            for number in _SIGNALS:  # Once more is too late to change the exit code.
                signal.signal(number, signal.SIG_IGN)
            signal.set_wakeup_fd(-1)
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _ask(self, number: int, _: FrameType | None) -> None:
        self._asked = self._asked or signal.Signals(number).name
