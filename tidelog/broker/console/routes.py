"""The table of all routes and pages: the order of the pages is that of the navigation.

Owns which answers a page shows: it renders what routes of the API answer, and nothing else.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from tidelog.broker.console import api
from tidelog.broker.console.route import ApiRoute, Console, Page
from tidelog.broker.net.http_console import API, PAGES_PATH

_SUBJECTS: Final = [import_module(f"{api.__name__}.{each.name}") for each in iter_modules(api.__path__)]
_DECLARED: Final = dict.fromkeys(
    each for subject in _SUBJECTS for each in vars(subject).values() if isinstance(each, ApiRoute)
)
ROUTES: Final[Sequence[ApiRoute]] = [route for route in _DECLARED if route.path.startswith(API)]
BETWEEN_BROKERS: Final[Sequence[ApiRoute]] = [route for route in _DECLARED if route not in ROUTES]
"""Those that only brokers ask, for parts of their answers."""
_READS: Final = {route.path.removeprefix(API): route for route in ROUTES if route.method == "GET"}


def _page(
    path: str,
    title: str,
    template: str,
    *sources: str,
    has_gaps: bool = False,
    is_shown: Callable[[Console], bool] = lambda _: True,
) -> Page:
    """The page at `path`, of the file `template` without its suffix, with the answers of these routes."""
    routes = [_READS[each] for each in sources]
    return Page(f"{PAGES_PATH}{path}", title, f"{template}.html", routes, has_gaps, is_shown)


_TOPIC: Final = "/topics/{topic}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition}}"
_RECORD: Final = f"{_PARTITION}/records/{{offset}}"
_NAMED: Final = ("/topics", "/groups", "/transactions", "/clients", "/broker/settings")
"""What the search looks through."""
PAGES: Final[Sequence[Page]] = (
    _page("/overview", "Overview", "overview", "/overview"),
    _page("/topics", "Topics", "topics", "/topics"),
    _page(f"{_TOPIC}/partitions", "Partitions", "topic", _TOPIC, f"{_TOPIC}/partitions"),
    _page(_TOPIC, "Messages", "messages", _TOPIC, f"{_TOPIC}/records"),
    _page(f"{_TOPIC}/produce", "Produce", "produce", _TOPIC),
    _page(f"{_PARTITION}/batches", "Batches", "batches", f"{_PARTITION}/batches"),
    _page(_RECORD, "Record", "record", _RECORD),
    _page(f"{_TOPIC}/producers", "Producers of a topic", "producers", _TOPIC, "/producers"),
    _page("/producers", "Producers", "producers", "/producers"),
    _page("/producers/{topic}/{partition}/{producer_id}", "Producer", "producer", "/producers"),
    _page(f"{_TOPIC}/groups", "Groups of a topic", "groups", _TOPIC, "/groups"),
    _page("/groups", "Groups", "groups", "/groups"),
    _page("/groups/group", "Group", "group", "/group"),
    _page("/groups/share", "Share group", "share_group", "/group", "/group/share", "/group/in-flight"),
    _page("/transactions", "Transactions", "transactions", "/transactions", "/transactions/held-back"),
    _page("/registry", "Schemas", "registry", "/registry", is_shown=lambda it: bool(it.records.registry)),
    _page("/registry/subject", "Schema", "subject", "/registry/subject"),
    _page("/clients", "Clients", "clients", "/clients"),
    _page("/clients/quotas", "Quotas", "quotas", "/quotas"),
    _page("/access", "Access", "access", "/users", "/access/why", "/access/who"),
    _page("/access/acls", "ACLs", "acls", "/acls"),
    _page("/cluster", "Cluster", "cluster", "/cluster", "/partitions"),
    _page("/faults", "Faults", "faults", "/faults", is_shown=lambda it: it.faults is not None),
    _page("/broker", "Broker", "broker", "/broker"),
    _page(f"{_TOPIC}/settings", "Settings", "settings", f"{_TOPIC}/settings"),
    _page("/groups/settings", "Settings of a group", "settings", "/group/settings"),
    _page("/broker/settings", "Settings of this broker", "settings", "/broker/settings"),
    _page("/search", "Search", "search", *_NAMED, has_gaps=True),
)
