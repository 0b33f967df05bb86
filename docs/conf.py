"""Sphinx's configuration, and the tables of the site that come from the code: settings and metrics.

A page names a table as `{{ broker_settings }}`. The table is made from what the broker declares, so that it
cannot differ from it.
"""

from collections.abc import Iterable

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.topic_settings import TOPIC_SETTINGS
from tidelog.broker.handlers.fetch_sessions import FetchSessions
from tidelog.broker.observability.metrics import Metrics


def broker_settings() -> str:
    rows = (
        (f"`{setting.name}`", f"`{setting.default}`" if setting.default else "", setting.description)
        for setting in BrokerConfig().describe()
    )
    return _table(("setting", "default", "meaning"), rows)


def topic_settings() -> str:
    rows = (
        (f"`{name}`", f"`{setting.default}`", f"`{setting.extras['broker_name']}`", setting.description)
        for name, setting in sorted(TOPIC_SETTINGS.items())
    )
    return _table(("setting", "default", "broker's setting", "meaning"), rows)


def broker_metrics() -> str:
    metrics = Metrics()
    metrics.count_fetch_sessions_with(FetchSessions(0, 0, lambda: 1))
    rows = (
        (f"`{family.name}{'_total' if family.type == 'counter' else ''}`", family.type, family.documentation)
        for family in metrics.collect()
    )
    return _table(("metric", "type", "meaning"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


project = "Tidelog"
author = "The Tidelog founders"
extensions = ["myst_parser"]
myst_enable_extensions = ["substitution"]
myst_heading_anchors = 3
myst_substitutions = {table.__name__: table() for table in (broker_settings, topic_settings, broker_metrics)}
html_theme = "furo"
html_title = "Tidelog"
html_show_sourcelink = False
nitpicky = True
