"""The client's log: structured events, named as snake_case facts ("batch_retried", "connection_lost").

Owns: the logger. Where the application has configured structlog, events take its way, with its processors and
its renderer. Where it has not, they reach Python's own logging under the name "tidelog.client", with the
fields as `extra`: an application that configures nothing sees warnings on standard error and nothing else.
Callers: every module of the client that does I/O.
"""

import logging
from typing import Any

import structlog

__all__ = ["logger"]

_NAME = "tidelog.client"
_PLAIN = structlog.wrap_logger(
    logging.getLogger(_NAME),
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.processors.format_exc_info,
        structlog.stdlib.render_to_log_kwargs,
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
)


class _Logger:
    """Decides at each event, for structlog may be configured after the client was imported."""

    __slots__ = ()

    def debug(self, event: str, **fields: Any) -> None:
        _target().debug(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        _target().info(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        _target().warning(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        _target().error(event, **fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error, with the exception that is being handled."""
        _target().error(event, exc_info=True, **fields)


def _target() -> Any:
    return structlog.get_logger(_NAME) if structlog.is_configured() else _PLAIN


logger = _Logger()
