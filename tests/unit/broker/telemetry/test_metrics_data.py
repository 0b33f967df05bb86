"""MetricsData as clients push it, and what is no MetricsData."""

import math

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tests.unit.broker.telemetry.payloads import payload
from tidelog.broker.telemetry.metrics_data import MOST_SERIES, Series, Value, decoded, series, with_attributes
from tidelog.protocol.compression import Compression, TooLargeError, compress
from tidelog.protocol.errors import ProtocolError

MOST_BYTES = 1 << 20


def taken(codec: Compression, pushed: bytes) -> dict[Series, Value]:
    return series(decoded(codec, pushed, MOST_BYTES))


@pytest.mark.parametrize("codec", Compression)
def test_gauges_and_sums_are_taken_in_each_compression(codec: Compression) -> None:
    pushed = payload(("a.rate", 1.5), ("a.total", 7), counters=("a.total",), topic="t", other="x")
    topic = (("topic", "t"),)
    assert taken(codec, compress(codec, pushed)) == {
        Series("a.rate", topic): Value(1.5, False),
        Series("a.total", topic): Value(7.0, True),
    }


def test_attributes_of_the_client_are_labels_of_all_its_series() -> None:
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="group_id").value.string_value = "billing"
    resource.resource.attributes.add(key="group_member_id").value.string_value = "m-1"
    metric = resource.scope_metrics.add().metrics.add(name="lag")
    point = metric.gauge.data_points.add(as_int=3)
    point.attributes.add(key="partition").value.int_value = 4
    [found] = taken(Compression.NONE, data.SerializeToString())
    assert found == Series("lag", (("group", "billing"), ("partition", "4")))


def test_histograms_and_numbers_that_are_none_are_left_out() -> None:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    scope.metrics.add(name="h").histogram.data_points.add(count=1)
    scope.metrics.add(name="empty")
    for number in (math.nan, math.inf):
        scope.metrics.add(name="n").gauge.data_points.add(as_double=number)
    assert taken(Compression.NONE, data.SerializeToString()) == {}
    assert taken(Compression.NONE, b"") == {}


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\n\xff\xff\xff\xff\x0f", b"\x0a\x05abc"])
def test_bytes_that_are_no_metrics_are_refused(codec: Compression, garbage: bytes) -> None:
    with pytest.raises(ProtocolError):
        decoded(codec, compress(codec, garbage), MOST_BYTES)
    if codec is not Compression.NONE:
        with pytest.raises(ProtocolError):
            decoded(codec, garbage, MOST_BYTES)


@pytest.mark.parametrize("codec", set(Compression) - {Compression.NONE})
def test_a_push_that_decompresses_to_too_much_is_refused(codec: Compression) -> None:
    with pytest.raises(TooLargeError):
        decoded(codec, compress(codec, bytes(MOST_BYTES + 1)), MOST_BYTES)


def test_series_and_texts_of_one_push_are_bounded() -> None:
    pushed = payload(*((f"m{number}", 1.0) for number in range(MOST_SERIES + 5)))
    assert len(taken(Compression.NONE, pushed)) == MOST_SERIES
    [found] = taken(Compression.NONE, payload(("n" * 999, 1), topic="t" * 999))
    assert (len(found.name), len(found.labels[0][1])) == (200, 200)


def test_a_push_that_is_passed_on_names_its_client_as_the_broker_knows_it() -> None:
    data = MetricsData()
    data.ParseFromString(payload(("a.rate", 1.5)))
    own = data.resource_metrics[0].resource.attributes
    own.add(key="client_id").value.string_value = "someone-else"
    own.add(key="group_id").value.string_value = "billing"
    sent = ExportMetricsServiceRequest()
    sent.ParseFromString(with_attributes(data, {"client_id": "orders", "client_software_name": "librdkafka"}))
    [resource] = sent.resource_metrics
    assert {each.key: each.value.string_value for each in resource.resource.attributes} == {
        "group_id": "billing",
        "client_id": "orders",
        "client_software_name": "librdkafka",
    }
    assert resource.scope_metrics[0].metrics[0].name == "a.rate"
