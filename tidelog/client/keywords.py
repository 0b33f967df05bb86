"""The keywords of a client's constructor, which come from tables of settings.

Owns: how connection settings are taken from them, what is said of one that no table has, and the signature
that `help` and editors show.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from inspect import Parameter, Signature, signature
from typing import Any, Final, TypeVar

from tidelog.protocol.settings import settings_of
from tidelog.wire.cluster_config import ClusterConfig

_Class = TypeVar("_Class", bound=type[Any])

NOT_TAKEN: Final = {
    "api_version": "leave it out. Client and broker agree on versions by themselves",
    "connections_max_idle_ms": "leave it out. The client keeps idle connections open",
    "consumer_timeout_ms": "leave it out. Fetches have no interval; for reads use getmany(timeout_ms=...)",
    "exclude_internal_topics": "leave it out. Patterns never match internal topics; names may be internal",
    "loop": "leave it out. A client belongs to the event loop that calls start()",
    "rebalance_timeout_ms": "use max_poll_interval_ms, which also limits rebalances",
    "sasl_kerberos_domain_name": "Kerberos (GSSAPI) is not supported; use another sasl_mechanism",
    "sasl_kerberos_service_name": "Kerberos (GSSAPI) is not supported; use another sasl_mechanism",
}
"""aiokafka's arguments that our clients do not take, and what to do."""

# With a lower value, names with another meaning would count as misspellings.
_LEAST_LIKENESS: Final = 0.8


def _unknown(name: str, known: Iterable[str]) -> TypeError:
    from difflib import get_close_matches

    advice = NOT_TAKEN.get(name)
    if advice is None:
        close = get_close_matches(name, known, n=1, cutoff=_LEAST_LIKENESS)
        advice = f"did you mean {close[0]}?" if close else "help() of the class lists all"
    return TypeError(f"unknown argument {name!r}: {advice}")


def take_cluster(keywords: dict[str, Any], *own_tables: type[object], client_id: str) -> ClusterConfig:
    """The connection settings in a client's keywords. They are removed from `keywords`.

    The rest belongs to `own_tables`. `client_id` is the default client id. Raises ConfigError, and TypeError
    for a keyword that is no setting, or a `cluster` of another type.
    """
    tables = (ClusterConfig, *own_tables)
    known = ["cluster", *(each.attribute for table in tables for each in settings_of(table))]
    for name in keywords:
        if name not in known:
            raise _unknown(name, known)
    cluster: Any = keywords.pop("cluster", None) or ClusterConfig(client_id=client_id)
    if not isinstance(cluster, ClusterConfig):
        raise TypeError(f"cluster: expected a ClusterConfig, got {cluster!r:.200}; or give bootstrap_servers")
    names = {each.attribute for each in settings_of(ClusterConfig)} & keywords.keys()
    return replace(cluster, **{name: keywords.pop(name) for name in names})


def shows_settings(*tables: Any, **defaults: Any) -> Callable[[_Class], _Class]:
    """A decorator. `defaults` override the defaults of the tables."""

    def decorate(shown: _Class) -> _Class:
        _, *declared = signature(shown.__init__).parameters.values()
        own = [each for each in declared if each.kind is not Parameter.VAR_KEYWORD]
        keywords = [
            Parameter(
                each.attribute,
                Parameter.KEYWORD_ONLY,
                default=defaults.get(each.attribute, each.default),
                annotation=table.__annotations__[each.attribute],
            )
            for table in tables
            for each in settings_of(table)
        ]
        shown.__signature__ = Signature([*own, *keywords])
        return shown

    return decorate
