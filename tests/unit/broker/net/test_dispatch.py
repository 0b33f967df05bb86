"""One request's way: versions, decoding, errors that become codes, and what is counted."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.net.peers import produce_frame, request_frame
from tests.unit.broker.observability.test_metrics import value
from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState
from tidelog.broker.handlers.context import Handler, LateAnswer, RequestContext
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.exchange import BadRequest, Exchange
from tidelog.broker.net.routes import RouteTable
from tidelog.broker.observability.metrics import Metrics
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.framing import decode_response_header, encode_request_frame
from tidelog.protocol.hot import (
    FetchResponse,
    ProducePartitionResult,
    decode_fetch_response,
    decode_produce_response,
)
from tidelog.protocol.schema import APIS, ApiKey, decode_response

ERRORS = "kafka_network_requestmetrics_errors_total"
REQUESTS = "kafka_network_requestmetrics_requests_total"


class FakeClient:
    """The plain facts of a connection, and its requests that became ready."""

    def __init__(self, routes: RouteTable) -> None:
        listener = Listener("OUTSIDE", "broker", 9092)
        self.state = ConnectionState(7, listener, SecurityProtocol.PLAINTEXT, "10.1.2.3")
        self.routes = routes
        self.ready: asyncio.Queue[Exchange] = asyncio.Queue()

    def answer_ready(self, pending: Exchange) -> None:
        self.ready.put_nowait(pending)


class Bench:
    """A dispatcher over handlers of a test, one client, and its metrics."""

    def __init__(self, handlers: Mapping[ApiKey, Handler]) -> None:
        self.metrics = Metrics()
        self.dispatcher = Dispatcher(handlers, self.metrics, PeerEvents())
        self.client = FakeClient(self.dispatcher.routes_at(AuthenticationStep.NOT_REQUIRED))

    def send(self, frame: bytes) -> Any:
        return self.dispatcher.dispatch(self.client, memoryview(frame)[4:], 0.0)

    def ask(self, api_key: ApiKey, version: int, **values: object) -> Any:
        """The decoded answer to a request whose handler answers at once."""
        return response_in(api_key, version, self.send(request_frame(api_key, version, values, 99)))


def body_in(api_key: ApiKey, version: int, answer: Any) -> tuple[int, bytes]:
    frame = b"".join(answer)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = decode_response_header(api_key, version, frame[4:])
    return correlation_id, frame[4 + position :]


def response_in(api_key: ApiKey, version: int, answer: Any) -> Any:
    correlation_id, body = body_in(api_key, version, answer)
    assert correlation_id == 99
    return decode_response(api_key, version, body)


def raising(error: Exception) -> Handler:
    def handle(context: RequestContext, request: Any) -> Any:
        raise error

    return handle


def init_producer_id(context: RequestContext, request: Any) -> Any:
    return {"error_code": 0, "producer_id": 5, "producer_epoch": 0}


def test_a_handler_gets_the_header_and_the_state_of_the_connection() -> None:
    seen: list[RequestContext] = []

    def handle(context: RequestContext, request: Any) -> Any:
        seen.append(context)
        return {}

    bench = Bench({ApiKey.METADATA: handle})
    bench.ask(ApiKey.METADATA, 9, topics=[])
    (context,) = seen
    assert (context.header.api_key, context.header.api_version, context.header.client_id) == (3, 9, "test")
    assert context.connection is bench.client.state


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0_with_its_own_range(version: int) -> None:
    bench = Bench({ApiKey.API_VERSIONS: lambda context, request: {}})
    frame = b"".join(encode_request_frame(ApiKey.API_VERSIONS, version, 99, "test", b"whatever came"))
    response = response_in(ApiKey.API_VERSIONS, 0, bench.send(frame))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]
    assert value(bench.metrics, ERRORS, request="ApiVersions", error="UNSUPPORTED_VERSION") == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_before_3_answers_unsupported_version_for_each_partition(version: int) -> None:
    body = b"".join(
        (
            (-1).to_bytes(2, "big", signed=True),  # acks
            (1000).to_bytes(4, "big"),  # timeout
            (1).to_bytes(4, "big") + b"\0\1t",  # topics
            (1).to_bytes(4, "big") + (4).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"old",
        )
    )
    bench = Bench({ApiKey.PRODUCE: raising(AssertionError("never called"))})
    answer = bench.send(b"".join(encode_request_frame(ApiKey.PRODUCE, version, 99, "test", body)))
    correlation_id, response = body_in(ApiKey.PRODUCE, version, answer)
    expected = (1).to_bytes(4, "big") + b"\0\1t" + (1).to_bytes(4, "big") + (4).to_bytes(4, "big")
    expected += ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big") + (-1).to_bytes(8, "big", signed=True)
    if version >= 2:
        expected += (-1).to_bytes(8, "big", signed=True)
    if version >= 1:
        expected += bytes(4)
    assert (correlation_id, response) == (99, expected)


@pytest.mark.parametrize(
    ("api_key", "version", "reason"),
    [
        (ApiKey.METADATA, 14, "expected Metadata version 0 to 13, got 14"),
        (ApiKey.FETCH, 3, "expected Fetch version 4 to 18, got 3"),
        (
            ApiKey.PRODUCE,
            99,
            f"expected Produce version 3 to {APIS[ApiKey.PRODUCE].max_version}, got 99",
        ),
        (41, 0, "API key 41 is not served"),
        (999, 0, "API key 999 is not served"),
    ],
)
def test_what_is_not_served_and_has_no_answer_closes_the_connection(
    api_key: int, version: int, reason: str
) -> None:
    bench = Bench({ApiKey.METADATA: init_producer_id, ApiKey.FETCH: init_producer_id})
    with pytest.raises(BadRequest) as caught:
        bench.send(b"".join(encode_request_frame(api_key, version, 1, "test", b"")))
    assert caught.value.reason == reason
    assert caught.value.header is not None
    assert caught.value.header.api_key == api_key


@pytest.mark.parametrize(
    "frame", [b"", b"\0\3", b"\0\3\0\1", b"\0\3\0\1\0\0\0\1\0\x20x", b"\0\3\0\1\0\0\0\1\xff\xfe"]
)
def test_a_header_that_breaks_off_is_a_bad_request(frame: bytes) -> None:
    with pytest.raises(BadRequest, match="request header"):
        Bench({}).send(len(frame).to_bytes(4, "big") + frame)


def test_a_body_that_is_not_the_protocol_is_a_bad_request_that_names_its_header() -> None:
    frame = b"".join(encode_request_frame(ApiKey.METADATA, 9, 1, "test", b"\xff\xff\xff\xff\x0f"))
    with pytest.raises(BadRequest) as caught:
        Bench({ApiKey.METADATA: init_producer_id}).send(frame)
    assert caught.value.header is not None
    assert caught.value.header[:2] == (ApiKey.METADATA, 9)


def test_an_api_error_becomes_that_apis_error_answer_without_a_log_event() -> None:
    bench = Bench({ApiKey.DESCRIBE_CLUSTER: raising(ApiError(ErrorCode.INVALID_REQUEST, "because"))})
    with capture_logs() as events:
        response = bench.ask(ApiKey.DESCRIBE_CLUSTER, 0)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, "because")
    assert events == []


async def test_an_unexpected_exception_becomes_unknown_server_error_and_one_event_with_its_traceback() -> (
    None
):
    bench = Bench({ApiKey.INIT_PRODUCER_ID: raising(ZeroDivisionError("why"))})
    with capture_logs() as events:
        response = bench.ask(ApiKey.INIT_PRODUCER_ID, 4)
    assert (response.error_code, response.producer_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    (event,) = events
    assert (event["event"], event["api"], event["api_version"]) == ("request_failed", "InitProducerId", 4)
    assert (event["peer"], event["client_id"]) == ("10.1.2.3", "test")
    assert event["exc_info"].__traceback__ is not None
    assert value(bench.metrics, ERRORS, request="InitProducerId", error="UNKNOWN_SERVER_ERROR") == 1


async def test_a_response_that_cannot_be_encoded_is_an_unexpected_exception() -> None:
    bench = Bench({ApiKey.INIT_PRODUCER_ID: lambda context, request: {"error_code": 0, "no_such_field": 1}})
    with capture_logs() as events:
        response = bench.ask(ApiKey.INIT_PRODUCER_ID, 4)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [event["event"] for event in events] == ["request_failed"]
    assert value(bench.metrics, REQUESTS, request="InitProducerId", version="4") == 1


def test_a_success_counts_once_with_error_none() -> None:
    bench = Bench({ApiKey.INIT_PRODUCER_ID: init_producer_id})
    bench.ask(ApiKey.INIT_PRODUCER_ID, 4)
    assert value(bench.metrics, REQUESTS, request="InitProducerId", version="4") == 1
    assert value(bench.metrics, ERRORS, request="InitProducerId", error="NONE") == 1


def produced(*codes: int) -> list[tuple[str, list[ProducePartitionResult]]]:
    return [("t", [ProducePartitionResult(index, code, 10 * index) for index, code in enumerate(codes)])]


def test_acks_0_has_no_answer_and_counts() -> None:
    bench = Bench({ApiKey.PRODUCE: lambda context, request: None})
    assert b"".join(bench.send(produce_frame(9, [("t", [(0, b"x")])], acks=0))) == b""
    assert value(bench.metrics, REQUESTS, request="Produce", version="9") == 1


async def test_a_future_is_waited_for_without_a_task() -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    bench = Bench({ApiKey.PRODUCE: lambda context, request: future})
    tasks = asyncio.all_tasks()
    pending = bench.send(produce_frame(9, [("t", [(0, b"x")])]))
    assert isinstance(pending, Exchange)
    assert (pending.answer, asyncio.all_tasks()) == (None, tasks)
    future.set_result(produced(0))
    assert await bench.client.ready.get() is pending
    _, body = body_in(ApiKey.PRODUCE, 9, pending.answer)
    assert decode_produce_response(9, body).topics[0][1][0].error_code == 0
    assert value(bench.metrics, ERRORS, request="Produce", error="NONE") == 1


def test_what_a_late_answer_has_already_is_answered_at_once() -> None:
    late = LateAnswer()
    late.give(ApiError(ErrorCode.REQUEST_TIMED_OUT))
    bench = Bench({ApiKey.CREATE_TOPICS: lambda context, request: late})
    response = bench.ask(ApiKey.CREATE_TOPICS, 5, topics=[{"name": "t"}])
    assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_coroutine_is_run_and_its_exceptions_become_codes() -> None:
    async def fail() -> Any:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)

    bench = Bench({ApiKey.CREATE_TOPICS: lambda context, request: fail()})
    bench.send(request_frame(ApiKey.CREATE_TOPICS, 5, {"topics": [{"name": "t"}]}, 99))
    pending = await bench.client.ready.get()
    response = response_in(ApiKey.CREATE_TOPICS, 5, pending.answer)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("t", ErrorCode.REQUEST_TIMED_OUT)
    ]


async def test_a_large_request_that_waits_keeps_its_names_and_not_its_records() -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    bench = Bench({ApiKey.PRODUCE: lambda context, request: future})
    frame = bytearray(produce_frame(9, [("t", [(3, bytes(100_000))])]))
    view = memoryview(frame)
    bench.dispatcher.dispatch(bench.client, view[4:], 0.0)
    view.release()
    frame.clear()  # BufferError if anything still looked into it.
    with capture_logs():
        future.set_exception(RuntimeError("disk"))
        pending = await bench.client.ready.get()
    _, body = body_in(ApiKey.PRODUCE, 9, pending.answer)
    (topic,) = decode_produce_response(9, body).topics
    assert (topic[0], topic[1][0].index, topic[1][0].error_code) == ("t", 3, ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_an_abandoned_long_poll_is_cancelled_and_an_abandoned_append_is_not() -> None:
    cancelled = asyncio.Event()

    async def long_poll() -> Any:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    bench = Bench(
        {ApiKey.FETCH: lambda context, request: long_poll(), ApiKey.PRODUCE: lambda context, request: future}
    )
    fetch = bench.send(request_frame(ApiKey.FETCH, 4, {"topics": []}))
    append = bench.send(produce_frame(9, [("t", [(0, b"x")])]))
    await asyncio.sleep(0)  # The task has begun.
    fetch.abandon()
    append.abandon()
    await cancelled.wait()
    assert not future.cancelled()
    future.set_exception(RuntimeError("nobody is left to hear this"))
    await asyncio.sleep(0)
    assert bench.client.ready.empty()


async def test_an_interrupted_fetch_is_answered_and_everything_else_goes_on() -> None:
    async def forever() -> Any:
        await asyncio.get_running_loop().create_future()

    bench = Bench(
        {
            ApiKey.FETCH: lambda context, request: forever(),
            ApiKey.CREATE_TOPICS: lambda context, request: forever(),
        }
    )
    fetch = bench.send(request_frame(ApiKey.FETCH, 7, {"topics": []}))
    create = bench.send(request_frame(ApiKey.CREATE_TOPICS, 5, {"topics": []}))
    create.interrupt()
    fetch.interrupt()
    assert await bench.client.ready.get() is fetch
    _, body = body_in(ApiKey.FETCH, 7, fetch.answer)
    assert decode_fetch_response(7, body).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    create.abandon()


def test_fetch_bytes_reach_the_wire_uncopied() -> None:
    from tidelog.protocol.hot import FetchPartitionResult

    records = memoryview(bytes(100_000))
    result = FetchPartitionResult(0, 0, 1, 1, 0, None, -1, [records])
    bench = Bench({ApiKey.FETCH: lambda context, request: FetchResponse(0, 0, 0, [("t", [result])])})
    answer = bench.send(request_frame(ApiKey.FETCH, 12, {"topics": []}))
    assert any(buffer is records for buffer in answer)
