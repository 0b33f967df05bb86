"""An image of the catalog as JSON objects, one per line: what is small first, then its topics and users.

Owns which facts are in it. Invariants: what `read_image` gives has all facts that `image_lines` took, or it
raises: the first object says how many follow.

Pure.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from tidelog.broker.cluster.catalog import Catalog
from tidelog.broker.cluster.facts import (
    acls_from,
    broker_fields,
    broker_of,
    configs_from,
    deleted_fields,
    deleted_of,
    list_of,
    quota_rows,
    quotas_of_rows,
    text_of,
    topic_fields,
    topic_of,
    user_fields,
    user_of,
    whole_number,
)


def first_line(catalog: Catalog) -> dict[str, object]:
    """What is small, and the number of lines that follow."""
    return {
        "cluster_id": catalog.cluster_id,
        "revision": catalog.revision,
        "next_producer_id": catalog.next_producer_id,
        "broker_configs": catalog.broker_configs,
        "acls": list(catalog.acls),
        "client_quotas": quota_rows(catalog.client_quotas),
        "brokers": [broker_fields(broker) for broker in catalog.brokers.values()],
        "topics": len(catalog),
        "users": len(catalog.users),
        "deleted": deleted_fields(catalog.deleted),
    }


def other_lines(catalog: Catalog) -> list[dict[str, object]]:
    """A line per topic, oldest first, and one per user."""
    lines = [topic_fields(topic) for topic in catalog.topics()]
    return [*lines, *(user_fields(user, credentials) for user, credentials in catalog.users.items())]


def read_image(
    first: Mapping[str, Any], others: Iterator[Mapping[str, Any]]
) -> Generator[None, None, Catalog]:
    """The catalog of these lines; yields after each of `others`. Raises ValueError, KeyError, TypeError."""
    topics = []
    for _ in range(whole_number(first["topics"])):
        topics.append(topic_of(next(others)))
        yield
    users = []
    for _ in range(whole_number(first["users"])):
        users.append(user_of(next(others)))
        yield
    return Catalog(
        text_of(first["cluster_id"]),
        topics,
        whole_number(first["next_producer_id"]),
        whole_number(first["revision"]),
        deleted_of(first["deleted"]),
        map(broker_of, list_of(first["brokers"])),
        {name: configs_from(configs) for name, configs in dict(first["broker_configs"]).items()},
        acls_from(first["acls"]),
        dict(users),
        quotas_of_rows(first["client_quotas"]),
    )
