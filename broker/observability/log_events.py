"""Structured log events: one JSON object per line, or readable lines on a terminal, on standard output.

Owns the set-up of structlog for a broker process, and where its events are written. Invariants:
`broker_started` is the first line on standard output; everything logged before it (recovery, warnings about
settings, a refusal to start) is written to standard error; a broker embedded in another program never changes
that program's logging.

Modules get their loggers from `structlog.get_logger(__name__)`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

FIRST_EVENT = "broker_started"


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

    def write(self, text: str) -> int:
        return self._target.write(text)

    def flush(self) -> None:
        self._target.flush()


class _Switch:
    """A structlog processor that lets standard output begin with the first event of a started broker."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event.get("event") == FIRST_EVENT:
            self._stream.start()
        return event


def _event_first(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The event's name before its fields, its level and time after them: lines are read by people as well."""
    name = event.pop("event", None)
    level = event.pop("level", None)
    timestamp = event.pop("timestamp", None)
    return {"event": name, **event, "level": level, "timestamp": timestamp}


def to_json(event: MutableMapping[str, Any], **_: Any) -> str:
    """One line of JSON; what JSON does not know (paths, uuids) as text."""
    return json.dumps(event, default=str, ensure_ascii=False)


def configure(out: TextIO | None = None, errors: TextIO | None = None) -> None:
    """Set structlog up for this process."""
    import structlog

    out = sys.stdout if out is None else out
    stream = EventStream(sys.stderr if errors is None else errors, out)
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _Switch(stream),
    ]
    if out.isatty():
        processors.append(structlog.dev.ConsoleRenderer())
    else:
        processors += [
            structlog.processors.format_exc_info,
            _event_first,
            structlog.processors.JSONRenderer(serializer=to_json),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.WriteLoggerFactory(file=stream),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
