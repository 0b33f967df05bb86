"""A broker at one look: what it holds, what it uses, what is wrong, and what happened last.

Owns nothing; reads the services, the watch and the log.
"""

from __future__ import annotations

from typing import Final, Protocol, TypedDict

from tidelog.broker.console.views.broker import BrokerFacts, broker_facts
from tidelog.broker.console.views.condition import Condition
from tidelog.broker.console.views.events import LogEvent, last_events
from tidelog.broker.console.views.problems import CurrentProblem, problems
from tidelog.broker.console.watch import Lately, resident_bytes
from tidelog.broker.security.required_access import (
    ALTER_CLUSTER,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTION,
    Right,
)
from tidelog.broker.services import Services
from tidelog.protocol.acls import CLUSTER_NAME

_EVENTS: Final = 20


class Holdings(TypedDict):
    """What the broker holds and uses."""

    topics: int
    partitions: int
    offline_partitions: int
    log_bytes: int
    producer_ids: int
    connections: int
    resident_bytes: int | None
    """Memory of the process; None: unknown on this system."""
    queued_bytes: int
    """Memory of all connections, of at most `queued_max_bytes`."""
    queued_max_bytes: int
    disk_bytes: int | None
    """Of the file system of the data folder; None: it could not be read."""
    disk_free_bytes: int | None
    free_handles: int
    handle_limit: int


class Counted(TypedDict):
    """A count since the start."""

    name: str
    text: str
    count: int


class Overview(TypedDict):
    """The broker at one look."""

    broker: BrokerFacts
    holdings: Holdings
    problems: list[CurrentProblem]
    """The critical ones first."""
    refused: list[Counted]
    """What was refused since the start."""
    events: list[LogEvent] | None
    """The last of the log, newest first; None: this user may not see them (they name everybody's topics)."""


_REFUSED: Final = {
    "failed_authentication": "Authentications that failed",
    "tidelog_tls_failures": "TLS handshakes that failed",
    "access_denied": "Operations that the authorizer refused",
    "tidelog_connections_refused": "Connections above a limit",
    "tidelog_connections_closed_bad_request": "Connections that did not speak the protocol",
    "tidelog_connections_cut_for_memory": "Connections closed because they held too much memory",
    "tidelog_out_of_order_batches": "Batches whose sequence did not follow",
    "tidelog_fenced_batches": "Batches of a producer that was replaced",
    "tidelog_partitions_failed": "Partitions that went offline",
}


class May(Protocol):
    """Whether the user who asks has a right."""

    def __call__(self, right: Right, name: str = CLUSTER_NAME) -> bool: ...


def overview(services: Services, condition: Condition, lately: Lately, may: May) -> Overview:
    metrics = services.metrics
    partitions, disk = condition.partitions, condition.disk
    counts = metrics.reading().events
    return {
        "broker": broker_facts(services),
        "holdings": {
            "topics": len(services.catalog),
            "partitions": partitions.held,
            "offline_partitions": partitions.offline_count,
            "log_bytes": partitions.size_bytes,
            "producer_ids": services.partitions.logs.producer_id_count,
            "connections": metrics.connections,
            "resident_bytes": resident_bytes(),
            "queued_bytes": condition.queued_bytes,
            "queued_max_bytes": condition.queued_max_bytes,
            "disk_bytes": None if disk is None else disk.total,
            "disk_free_bytes": None if disk is None else disk.free,
            "free_handles": condition.free_handles,
            "handle_limit": condition.handle_limit,
        },
        "problems": problems(
            condition,
            lately,
            lambda topic: may(DESCRIBE_TOPIC, topic),
            lambda transactional_id: may(DESCRIBE_TRANSACTION, transactional_id),
        ),
        "refused": [
            {"name": name, "text": text, "count": counts.get(name, 0)} for name, text in _REFUSED.items()
        ],
        "events": last_events()[:_EVENTS] if may(ALTER_CLUSTER) else None,
    }
