"""Structured log events: one JSON object per line, or readable lines where the stream is a terminal.

Owns the set-up of structlog for a broker process, where its events are written, and from which level on.
Invariants: `broker_started` is the first line on standard output, at each level; everything logged before it
(recovery, warnings about settings, a refusal to start) is written to standard error; a broker embedded in
another program never changes that program's logging; at most `RECENT_EVENTS` events are kept, each
of bounded size.

Modules get their loggers from `structlog.get_logger(__name__)`.
"""

import json
import os
import sys
from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Final, TextIO

FIRST_EVENT = "broker_started"
NOT_STARTED = "broker_not_started"
LEVELS = {"INFO": frozenset[str](), "WARN": frozenset({"info"}), "ERROR": frozenset({"info", "warning"})}
"""Level -> the methods of a logger whose events it drops."""
RECENT_EVENTS: Final = 100
_KEPT_CHARACTERS: Final = 500
_KEPT_FIELDS: Final = 30
ROOT: Final = "root"
"""The logger above all others."""
_levels: dict[str, str] = {ROOT: "INFO"}
_recent: deque[tuple[int, Mapping[str, str]]] = deque(maxlen=RECENT_EVENTS)


def import_structlog_without_rich() -> None:
    """Import structlog in a broker process, without rich and pygments.

    structlog uses rich, if it is installed, for tracebacks on terminals. With pygments that takes 300 ms of a
    start that may take 500. Must run before the first import of structlog; otherwise it has no effect.
    """
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # An import of it then raises ImportError.
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]


class EventStream:
    """A text stream that writes to `before` until `start`, and to `after` from then on."""

    def __init__(self, before: TextIO, after: TextIO) -> None:
        self._target = before
        self._after = after

    def start(self) -> None:
        self._target = self._after

    def isatty(self) -> bool:
        return self._target.isatty()

    def write(self, text: str) -> int:
        # A name that cannot be encoded must not lose the event.
        encoding = self._target.encoding or "utf-8"
        return self._target.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def flush(self) -> None:
        self._target.flush()


class _Switch:
    """A structlog processor that lets standard output begin with the first event of a started broker."""

    configured: ClassVar[EventStream | None] = None
    """That of this process."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        _Switch.configured = stream

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event.get("event") == FIRST_EVENT:
            self._stream.start()
        return event


class _Level:
    """A structlog processor that drops the events below the level of their logger."""

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        dropped = LEVELS[level_of(getattr(logger, "name", ROOT))]
        if method in dropped and event.get("event") != FIRST_EVENT:
            from structlog import DropEvent

            raise DropEvent
        return event


class _Process:
    """A structlog processor that names the process where there are several."""

    name = ""

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if self.name:
            event["process"] = self.name
        return event


def set_process(name: str) -> None:
    """Name this process in each of its events from now on."""
    _Process.name = name


def open_output() -> None:
    """Write events to standard output from now on: in a process that does not log `broker_started` itself."""
    if _Switch.configured is not None:
        _Switch.configured.start()


def set_level(level: str, logger: str = ROOT) -> None:
    """Drop the events of a logger, and of those below it, that are below this one of LEVELS from now on. It
    has an effect where `configure` set this process up."""
    _levels[logger] = level


def unset_level(logger: str) -> None:
    """Let the level of the logger above it hold."""
    _levels.pop(logger, None)


def own_levels() -> Mapping[str, str]:
    """Those that were set: logger -> level. ROOT has one."""
    return dict(_levels)


def level_of(logger: str) -> str:
    """The level that holds: its own, or that of the nearest logger above it."""
    while logger not in _levels:
        logger = logger.rpartition(".")[0] or ROOT
    return _levels[logger]


def loggers() -> list[str]:
    """ROOT, the loggers of the modules that were imported, and the packages above them."""
    modules = list(sys.modules.items())
    parts = [
        name.split(".")
        for name, module in modules
        if name.startswith("tidelog.broker.") and hasattr(module, "logger")
    ]
    above = {".".join(each[:end]) for each in parts for end in range(1, len(each) + 1)}
    return [ROOT, *sorted(above)]


def recent() -> Sequence[tuple[int, Mapping[str, str]]]:
    """The last events of this process, oldest first: the number of each, counted from 1, and its fields as
    text. Empty if `configure` did not set this process up."""
    return list(_recent)


def _remember(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor that keeps what `recent` returns."""
    always = {name: event[name] for name in ("event", "level", "timestamp")}
    fields = always | dict(islice(event.items(), _KEPT_FIELDS))
    number = _recent[-1][0] + 1 if _recent else 1
    _recent.append((number, {name: str(value)[:_KEPT_CHARACTERS] for name, value in fields.items()}))
    return event


class _Renderer:
    """A structlog processor that makes the line: JSON, or on a terminal what a person reads."""

    def __init__(self, stream: EventStream) -> None:
        import structlog

        self._stream = stream
        self._console = structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)
        self._json = structlog.processors.JSONRenderer(serializer=to_json)

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str | bytes:
        if not self._stream.isatty():
            from structlog.processors import format_exc_info

            return self._json(logger, method, _event_first(format_exc_info(logger, method, event)))
        if event["event"] == NOT_STARTED:
            return f"error: {event['error']}"
        return self._console(logger, method, event)


def _event_first(event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The event's name before its fields, its level and time after them: lines are read by people as well."""
    name = event.pop("event", None)
    level = event.pop("level", None)
    timestamp = event.pop("timestamp", None)
    return {"event": name, **event, "level": level, "timestamp": timestamp}


def to_json(event: MutableMapping[str, Any], **_: Any) -> str:
    """One line of JSON; what JSON does not know (paths, uuids) as text."""
    return json.dumps(event, default=str, ensure_ascii=False)


def _named_logger(stream: EventStream, name: str = ROOT) -> Any:
    """A logger that `_Level` knows by its name."""
    import structlog

    made = structlog.WriteLogger(stream)  # type: ignore[arg-type]
    made.name = name  # type: ignore[attr-defined]
    return made


def configure(out: TextIO | None = None, errors: TextIO | None = None) -> None:
    """Set structlog up for this process."""
    import structlog

    stream = EventStream(errors or sys.stderr, out or sys.stdout)
    processors: list[Any] = [
        _Switch(stream),
        _Level(),
        _Process(),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _remember,
        _Renderer(stream),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=partial(_named_logger, stream),
        cache_logger_on_first_use=True,
    )
