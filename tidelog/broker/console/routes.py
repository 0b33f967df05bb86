"""The table of all routes and pages: the order of the pages is that of the navigation.

Owns nothing but the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.broker.console.api import (
    access,
    broker,
    clients,
    cluster,
    events,
    faults,
    groups,
    offsets,
    overview,
    producers,
    records,
    registry,
    search,
    settings,
    topics,
    transactions,
)
from tidelog.broker.console.route import ApiRoute, Page
from tidelog.broker.net.http_console import API

_SUBJECTS: Final = (
    overview,
    topics,
    records,
    producers,
    groups,
    transactions,
    registry,
    clients,
    access,
    cluster,
    faults,
    broker,
    settings,
    search,
    events,
    offsets,
)

_DECLARED: Final = dict.fromkeys(
    each for subject in _SUBJECTS for each in vars(subject).values() if isinstance(each, ApiRoute)
)
ROUTES: Final[Sequence[ApiRoute]] = [route for route in _DECLARED if route.path.startswith(API)]
BETWEEN_BROKERS: Final[Sequence[ApiRoute]] = [route for route in _DECLARED if route not in ROUTES]
"""Those that only brokers ask, for parts of their answers."""
PAGES: Final[Sequence[Page]] = [page for subject in _SUBJECTS for page in subject.PAGES]
