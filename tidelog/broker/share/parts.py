"""The parts of a broker that share groups use, of `Services`, which itself makes what is in this package.

Owns the list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def clock_ms(self) -> Callable[[], int]: ...

    @property
    def steady_ms(self) -> Callable[[], int]: ...

    @property
    def cluster(self) -> Cluster: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def topics(self) -> Topics: ...

    @property
    def coordinator_parts(self) -> CoordinatorParts: ...

    @property
    def replicas(self) -> Mapping[tuple[str, int], Replica]: ...

    @property
    def peers(self) -> Peers: ...

    @property
    def tiering(self) -> Tiering | None: ...

    @property
    def node_id(self) -> int: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def is_cut_off(self) -> bool: ...

    def replica(self, topic: str, partition: int, leader_epoch: int = ...) -> Replica: ...

    def leader_of(self, topic: str, partition: int) -> int: ...

    def check_not_replaced(self, replica: Replica) -> None: ...
