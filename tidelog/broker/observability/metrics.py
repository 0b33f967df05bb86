"""The broker's numbers under the names that the common JMX exporter rules give Kafka's MBeans.

Owns the counts of one broker as plain integers, and their exposition. Several brokers share a process, so
nothing here is global. prometheus_client's own counters take 0.5 us and a lock for each of a request's six
counts; the counts are therefore kept here, and a collector hands them to prometheus_client at a scrape.

Invariants: written on the event loop's thread only; label values are topics, API names, versions, listeners,
mechanisms and error names, all bounded by the catalog, the settings or the protocol's tables, and 100
transactional ids; prometheus_client is imported by the first scrape.

Source: kafka.network:type=RequestMetrics, kafka.server:type=BrokerTopicMetrics and type=ReplicaManager.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from tidelog.broker.observability.cleaner_counts import CleanerCounts
from tidelog.broker.observability.series import Metric, counter, gauge
from tidelog.broker.observability.throttle_counts import ThrottleCounts
from tidelog.protocol.errors import error_code

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tidelog.broker.cluster.membership import ClusterCounts
    from tidelog.broker.cluster.store import StoreView
    from tidelog.broker.observability.remote_counts import RemoteCounts
    from tidelog.broker.observability.share_counts import ShareCounts

LATENCY_BUCKETS_MS = (
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0,
)  # fmt: skip
"""Upper bounds in milliseconds: from a produce whose data was already durable to the longest long poll."""
GROUP_COMMIT_BUCKETS = (
    1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
)  # fmt: skip
"""Upper bounds in batches that one fdatasync made durable."""
ErrorCounts = Iterable[tuple[int, int]]
"""(error code, how often it is in one response)."""


class Distribution:
    """A histogram: how many observations fell at or below each upper bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: Distribution) -> None:
        """Take the observations of `other`, which has the same bounds."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, observations at or below it), as the exposition format needs them."""
        buckets = []
        seen = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            seen += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(seen)))
        return buckets


