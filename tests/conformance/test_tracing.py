"""Spans of records as OpenTelemetry's own SDK sees them, through a broker."""

from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tidelog import Consumer, ConsumerRecord, RecordTooLargeError
from tidelog.broker.testing.embedded import EmbeddedBroker
from tidelog.tracing import TracingProducer, processing_span

_EXPORTER = InMemorySpanExporter()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    # A process has one provider for all of its life.
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_EXPORTER))
        trace.set_tracer_provider(provider)
    _EXPORTER.clear()
    return _EXPORTER


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


async def read_one(servers: str, topic: str) -> ConsumerRecord:
    async with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        return await consumer.getone()


def only(spans: InMemorySpanExporter) -> ReadableSpan:
    [span] = spans.get_finished_spans()
    return span


async def test_a_sent_record_has_a_span_that_ends_when_it_is_stored(
    servers: str, spans: InMemorySpanExporter
) -> None:
    async with TracingProducer(bootstrap_servers=servers, linger_ms=60_000) as producer:
        await producer.send("orders", b"0")
        await producer.flush()
        spans.clear()
        delivery = await producer.send("orders", b"7", key=b"k", headers=[("own", b"1")])
        assert not spans.get_finished_spans()
        await producer.flush()
        stored = await delivery
    span = only(spans)
    assert (span.name, span.kind, span.status.is_ok) == ("send orders", trace.SpanKind.PRODUCER, True)
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": str(stored.partition),
        "messaging.kafka.offset": stored.offset,
        "messaging.kafka.message.key": "k",
    }


async def test_the_span_of_processing_links_to_that_of_sending_over_the_headers(
    servers: str, spans: InMemorySpanExporter
) -> None:
    async with TracingProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"7", headers=[("own", b"1")])
    sent = only(spans).get_span_context()
    spans.clear()
    record = await read_one(servers, "orders")
    assert record.headers[0] == ("own", b"1")
    with processing_span(record, group_id="billing"):
        pass
    span = only(spans)
    assert span.attributes is not None
    assert (span.name, span.kind) == ("process orders", trace.SpanKind.CONSUMER)
    assert span.attributes["messaging.consumer.group.name"] == "billing"
    assert [link.context.span_id for link in span.links] == [sent.span_id]
    assert span.parent is not None
    assert (span.parent.span_id, span.get_span_context().trace_id) == (sent.span_id, sent.trace_id)

    with trace.get_tracer("test").start_as_current_span("batch") as batch, processing_span(record):
        pass
    within = next(each for each in spans.get_finished_spans() if each.name != "batch" and each is not span)
    assert within.parent == batch.get_span_context()
    assert [link.context.span_id for link in within.links] == [sent.span_id]


async def test_a_record_without_a_context_has_a_span_without_a_link(
    servers: str, spans: InMemorySpanExporter
) -> None:
    async with TracingProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", None, key=b"\xff", headers=[("own", None)])
    record = await read_one(servers, "orders")
    spans.clear()
    with processing_span(record._replace(headers=(("traceparent", b"\xff"), ("traceparent", None)))):
        pass
    span = only(spans)
    assert span.attributes is not None
    assert (span.parent, list(span.links)) == (None, [])
    assert span.attributes["messaging.kafka.message.tombstone"] is True
    assert "messaging.kafka.message.key" not in span.attributes


async def test_what_fails_is_an_error_of_its_span(servers: str, spans: InMemorySpanExporter) -> None:
    async with TracingProducer(bootstrap_servers=servers) as producer:
        with pytest.raises(RecordTooLargeError):
            await producer.send("orders", bytes(2_000_000))
        await producer.send_and_wait("orders", b"7")
    refused = spans.get_finished_spans()[0]
    record = await read_one(servers, "orders")
    with pytest.raises(ValueError), processing_span(record):
        raise ValueError("no such article")
    failed = spans.get_finished_spans()[-1]
    for span, name in ((refused, "RecordTooLargeError"), (failed, "ValueError")):
        assert not span.status.is_ok
        assert span.attributes is not None
        assert span.attributes["error.type"] == name
        assert [event.name for event in span.events] == ["exception"]


async def test_a_record_that_is_given_up_ends_its_span_with_the_error(
    servers: str, spans: InMemorySpanExporter
) -> None:
    async with TracingProducer(bootstrap_servers=servers, linger_ms=60_000) as producer:
        await producer.send("orders", b"0")
        await producer.flush()
        spans.clear()
        delivery = await producer.send("orders", b"1")
        await producer.stop(timeout_ms=0)
        error = delivery.exception()
    assert error is not None
    span = only(spans)
    assert (span.attributes or {})["error.type"] == type(error).__qualname__
