"""The client's log: structured events that reach Python's own logging under the name "tidelog.client".

Owns: the logger. An application that configures nothing sees warnings on standard error and nothing else; one
that renders structlog events from logging gets the fields.
Callers: every module of the client that does I/O. Event names are snake_case facts ("connection_lost").
"""

import logging
from typing import cast

import structlog

__all__ = ["logger"]

logger = cast(
    structlog.stdlib.BoundLogger,
    structlog.wrap_logger(
        logging.getLogger("tidelog.client"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.stdlib.render_to_log_kwargs,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    ),
)
