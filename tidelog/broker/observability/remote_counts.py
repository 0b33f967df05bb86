"""The numbers of remote storage under the names that the common JMX exporter rules give Kafka's MBeans.

Owns the counts of one broker; prometheus_client is imported by the first scrape. Source: KIP-405,
kafka.server:type=BrokerTopicMetrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.broker.observability.series import Metric, counter, gauge

_NAME = "kafka_server_brokertopicmetrics_"


@dataclass(slots=True)
class RemoteCounts:
    """Numbers since the start, and the lag and the size as of the last look at all logs."""

    copy_bytes: int = 0
    copy_requests: int = 0
    copy_errors: int = 0
    fetch_bytes: int = 0
    fetch_requests: int = 0
    fetch_errors: int = 0
    delete_requests: int = 0
    delete_errors: int = 0
    copy_lag_bytes: int = 0
    copy_lag_segments: int = 0
    log_size_bytes: int = 0

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client: every series as it is now."""
        yield counter(f"{_NAME}remotecopybytes", "Bytes copied to remote storage.", self.copy_bytes)
        yield counter(f"{_NAME}remotecopyrequests", "Segments to be copied.", self.copy_requests)
        yield counter(f"{_NAME}remotecopyerrors", "Copies and checks that failed.", self.copy_errors)
        yield counter(f"{_NAME}remotefetchbytes", "Bytes read from remote storage.", self.fetch_bytes)
        yield counter(f"{_NAME}remotefetchrequests", "Reads of remote segments.", self.fetch_requests)
        yield counter(f"{_NAME}remotefetcherrors", "Reads of them that failed.", self.fetch_errors)
        yield counter(f"{_NAME}remotedeleterequests", "Deletions in remote storage.", self.delete_requests)
        yield counter(f"{_NAME}remotedeleteerrors", "Deletions that failed.", self.delete_errors)
        lag = "Closed segments that are not in remote storage yet"
        yield gauge(f"{_NAME}remotecopylagbytes", f"{lag}: their bytes.", self.copy_lag_bytes)
        yield gauge(f"{_NAME}remotecopylagsegments", f"{lag}.", self.copy_lag_segments)
        yield gauge(f"{_NAME}remotelogsizebytes", "Bytes of segments in remote storage.", self.log_size_bytes)