class RequestTally:
    """The counts of one (API, version). A request counts when its answer, or the lack of one, is decided."""

    __slots__ = ("errors", "milliseconds", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.errors: dict[int, int] = {0: 0}
        self.milliseconds = Distribution(LATENCY_BUCKETS_MS)

    def succeeded(self, seconds: float, requests: int = 1) -> None:
        """One request whose response held one code, NONE; or some that arrived and were answered together."""
        milliseconds = seconds * 1000.0
        self.requests += requests
        self.errors[0] += requests
        times = self.milliseconds
        times.counts[bisect_left(LATENCY_BUCKETS_MS, milliseconds)] += requests
        times.total += milliseconds * requests

    def finished(self, error_counts: ErrorCounts, seconds: float) -> None:
        """One request whose response held `error_counts`."""
        self.requests += 1
        self.milliseconds.observe(seconds * 1000.0)
        errors = self.errors
        for code, count in error_counts:
            errors[code] = errors.get(code, 0) + count


class _TopicTally:
    __slots__ = ("bytes_in", "bytes_out", "failed", "is_moved", "messages_in", "name", "seen")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_moved = False
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.failed = 0
        self.seen: dict[str, tuple[int, int, int]] | None = None

    @property
    def counts(self) -> tuple[int, int, int]:
        """Records in, bytes in and out."""
        return self.messages_in, self.bytes_in, self.bytes_out


class TransactionCounts(NamedTuple):
    """Transactions that are not complete. `prepared_seconds`: transactional id -> how long a transaction
    without a timeout has waited for its end."""

    by_state: Mapping[str, int] = {}
    prepared_seconds: Mapping[str, float] = {}


class Reading(NamedTuple):
    """Counts since the start, summed up: the rates between two readings are what a person looks at."""

    messages_in: int
    bytes_in: int
    bytes_out: int
    requests: Mapping[str, int]
    """By name of the API."""
    errors: Mapping[str, int]
    """Error codes in responses by name, NONE left out (ErrorsPerSec)."""
    milliseconds: Mapping[str, Sequence[int]]
    """By name of the API: requests in each of LATENCY_BUCKETS_MS, and above all of them."""
    commits: int
    """Calls of fdatasync."""
    committed_batches: int
    events: Mapping[str, int]
    """By name of the counter without labels; failed_authentication and access_denied beside them."""


class InSyncCounts(NamedTuple):
    """Counts the partitions that a broker leads, and its changes of their in-sync sets since its start."""

    leaders: int
    under_replicated: int
    under_least: int
    """With fewer in sync than min.insync.replicas."""
    reassigning: int
    shrinks: int
    expands: int


class ThrottledReplicas(Protocol):
    """What was moved of replicas that a quota holds for, since the start."""

    moved_bytes: int


class FetchSessionCounts(Protocol):
    """The numbers of a cache of fetch sessions."""

    partition_count: int
    evictions: int

    def __len__(self) -> int: ...


class _Encodable:
    """The series of a registry, with `?` in labels for what cannot be encoded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [each._replace(labels=_encodable(each.labels)) for each in family.samples]
            yield family


def _encodable(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: text.encode(errors="replace").decode() for name, text in labels.items()}


_EVENTS: dict[str, str] = {}
"""Name -> description of each counter without labels."""


def _counting(name: str, description: str) -> Callable[[Metrics], None]:
    _EVENTS[name] = description

    def count(self: Metrics) -> None:
        self._counts[name] += 1

    return count


class Metrics:
    """Counts what one broker does, and shows the counts to Prometheus."""

    out_of_order: ClassVar = _counting(
        "tidelog_out_of_order_batches",
        "Batches refused because their sequence does not follow the producer's last.",
    )
    fenced: ClassVar = _counting(
        "tidelog_fenced_batches", "Batches refused because of an older producer epoch."
    )
    bad_request: ClassVar = _counting(
        "tidelog_connections_closed_bad_request",
        "Connections closed because their bytes were not the protocol.",
    )
    connection_refused: ClassVar = _counting(
        "tidelog_connections_refused", "Connections closed because max.connections were open."
    )
    connection_cut: ClassVar = _counting(
        "tidelog_connections_cut_for_memory",
        "Connections closed because all together used queued.max.bytes, and these used the most.",
    )
    tls_failed: ClassVar = _counting(
        "tidelog_tls_failures",
        "Connections closed because their TLS or their client's certificate was not accepted.",
    )
    session_expired: ClassVar = _counting(
        "kafka_server_socketservermetrics_expired_connections_killed",
        "Connections closed because their clients did not authenticate again in time.",
    )
    long_nonce_accepted: ClassVar = _counting(
        "tidelog_scram_long_nonces",
        "SCRAM clients that wrote their nonce twice (librdkafka before 2.6.1); Kafka 4 refuses them.",
    )
    partition_failed: ClassVar = _counting(
        "tidelog_partitions_failed",
        "Partitions that went offline because their disk failed, since the start.",
    )

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], RequestTally] = {}
        self._topics: dict[str, _TopicTally] = {}
        # Most topics are silent most of the time: only those with traffic since the last look are summed up.
        self._moved: list[_TopicTally] = []
        self._moved_since: dict[str, set[_TopicTally]] = {}
        self._sums = (0, 0, 0)
        self._counts = dict.fromkeys(_EVENTS, 0)
        self._snapshots_damaged = self._log_truncations = self._log_truncated_bytes = 0
        self._authentications: Counter[tuple[str, str, bool, bool]] = Counter()
        self._denied: Counter[tuple[str, str]] = Counter()
        self._duplicates = {("in_window",): 0, ("below_window",): 0}
        self._group_commit = Distribution(GROUP_COMMIT_BUCKETS)
        # What is asked for its numbers at each scrape; None: this broker has no such thing.
        self.producer_ids: Callable[[], int] = int
        """How many producers are remembered."""
        self.fetch_sessions: FetchSessionCounts | None = None
        self.queued_bytes: Callable[[], int] = int
        """Memory of all connections."""
        self.cluster: Callable[[], ClusterCounts] | None = None
        self.store: Callable[[], StoreView] | None = None
        """None: the catalog is in no store of several members."""
        self.in_sync: Callable[[], InSyncCounts] | None = None
        self.throttled_replicas: Mapping[str, ThrottledReplicas] = {}
        """By side: leader and follower."""
        self.transactions: Callable[[], TransactionCounts] = TransactionCounts
        self.certificates: Callable[[], Mapping[str, float]] = dict
        """Listener -> when its certificate expires, in seconds since 1970."""
        self.cleaner = CleanerCounts()
        self.remote: RemoteCounts | None = None
        """None: this broker has no remote storage."""
        self.share: ShareCounts | None = None
        """None: no share group was used."""
        self.throttles = ThrottleCounts()
        self.connections = 0
        """Connections of clients that are open."""
        self._registry: CollectorRegistry | None = None

    def request(self, request: str, version: int) -> RequestTally:
        """The tally of an API (by name) and version, to keep and count in."""
        tally = self._requests.get((request, version))
        if tally is None:
            tally = self._requests[request, version] = RequestTally()
        return tally

    def request_finished(self, request: str, version: int, error_counts: ErrorCounts, seconds: float) -> None:
        """One request was answered `seconds` after it arrived."""
        self.request(request, version).finished(error_counts, seconds)

    def batch_appended(self, topic: str, records: int, size_bytes: int) -> None:
        """One batch was appended to the log of a partition of `topic`."""
        tally = self._topics.get(topic)
        if tally is None or not tally.is_moved:
            tally = self._topic(topic)
        tally.messages_in += records
        tally.bytes_in += size_bytes

    def bytes_out(self, topic: str, size_bytes: int) -> None:
        """Record bytes of `topic` were sent in an answer."""
        tally = self._topics.get(topic)
        if tally is None or not tally.is_moved:
            tally = self._topic(topic)
        tally.bytes_out += size_bytes

    def produce_failed(self, topic: str) -> None:
        self._topic(topic).failed += 1

    def duplicate(self, window: str) -> None:
        """A duplicate was recognised: "in_window" (one of the last five batches) or "below_window"."""
        self._duplicates[window,] += 1

    def authenticated(self, listener: str, mechanism: str, *, is_again: bool) -> None:
        """A client was authenticated, for the first time on its connection or again."""
        self._authentications[listener, mechanism, is_again, True] += 1

    def authentication_failed(self, listener: str, mechanism: str, *, is_again: bool) -> None:
        """A client was refused."""
        self._authentications[listener, mechanism, is_again, False] += 1

    def access_denied(self, operation: str, resource_type: str) -> None:
        self._denied[operation, resource_type] += 1

    def group_commit(self, batches: int) -> None:
        """One fdatasync will make `batches` durable."""
        self._group_commit.observe(batches)

    def log_recovered(self, damaged_snapshots: int, truncated_bytes: int) -> None:
        """A partition's log was opened: how many snapshots were set aside and bytes of its end removed."""
        self._snapshots_damaged += damaged_snapshots
        self._log_truncations += truncated_bytes > 0
        self._log_truncated_bytes += truncated_bytes

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: its series are removed, so that names of deleted topics take no memory."""
        self._sum_up()
        tally = self._topics.pop(topic, None)
        for moved in self._moved_since.values():
            moved.discard(tally)

    def _topic(self, topic: str) -> _TopicTally:
        """The tally of a topic that has traffic: until the next look it is not in the sums."""
        tally = self._topics.get(topic)
        if tally is None:
            tally = self._topics[topic] = _TopicTally(topic)
        if not tally.is_moved:
            tally.is_moved = True
            self._moved.append(tally)
            records, size_in, size_out = self._sums
            self._sums = records - tally.messages_in, size_in - tally.bytes_in, size_out - tally.bytes_out
        return tally

    def _sum_up(self) -> None:
        records, size_in, size_out = self._sums
        for tally in self._moved:
            tally.is_moved = False
            records += tally.messages_in
            size_in += tally.bytes_in
            size_out += tally.bytes_out
        self._sums = records, size_in, size_out
        for each in self._moved_since.values():
            each.update(self._moved)
        self._moved.clear()

    def topic_growth(self, who: str) -> dict[str, tuple[int, int, int]]:
        """Of each topic with traffic since `who` asked last: records in, bytes in and out."""
        self._sum_up()
        grown = {}
        for tally in self._moved_since.get(who, self._topics.values()):
            now = tally.counts
            if tally.seen is None:
                tally.seen = {}
            before = tally.seen.get(who, (0, 0, 0))
            if now != before:
                tally.seen[who] = now
                grown[tally.name] = now[0] - before[0], now[1] - before[1], now[2] - before[2]
        self._moved_since[who] = set()
        return grown

    @property
    def registry(self) -> CollectorRegistry:
        """The registry that shows these counts; further collectors may join it."""
        if self._registry is None:
            from prometheus_client import CollectorRegistry

            self._registry = CollectorRegistry()
            self._registry.register(self)
        return self._registry

    def render(self) -> bytes:
        """Everything in the Prometheus text format."""
        from prometheus_client import generate_latest

        try:
            return generate_latest(self.registry)
        except UnicodeEncodeError:
            return generate_latest(_Encodable(self.registry))

    def reading(self) -> Reading:
        """The sums as they are now, without prometheus_client."""
        requests: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        times: dict[str, Distribution] = {}
        for (request, _), tally in self._requests.items():
            requests[request] += tally.requests
            for code, count in tally.errors.items():
                if code:
                    errors[error_code(code).name] += count
            times.setdefault(request, Distribution(LATENCY_BUCKETS_MS)).add(tally.milliseconds)
        self._sum_up()
        refused = sum(count for (_, _, _, succeeded), count in self._authentications.items() if not succeeded)
        return Reading(
            *self._sums,
            requests,
            errors,
            {request: tuple(each.counts) for request, each in times.items()},
            sum(self._group_commit.counts),
            int(self._group_commit.total),
            self._counts | {"failed_authentication": refused, "access_denied": self._denied.total()},
        )

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client: every series as it is now."""
        yield from self._collect_requests()
        for name, description, value in _OF_TOPICS:
            values = {(topic,): value(tally) for topic, tally in self._topics.items()}
            yield counter(f"kafka_server_brokertopicmetrics_{name}", description, values, "topic")
        yield from self._collect_transactions()
        for is_again, is_success, name, description in _AUTHENTICATIONS:
            found = {
                (listener, mechanism): count
                for (listener, mechanism, *kind), count in self._authentications.items()
                if kind == [is_again, is_success]
            }
            name = f"kafka_server_socketservermetrics_{name}"
            yield counter(name, description, found, "listener", "mechanism")
        for name, description in _EVENTS.items():
            yield counter(name, description, self._counts[name])
        yield from self._collect_connections()
        yield from self._collect_logs()
        yield from self._collect_cluster()
        yield from self._collect_store()
        yield from self._collect_in_sync()
        yield from self._collect_throttled_replicas()
        yield from self.cleaner.collect()
        if self.remote is not None:
            yield from self.remote.collect()
        if self.share is not None:
            yield from self.share.collect()
        yield from self.throttles.collect()

    def _collect_requests(self) -> Iterator[Metric]:
        requests: dict[tuple[str, str], int] = {}
        errors: Counter[tuple[str, str]] = Counter()
        times: dict[tuple[str], Distribution] = {}
        for (request, version), tally in self._requests.items():
            requests[request, str(version)] = tally.requests
            for code, count in tally.errors.items():
                errors[request, error_code(code).name] += count
            times.setdefault((request,), Distribution(LATENCY_BUCKETS_MS)).add(tally.milliseconds)
        prefix = "kafka_network_requestmetrics"
        finished = "Requests finished (RequestsPerSec)."
        yield counter(f"{prefix}_requests", finished, requests, "request", "version")
        codes = "Error codes in responses, NONE included (ErrorsPerSec)."
        yield counter(f"{prefix}_errors", codes, errors, "request", "error")
        latency = "Milliseconds from a request's arrival to its answer (TotalTimeMs)."
        yield _histogram(f"{prefix}_totaltimems", latency, times, "request")

    def _collect_transactions(self) -> Iterator[Metric]:
        counts = self.transactions()
        states = {(state,): count for state, count in counts.by_state.items()}
        yield gauge("tidelog_transactions", "Transactions that are not complete.", states, "state")
        yield gauge(
            "tidelog_prepared_transaction_age_seconds",
            "Age of transactions that no timeout aborts (two-phase commit); the 100 oldest.",
            {(transactional_id,): age for transactional_id, age in counts.prepared_seconds.items()},
            "transactional_id",
        )

    def _collect_connections(self) -> Iterator[Metric]:
        yield gauge(
            "kafka_server_socketservermetrics_connections",
            "Connections of clients that are open.",
            self.connections,
        )
        yield gauge(
            "tidelog_queued_bytes",
            "Memory of all connections: requests that arrive or wait, answers not read yet, fetch sessions.",
            self.queued_bytes(),
        )
        yield gauge(
            "tidelog_certificate_expiry_timestamp_seconds",
            "When the certificate of each listener with TLS expires, in seconds since 1970.",
            {(listener,): expires for listener, expires in self.certificates().items()},
            "listener",
        )
        yield counter(
            "tidelog_access_denied",
            "Operations on resources that the authorizer refused.",
            self._denied,
            *("operation", "resource_type"),
        )
        if (sessions := self.fetch_sessions) is not None:
            cache = "kafka_server_fetchsessioncache"
            kept = "Incremental fetch sessions kept."
            yield gauge(f"{cache}_numincrementalfetchsessions", kept, len(sessions))
            cached = "Partitions of all incremental fetch sessions."
            yield gauge(f"{cache}_numincrementalfetchpartitionscached", cached, sessions.partition_count)
            evicted = "Incremental fetch sessions that newer ones replaced."
            yield counter(f"{cache}_incrementalfetchsessionevictions", evicted, sessions.evictions)

    def _collect_cluster(self) -> Iterator[Metric]:
        if self.cluster is None:
            return
        counts, prefix = self.cluster(), "kafka_controller_kafkacontroller"
        controller = "1 on the broker that is the controller (ActiveControllerCount)."
        yield gauge(f"{prefix}_activecontrollercount", controller, counts.is_controller)
        active = "Live brokers, as this broker knows (ActiveBrokerCount)."
        yield gauge(f"{prefix}_activebrokercount", active, counts.active_brokers)
        fenced = "Brokers that are registered and have no session (FencedBrokerCount)."
        yield gauge(f"{prefix}_fencedbrokercount", fenced, counts.fenced_brokers)
        yield gauge(f"{prefix}_globalpartitioncount", "Partitions of all brokers.", counts.partitions)
        offline = "Partitions without a leader, of all brokers (OfflinePartitionsCount)."
        yield gauge(f"{prefix}_offlinepartitionscount", offline, counts.offline_partitions)

    def _collect_store(self) -> Iterator[Metric]:
        if self.store is None:
            return
        view = self.store()
        lost = "1 if the store lacks the catalog of this broker, or has an older one."
        yield gauge("tidelog_store_catalog_lost", lost, view.is_lost)
        well = {(each.url,): not each.problem for each in view.members}
        yield gauge("tidelog_store_member_up", "1 if this member of the store serves.", well, "member")
        alarms = dict.fromkeys(((alarm,) for each in view.members for alarm in each.alarms), 1)
        yield gauge("tidelog_store_alarm", "1 for each alarm that the store has.", alarms, "alarm")
        used = {(each.url,): each.used for each in view.members}
        share = "Share of its quota that the data of this member of the store take; 0 if it does not say."
        yield gauge("tidelog_store_quota_used_ratio", share, used, "member")

    def _collect_in_sync(self) -> Iterator[Metric]:
        if self.in_sync is None:
            return
        counts, prefix = self.in_sync(), "kafka_server_replicamanager"
        yield gauge(f"{prefix}_leadercount", "Partitions that this broker leads.", counts.leaders)
        lacking = "Of these, with fewer replicas in sync than replicas (UnderReplicatedPartitions)."
        yield gauge(f"{prefix}_underreplicatedpartitions", lacking, counts.under_replicated)
        few = "Of these, with fewer in sync than min.insync.replicas (UnderMinIsrPartitionCount)."
        yield gauge(f"{prefix}_underminisrpartitioncount", few, counts.under_least)
        moving = "Of these, that are being reassigned (ReassigningPartitions)."
        yield gauge(f"{prefix}_reassigningpartitions", moving, counts.reassigning)
        shrinks = "Changes by which followers left in-sync sets (IsrShrinksPerSec)."
        yield counter(f"{prefix}_isrshrinks", shrinks, counts.shrinks)
        expands = "Changes by which followers joined in-sync sets (IsrExpandsPerSec)."
        yield counter(f"{prefix}_isrexpands", expands, counts.expands)

    def _collect_throttled_replicas(self) -> Iterator[Metric]:
        for side, quota in self.throttled_replicas.items():
            yield counter(
                f"kafka_server_{side}replication_bytes",
                f"Bytes of throttled replicas that this broker moved as a {side} (byte-rate).",
                quota.moved_bytes,
            )

    def _collect_logs(self) -> Iterator[Metric]:
        yield gauge(
            "kafka_server_replicamanager_produceridcount",
            "Producers that the partitions of this broker remember (ProducerIdCount).",
            self.producer_ids(),
        )
        yield counter(
            "tidelog_duplicate_batches",
            "Batches recognised as stored before, and not stored again.",
            self._duplicates,
            "window",
        )
        yield counter(
            "tidelog_snapshots_damaged",
            "Snapshots of producers that were found damaged at the start and set aside.",
            self._snapshots_damaged,
        )
        yield counter(
            "tidelog_log_truncations",
            "Logs whose end was cut off at the start, because a crash or damage left no whole batch there.",
            self._log_truncations,
        )
        cut = "Bytes cut off the ends of logs at the start."
        yield counter("tidelog_log_truncated_bytes", cut, self._log_truncated_bytes)
        shared = "Batches that one fdatasync made durable."
        yield _histogram("tidelog_group_commit_batches", shared, {(): self._group_commit})


def _histogram(name: str, description: str, values: Mapping[Any, Distribution], *labels: str) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    family = HistogramMetricFamily(name, description, labels=labels)
    for given, distribution in values.items():
        family.add_metric(given, distribution.cumulative(), distribution.total)
    return family


_OF_TOPICS: tuple[tuple[str, str, Callable[[_TopicTally], int]], ...] = (
    ("messagesin", "Records appended (MessagesInPerSec).", attrgetter("messages_in")),
    ("bytesin", "Bytes of record batches appended (BytesInPerSec).", attrgetter("bytes_in")),
    ("bytesout", "Bytes of record batches fetched (BytesOutPerSec).", attrgetter("bytes_out")),
    ("failedproducerequests", "Batches refused (FailedProduceRequestsPerSec).", attrgetter("failed")),
)
"""(name, description, value)"""
_AUTHENTICATIONS = (
    (False, True, "successful_authentication", "Clients that were authenticated by SASL."),
    (False, False, "failed_authentication", "Clients that SASL refused."),
    (True, True, "successful_reauthentication", "Clients that authenticated again on their connection."),
    (True, False, "failed_reauthentication", "Clients that were refused when they authenticated again."),
)
"""(whether again, whether successful, name, description)"""
