"""What a client reports while a command runs, as lines on standard error.

Owns which events of `tidelog.client` the user sees: warnings, with their fields, and requests that are
repeated for a while. A client repeats them for minutes, and without a line the command would seem to hang.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_REPETITIONS = {"batch_retried": "cause", "connection_failed": "error"}
"""Events that are shown if they continue, each with the field that has the reason."""
_RAISED = frozenset({"batch_given_up", "producer_failed"})
"""Events whose error the command reports at its end."""
_SILENT_S = 5.0
_REPORTED_EVERY_S = 10.0
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class ClientEvents(logging.Handler):
    """Writes them. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.DEBUG)
        self._clock = clock
        self._began: float | None = None
        self._last = 0.0
        self._reported = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """One event. What is repeated is reported after five seconds, then every ten."""
        fields = {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
        if record.msg in _RAISED:
            return
        if record.levelno >= logging.WARNING:
            shown = "".join(f" {name}={value}" for name, value in fields.items())
            print(f"warning: {record.getMessage()}{shown}", file=sys.stderr)
        elif (why := _REPETITIONS.get(record.msg)) is not None:
            self._repeated(str(fields.get(why)))

    def _repeated(self, why: str) -> None:
        now = self._clock()
        if self._began is None or now - self._last > _REPORTED_EVERY_S:
            self._began = now
            self._reported = now + _SILENT_S - _REPORTED_EVERY_S
        self._last = now
        if now - self._reported >= _REPORTED_EVERY_S:
            self._reported = now
            print(f"still trying after {now - self._began:.0f} s: {why}", file=sys.stderr)


@contextmanager
def shown_client_events() -> Iterator[None]:
    """Inside the block, the events of all clients in this process are written."""
    logger = logging.getLogger("tidelog.client")
    handler, level = ClientEvents(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
