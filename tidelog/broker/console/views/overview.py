"""A broker at one look: what it holds, what it uses, what is wrong, and what happened last.

Owns nothing; reads the services, the watch and the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol, TypedDict

from tidelog.broker.console.views.broker import BrokerFacts, broker_facts
from tidelog.broker.console.views.condition import Condition
from tidelog.broker.console.views.events import LogEvent, last_events
from tidelog.broker.console.views.of_cluster import OfCluster
from tidelog.broker.console.views.problems import CurrentProblem, most_severe_first, problems
from tidelog.broker.observability.history import Lately, resident_bytes
from tidelog.broker.security.required_access import ALTER_CLUSTER, DESCRIBE_TOPIC, DESCRIBE_TRANSACTION, Right
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
    """How often something was refused or failed since the start."""

    name: str
    text: str
    count: int


class BrokerHoldings(TypedDict):
    """What one broker of the cluster holds and uses."""

    broker: BrokerFacts
    holdings: Holdings


class Overview(OfCluster):
    """Overview of the broker, and problems of the cluster."""

    broker: BrokerFacts
    holdings: Holdings
    brokers: list[BrokerHoldings]
    """Of each broker that answered, this one first."""
    problems: list[CurrentProblem]
    """Of all brokers, the critical ones first."""
    refused: list[Counted]
    """What was refused since the start."""
    events: list[LogEvent] | None
    """The last of the log, newest first; None: this user may not see them (they name everybody's topics)."""


_REFUSED: Final = {
    "failed_authentication": "Authentications that failed",
    "tidelog_tls_failures": "TLS handshakes that failed",
    "access_denied": "Operations that the authorizer refused",
    "tidelog_connections_refused": "Connections above a limit",
    "tidelog_connections_closed_bad_request": "Connections with another protocol",
    "tidelog_connections_cut_for_memory": "Connections closed because they used too much memory",
    "tidelog_out_of_order_batches": "Batches whose sequence did not follow",
    "tidelog_fenced_batches": "Batches of a producer that was replaced",
    "tidelog_partitions_failed": "Partitions that went offline",
}


class Mark(TypedDict):
    """Something that explains a change in the charts."""

    at_ms: int
    text: str


_MARKED: Final = {
    "broker_fenced": "broker fenced",
    "cluster_store_not_followed": "catalog not reached",
    "connection_cut_for_memory": "connection closed for memory",
    "in_sync_set_changed": "replicas in sync changed",
    "partition_offline": "partition offline",
    "partitions_moved": "partitions moved",
    "process_ended": "process ended",
    "replica_truncated": "replica truncated",
}
"""Name of an event -> what a chart says of it."""


class May(Protocol):
    """Whether the user who asks has a right."""

    def __call__(self, right: Right, name: str = CLUSTER_NAME) -> bool: ...


def overview(services: Services, condition: Condition, lately: Lately, may: May) -> Overview:
    metrics = services.metrics
    partitions, disk = condition.partitions, condition.disk
    counts = metrics.reading().events
    broker = broker_facts(services)
    holdings: Holdings = {
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
    }
    return {
        "broker": broker,
        "holdings": holdings,
        "brokers": [{"broker": broker, "holdings": holdings}],
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


def marks(services: Services, may: May) -> list[Mark]:
    """The start, and for who may see events those of the log that explain a change in the charts."""
    found: list[Mark] = [{"at_ms": services.start_ms, "text": "broker started"}]
    for event in last_events() if may(ALTER_CLUSTER) else ():
        if (text := _MARKED.get(event["event"])) is not None:
            at = datetime.fromisoformat(event["timestamp"]).timestamp()
            found.append({"at_ms": round(at * 1000), "text": text})
    return found


def joined(answers: Mapping[int, Overview]) -> Overview:
    """The overviews of some brokers as one; the first is this broker's. A problem that all have is one."""
    problems: dict[tuple[str, str], tuple[CurrentProblem, list[int]]] = {}
    for node_id, answer in answers.items():
        for problem in answer["problems"]:
            problems.setdefault((problem["name"], problem["text"]), (problem, []))[1].append(node_id)
    found: list[CurrentProblem] = []
    for problem, node_ids in problems.values():
        if len(node_ids) < len(answers):
            whose = f"Broker{'s' if len(node_ids) > 1 else ''} {', '.join(map(str, sorted(node_ids)))}"
            found.append({**problem, "text": f"{whose}: {problem['text']}"})
        else:
            found.append(problem)
    return {
        **next(iter(answers.values())),
        "brokers": [each for answer in answers.values() for each in answer["brokers"]],
        "problems": most_severe_first(found),
    }
