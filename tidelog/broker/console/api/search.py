"""Everything that has a text in its name: topics, groups, transactions, connections, settings.

Owns the page, which shows what the routes of each subject answer; what the visitor may not see is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.broker.console.api.clients import clients_route
from tidelog.broker.console.api.groups import groups_route
from tidelog.broker.console.api.settings import broker_settings_route
from tidelog.broker.console.api.topics import topics_route
from tidelog.broker.console.api.transactions import transactions_route
from tidelog.broker.console.route import Page, page

PAGES: Final[Sequence[Page]] = (
    page(
        "/search",
        "Search",
        "search",
        is_detail=True,
        has_gaps=True,
        topics=topics_route,
        groups=groups_route,
        transactions=transactions_route,
        clients=clients_route,
        settings=broker_settings_route,
    ),
)
