"""An image of the catalog as JSON objects, one per line: what is small first, then its topics and users.

Owns which facts are in it. Invariants: what `read_image` gives has all facts that `image_lines` took, or it
raises: the first object says how many follow.

Pure.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from tidelog.broker.cluster import facts
from tidelog.broker.cluster.catalog import Catalog


def first_line(catalog: Catalog) -> dict[str, object]:
    """What is small, and the number of lines that follow."""
    return {
        "cluster_id": catalog.cluster_id,
        "revision": catalog.revision,
        "next_producer_id": catalog.next_producer_id,
        "broker_configs": catalog.broker_configs,
        "acls": list(catalog.acls),
        "client_quotas": facts.quota_rows(catalog.client_quotas),
        "brokers": [facts.broker_fields(broker) for broker in catalog.brokers.values()],
        "topics": len(catalog),
        "users": len(catalog.users),
        "deleted": facts.deleted_fields(catalog.deleted),
    }


def other_lines(catalog: Catalog) -> list[dict[str, object]]:
    """A line per topic, oldest first, and one per user."""
    lines = [facts.topic_fields(topic) for topic in catalog.topics()]
    return [*lines, *(facts.user_fields(user, credentials) for user, credentials in catalog.users.items())]


def read_image(
    first: Mapping[str, Any], others: Iterator[Mapping[str, Any]]
) -> Generator[None, None, Catalog]:
    """The catalog of these lines; yields after each of `others`. Raises ValueError, KeyError, TypeError."""
    topics = []
    for _ in range(facts.whole_number(first["topics"])):
        topics.append(facts.topic_of(next(others)))
        yield
    users = []
    for _ in range(facts.whole_number(first["users"])):
        users.append(facts.user_of(next(others)))
        yield
    return Catalog(
        facts.text_of(first["cluster_id"]),
        topics,
        facts.whole_number(first["next_producer_id"]),
        facts.whole_number(first["revision"]),
        facts.deleted_of(first["deleted"]),
        map(facts.broker_of, facts.list_of(first["brokers"])),
        {name: facts.configs_from(configs) for name, configs in dict(first["broker_configs"]).items()},
        facts.acls_from(first["acls"]),
        dict(users),
        facts.quotas_of_rows(first["client_quotas"]),
    )
