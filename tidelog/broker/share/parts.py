"""The parts of a broker that share groups use, of `Services`, which itself makes what is in this package.

Owns the list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.cluster.catalog import Catalog
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.coordinator.shards import CoordinatorParts
from tidelog.broker.limits.turns import Turns
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.peers.peers import Peers
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import Topics

if TYPE_CHECKING:
    from tidelog.broker.tiering.tiering import Tiering


class BrokerParts(Protocol):
    """See `Services`."""

    settings: BrokerSettings
    cluster: Cluster
    catalog: Catalog
    topics: Topics
    coordinator_parts: CoordinatorParts
    replicas: dict[tuple[str, int], Replica]
    peers: Peers
    tiering: Tiering | None
    node_id: int
    turns: Turns
    metrics: Metrics

    @property
    def clock_ms(self) -> Callable[[], int]: ...

    @property
    def steady_ms(self) -> Callable[[], int]: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def is_cut_off(self) -> bool: ...

    def replica(self, topic: str, partition: int, leader_epoch: int = ...) -> Replica: ...

    def leader_of(self, topic: str, partition: int) -> int: ...

    def check_not_replaced(self, replica: Replica) -> None: ...
