"""Spans of OpenTelemetry for records that are sent and processed: `pip install "tidelog[tracing]"`.

    async with TracingProducer(bootstrap_servers=...) as producer: ...

    async for record in consumer:
        with processing_span(record, group_id="billing"):
            ...

The headers of a record carry the context of the span that sent it, in the format of the global propagator
(`traceparent` by default). Source: OpenTelemetry's semantic conventions for messaging and Kafka, 1.30.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Union

from opentelemetry import propagate, trace
from opentelemetry.propagators.textmap import Getter, Setter

from tidelog.client.producer.delivery import Delivery
from tidelog.client.producer.producer import Headers, Producer
from tidelog.client.types import ConsumerRecord, RecordHeaders, SentKT, SentVT
from tidelog.wire.errors import ClientError

if TYPE_CHECKING:
    from tidelog.client.share.records import ShareRecord

Record = TypeVar("Record", bound=Union[ConsumerRecord[Any, Any], "ShareRecord[Any, Any]"])
Attributes = dict[str, str | int | bool]


class TracingProducer(Producer[SentKT, SentVT]):
    """A `Producer` with a span for each record that `send` and `send_and_wait` take, from the call until the
    record is stored or given up. Batches of `send_batch` have no spans."""

    async def send(
        self,
        topic: str,
        value: SentVT | None = None,
        key: SentKT | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        span = trace.get_tracer("tidelog").start_span(
            f"send {topic}", kind=trace.SpanKind.PRODUCER, attributes=_attributes("send", topic, key, value)
        )
        carried = list(headers or ())
        propagate.inject(carried, trace.set_span_in_context(span), _SETTER)
        try:
            delivery = await super().send(topic, value, key, partition, timestamp_ms, carried)
        except BaseException as error:
            _fail(span, error)
            span.end()
            raise
        delivery.add_done_callback(partial(_end, span))
        return delivery


@contextmanager
def processing_span(record: Record, *, group_id: str | None = None) -> Iterator[trace.Span]:
    """The current span while the body processes a record of a consumer or a share consumer.

    It links to the span that sent the record. That is its parent too if no other span is current. An
    exception of the body is recorded.
    """
    sent = propagate.extract(record.headers, getter=_GETTER)
    sender = trace.get_current_span(sent).get_span_context()
    attributes = _attributes("process", record.topic, record.key, record.value) | {
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
    }
    if group_id is not None:
        attributes["messaging.consumer.group.name"] = group_id
    with trace.get_tracer("tidelog").start_as_current_span(
        f"process {record.topic}",
        None if trace.get_current_span().get_span_context().is_valid else sent,
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        links=[trace.Link(sender)] if sender.is_valid else [],
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


def _attributes(operation: str, topic: str, key: object, value: object) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }
    if isinstance(key, bytes):
        # As the conventions have it, a key without one clear form as text is left out.
        try:
            key = key.decode()
        except UnicodeDecodeError:
            key = None
    if isinstance(key, str | int):
        attributes["messaging.kafka.message.key"] = str(key)
    if value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    return attributes


def _end(span: trace.Span, delivery: Delivery) -> None:
    span.set_attribute("messaging.destination.partition.id", str(delivery.partition))
    try:
        stored = delivery.result()
    except ClientError as error:
        _fail(span, error)
    else:
        if stored.offset >= 0:
            span.set_attribute("messaging.kafka.offset", stored.offset)
    span.end()


def _fail(span: trace.Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))


class _HeaderSetter(Setter[list[tuple[str, bytes | None]]]):  # type: ignore[misc]
    """Puts the context of a span into the headers of a record."""

    def set(self, carrier: list[tuple[str, bytes | None]], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


class _HeaderGetter(Getter[RecordHeaders]):  # type: ignore[misc]
    """Finds the context of a span in the headers of a record; of several with one name the last counts."""

    def get(self, carrier: RecordHeaders, key: str) -> list[str] | None:
        found = [
            value.decode(errors="replace") for name, value in carrier if name == key and value is not None
        ]
        return found[-1:] or None

    def keys(self, carrier: RecordHeaders) -> list[str]:
        return [name for name, _ in carrier]


_SETTER = _HeaderSetter()
_GETTER = _HeaderGetter()
