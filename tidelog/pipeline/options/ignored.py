"""Warnings about what Spark's Kafka connector takes too, and what has no effect here.

Owns the wording. Each read or write gives at most one warning of each kind, through `logging`.
"""

import logging
from collections.abc import Iterable, Mapping

from tidelog.pipeline.options.common import without_effect
from tidelog.pipeline.options.tables import Foreign

_log = logging.getLogger(__name__)


def warn_of_options(options: Mapping[str, str], foreign: Foreign) -> None:
    """One warning that names the options without an effect, if any was given."""
    if given := without_effect(options, foreign):
        reasons = ", ".join(f"{name} ({reason})" for name, reason in given.items())
        _log.warning("options without an effect here: %s", reasons)


def warn_of_columns(names: Iterable[str]) -> None:
    """One warning that names the columns that are not written, if there are any."""
    if text := ", ".join(names):
        _log.warning("columns that are not written, because a record does not have them: %s", text)
