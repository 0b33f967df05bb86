"""The broker's counts, and the names under which existing Kafka dashboards look for them."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidelog.broker.handlers.fetch_sessions import FetchSessions
from tidelog.broker.observability.metrics import (
    LATENCY_BUCKETS_MS,
    Distribution,
    Metrics,
    TransactionCounts,
    _TopicTally,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartition


def scrape(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, read back by prometheus_client's own parser."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return scrape(metrics)[name, frozenset(labels.items())]


def test_a_request_counts_by_version_and_its_errors_by_name_none_included() -> None:
    metrics = Metrics()
    metrics.request("Produce", 9).succeeded(0.0003)
    metrics.request_finished("Produce", 7, {0: 2, 45: 1}.items(), 0.002)
    metrics.request_finished("Produce", 7, [(ErrorCode.UNKNOWN_SERVER_ERROR, 1), (12345, 1)], 0.002)
    requests = "kafka_network_requestmetrics_requests_total"
    errors = "kafka_network_requestmetrics_errors_total"
    assert value(metrics, requests, request="Produce", version="9") == 1
    assert value(metrics, requests, request="Produce", version="7") == 2
    assert value(metrics, errors, request="Produce", error="NONE") == 3
    assert value(metrics, errors, request="Produce", error="OUT_OF_ORDER_SEQUENCE_NUMBER") == 1
    assert value(metrics, errors, request="Produce", error="UNKNOWN_SERVER_ERROR") == 2


def test_latency_is_a_histogram_in_milliseconds_over_all_versions() -> None:
    metrics = Metrics()
    metrics.request("Fetch", 4).succeeded(0.0001)
    metrics.request("Fetch", 12).succeeded(0.0004)
    metrics.request("Fetch", 12).finished([(0, 1)], 60)
    name = "kafka_network_requestmetrics_totaltimems"
    assert value(metrics, f"{name}_bucket", request="Fetch", le="0.1") == 1
    assert value(metrics, f"{name}_bucket", request="Fetch", le="0.5") == 2
    assert value(metrics, f"{name}_bucket", request="Fetch", le="10000.0") == 2
    assert value(metrics, f"{name}_bucket", request="Fetch", le="+Inf") == 3
    assert value(metrics, f"{name}_count", request="Fetch") == 3
    assert abs(value(metrics, f"{name}_sum", request="Fetch") - 60000.5) < 1e-6


def test_buckets_reach_from_a_tenth_of_a_millisecond_to_ten_seconds() -> None:
    assert (LATENCY_BUCKETS_MS[0], LATENCY_BUCKETS_MS[-1]) == (0.1, 10_000)
    assert list(LATENCY_BUCKETS_MS) == sorted(LATENCY_BUCKETS_MS)


def test_an_observation_on_a_bound_belongs_below_it() -> None:
    distribution = Distribution((1.0, 2.0))
    for observed in (1.0, 1.5, 2.0, 2.5):
        distribution.observe(observed)
    assert distribution.cumulative() == [("1.0", 1), ("2.0", 3), ("+Inf", 4)]


def test_what_happens_to_topics_is_counted_by_topic() -> None:
    metrics = Metrics()
    metrics.batch_appended("flights", 10, 700)
    metrics.batch_appended("flights", 5, 300)
    metrics.bytes_out("flights", 50)
    metrics.produce_failed("other")
    prefix = "kafka_server_brokertopicmetrics_"
    assert value(metrics, f"{prefix}messagesin_total", topic="flights") == 15
    assert value(metrics, f"{prefix}bytesin_total", topic="flights") == 1000
    assert value(metrics, f"{prefix}bytesout_total", topic="flights") == 50
    assert value(metrics, f"{prefix}failedproducerequests_total", topic="other") == 1


def test_a_deleted_topics_series_end() -> None:
    metrics = Metrics()
    metrics.batch_appended("gone", 1, 1)
    metrics.forget_topic("gone")
    metrics.forget_topic("never there")
    assert not any(("topic", "gone") in labels for _, labels in scrape(metrics))


def test_idempotence_shows_in_series_of_its_own() -> None:
    metrics = Metrics()
    metrics.duplicate("in_window")
    metrics.duplicate("in_window")
    metrics.duplicate("below_window")
    metrics.out_of_order()
    metrics.fenced()
    metrics.producer_ids = lambda: 42
    sessions = FetchSessions(10, 10, lambda: 1)
    sessions.open_context(0, 0, [("t", FetchPartition(0, -1, 0, -1, -1, 1))], (), 0, by_id=False)
    metrics.fetch_sessions = sessions
    metrics.group_commit(3)
    assert value(metrics, "tidelog_duplicate_batches_total", window="in_window") == 2
    assert value(metrics, "tidelog_duplicate_batches_total", window="below_window") == 1
    assert value(metrics, "tidelog_out_of_order_batches_total") == 1
    assert value(metrics, "tidelog_fenced_batches_total") == 1
    assert value(metrics, "kafka_server_replicamanager_produceridcount") == 42
    cache = "kafka_server_fetchsessioncache"
    assert value(metrics, f"{cache}_numincrementalfetchsessions") == 1
    assert value(metrics, f"{cache}_numincrementalfetchpartitionscached") == 1
    assert value(metrics, f"{cache}_incrementalfetchsessionevictions_total") == 0
    assert value(metrics, "tidelog_group_commit_batches_sum") == 3
    assert value(metrics, "tidelog_group_commit_batches_bucket", le="2.0") == 0
    assert value(metrics, "tidelog_group_commit_batches_bucket", le="3.0") == 1


def test_two_brokers_in_one_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.out_of_order()
    assert value(first, "tidelog_out_of_order_batches_total") == 1
    assert value(second, "tidelog_out_of_order_batches_total") == 0


def test_transactions_are_counted_by_state_and_prepared_ones_by_age() -> None:
    metrics = Metrics()
    metrics.transactions = lambda: TransactionCounts({"Ongoing": 2}, {"sink": 1.5})
    assert value(metrics, "tidelog_transactions", state="Ongoing") == 2
    assert value(metrics, "tidelog_prepared_transaction_age_seconds", transactional_id="sink") == 1.5


def test_a_name_that_cannot_be_encoded_breaks_no_series() -> None:
    metrics = Metrics()
    metrics.throttles.throttled("produce", "svc\ud800", "client", 1.0)
    assert 'user="svc?"' in metrics.render().decode()


def test_a_look_at_topics_costs_what_has_moved() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.batch_appended(f"t{number}", 1, 10)
    assert metrics.reading()[:3] == (100, 1000, 0)
    assert len(metrics.topic_growth("here")) == len(metrics.topic_growth("there")) == 100
    read: list[_TopicTally] = []

    def counts(tally: _TopicTally) -> tuple[int, int, int]:
        read.append(tally)
        return tally.messages_in, tally.bytes_in, tally.bytes_out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_TopicTally, "counts", property(counts))
        metrics.bytes_out("t7", 5)
        assert metrics.reading()[:3] == (100, 1000, 5)
        assert metrics.reading()[:3] == (100, 1000, 5)
        assert metrics.topic_growth("here") == {"t7": (0, 0, 5)}
        assert metrics.topic_growth("here") == {}
        assert metrics.topic_growth("there") == {"t7": (0, 0, 5)}
        assert len(read) == 2
    metrics.batch_appended("t7", 1, 10)
    metrics.forget_topic("t7")
    assert metrics.topic_growth("here") == {}
    assert metrics.reading()[:3] == (101, 1010, 5)
    metrics.batch_appended("t7", 1, 10)
    assert metrics.topic_growth("here") == {"t7": (1, 10, 0)}


def test_a_reading_sums_topics_versions_and_codes_up() -> None:
    metrics = Metrics()
    metrics.request("Produce", 9).succeeded(0.0003)
    metrics.request_finished("Produce", 7, {0: 2, 45: 1}.items(), 0.002)
    metrics.request_finished("Fetch", 7, {0: 1, 45: 1}.items(), 20)
    metrics.batch_appended("a", 2, 100)
    metrics.batch_appended("b", 3, 50)
    metrics.bytes_out("b", 7)
    metrics.group_commit(4)
    metrics.fenced()
    metrics.authentication_failed("SASL", "plain", is_again=False)
    metrics.authenticated("SASL", "plain", is_again=False)
    metrics.access_denied("READ", "TOPIC")
    found = metrics.reading()
    assert (found.messages_in, found.bytes_in, found.bytes_out) == (5, 150, 7)
    assert found.requests == {"Produce": 2, "Fetch": 1}
    assert found.errors == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 2}
    assert (found.milliseconds["Produce"][2], found.milliseconds["Produce"][4]) == (1, 1)
    assert found.milliseconds["Fetch"][-1] == 1
    assert (found.commits, found.committed_batches) == (1, 4)
    assert found.events["tidelog_fenced_batches"] == 1
    assert (found.events["failed_authentication"], found.events["access_denied"]) == (1, 1)
