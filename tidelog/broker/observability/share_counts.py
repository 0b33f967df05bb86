"""The numbers of share groups under the names that the common JMX exporter rules give Kafka's MBeans.

Owns the counts of one broker; prometheus_client is imported by the first scrape. Source: KIP-932,
kafka.server:type=ShareGroupMetrics, type=SharePartitionMetrics and type=ShareSessionCache. Those by group and
partition are sums over all of them, because clients choose the names of groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.broker.observability.series import Metric, counter, gauge


class ShareLoad(NamedTuple):
    """What is held now. `in_flight`: records that members hold or that wait between those that are done."""

    sessions: int = 0
    share_partitions: int = 0
    in_flight: int = 0


@dataclass(slots=True)
class ShareCounts:
    """Numbers since the first use of a share group."""

    load: Callable[[], ShareLoad] = ShareLoad
    acknowledged: Counter[str] = field(default_factory=Counter)
    """By type of acknowledgement."""
    lock_timeouts: int = 0
    """Runs of records whose lock ended."""
    dead_letters: int = 0
    dead_letter_requests: int = 0
    """Batches of dead letters that were to be written."""
    dead_letter_failures: int = 0

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client: every series as it is now."""
        load = self.load()
        cache = "kafka_server_sharesessioncache"
        yield gauge(f"{cache}_sharesessionscount", "Members of share groups that fetch here.", load.sessions)
        partitions = "kafka_server_sharepartitionmetrics"
        yield gauge(
            f"{partitions}_count", "Share partitions in memory: partitions by groups.", load.share_partitions
        )
        yield gauge(
            f"{partitions}_inflightmessagecount", "Records of share groups in flight.", load.in_flight
        )
        yield counter(
            f"{partitions}_acquisitionlocktimeout", "Locks on records that ended.", self.lock_timeouts
        )
        groups = "kafka_server_sharegroupmetrics"
        yield counter(
            f"{groups}_recordacknowledgements",
            "Records that members of share groups acknowledged.",
            {(kind,): count for kind, count in self.acknowledged.items()},
            "ack_type",
        )
        yield counter(
            f"{groups}_deadletterqueuerecordcount", "Dead letters that were written.", self.dead_letters
        )
        yield counter(
            f"{groups}_deadletterqueuetotalproducerequests",
            "Batches of dead letters that were sent to their topics.",
            self.dead_letter_requests,
        )
        yield counter(
            f"{groups}_deadletterqueuefailedproducerequests",
            "Batches of dead letters that could not be written; most are tried again.",
            self.dead_letter_failures,
        )
