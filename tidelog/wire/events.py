"""The client's log: structured events, named as snake_case facts ("batch_retried", "connection_lost").

Owns: the logger. If the application has configured structlog, events use its processors and its renderer. If
not, they go to Python's own logging under the name "tidelog.client": the text is the event's name and its
fields, which are also in `extra`. An application without any configuration sees only warnings, on standard
error.
"""

import logging
import sys
from collections.abc import MutableMapping
from functools import cache, partialmethod
from typing import Any

_NAME = "tidelog.client"
_PLAIN = logging.getLogger(_NAME)


class _Logger:
    """Decides at each event, because structlog may be configured after the client was imported."""

    __slots__ = ()

    def _log(self, level: str, event: str, **fields: Any) -> None:
        # Importing structlog is slow for short-lived processes that log nothing, such as Spark's workers.
        structlog = sys.modules.get("structlog")
        # Another thread may be importing it just now.
        is_configured = getattr(structlog, "is_configured", None)
        if structlog is not None and is_configured is not None and is_configured():
            getattr(structlog.get_logger(_NAME), level)(event, **fields)
        elif _PLAIN.isEnabledFor(getattr(logging, level.upper())):
            getattr(_plain(), level)(event, **fields)

    debug = partialmethod(_log, "debug")
    info = partialmethod(_log, "info")
    warning = partialmethod(_log, "warning")
    error = partialmethod(_log, "error")
    # With the exception that is being handled.
    exception = partialmethod(_log, "error", exc_info=True)


@cache
def _plain() -> Any:
    import structlog

    return structlog.wrap_logger(
        _PLAIN,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.stdlib.render_to_log_kwargs,
            _readable,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _readable(_: Any, __: str, call: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Most formats of applications print the text alone."""
    call["msg"] += "".join(f" {name}={value}" for name, value in call["extra"].items())
    return call


logger = _Logger()
