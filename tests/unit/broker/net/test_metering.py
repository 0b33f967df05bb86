"""A client above its quota: its answers come at once and name a time for which nothing of it is served."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.net.peers import Peer, Running, produce_frame, serving
from tests.unit.broker.observability.test_metrics import value
from tests.waiting import until
from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState
from tidelog.broker.limits.client_quotas import ClientQuotas
from tidelog.broker.net import dispatch
from tidelog.broker.net.metering import Meter
from tidelog.protocol.framing import RequestHeader, decode_response_header
from tidelog.protocol.hot import (
    FetchPartitionResult,
    FetchResponse,
    ProducePartitionResult,
    decode_fetch_response,
    decode_produce_response,
)
from tidelog.protocol.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from tidelog.protocol.schema import ApiKey

PRODUCED = [("t", [ProducePartitionResult(0, 0, 0)])]
RECORDS = b"r" * 5_000
FETCH = {
    "replica_id": -1,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "topics": [],
    "forgotten_topics_data": [],
    "rack_id": "",
}


class Seen:
    """How many requests were served, and the limit under which the last Fetch was."""

    def __init__(self) -> None:
        self.produced = 0
        self.fetch_max_bytes = 0

    def produce(self, context: Any, request: Any) -> Any:
        self.produced += 1
        return PRODUCED if request.acks else None

    def fetch(self, context: Any, request: Any) -> Any:
        self.fetch_max_bytes = context.connection.fetch_max_bytes
        found = FetchPartitionResult(0, 0, 1, 1, 0, None, -1, RECORDS)
        return FetchResponse(0, 0, 0, [("t", [found])])

    def share_fetch(self, context: Any, request: Any) -> Any:
        self.fetch_max_bytes = context.connection.fetch_max_bytes
        partition = {"partition_index": 0, "records": RECORDS}
        return {"responses": [{"topic_id": UUID(int=7), "partitions": [partition]}]}


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def server(seen: Seen) -> AsyncIterator[Running]:
    handlers = {
        ApiKey.PRODUCE: seen.produce,
        ApiKey.FETCH: seen.fetch,
        ApiKey.SHARE_FETCH: seen.share_fetch,
        ApiKey.SHARE_ACKNOWLEDGE: lambda context, request: {},
        ApiKey.API_VERSIONS: lambda context, request: {"error_code": 0},
        ApiKey.METADATA: lambda context, request: {"brokers": [], "topics": []},
    }
    async with serving(handlers) as running:
        yield running


def set_quotas(server: Running, quotas: Mapping[str, float], burst_seconds: float = 1.0) -> None:
    held = ClientQuotas(burst_seconds)
    held.replace({((CLIENT_ID, "test"),): quotas})
    # Its clock stands still, so that a busy machine pays no debt meanwhile.
    server.dispatcher.meter = Meter(held, server.metrics.throttles, now=lambda: 0.0)


async def produced(peer: Peer, version: int = 9) -> int:
    """throttle_time_ms of the next answer."""
    frame = await peer.frame()
    _, position = decode_response_header(ApiKey.PRODUCE, version, frame)
    response = decode_produce_response(version, frame[position:])
    assert response.topics == PRODUCED
    return response.throttle_time_ms


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_a_producer_above_its_quota_is_answered_at_once_and_served_again_later(
    server: Running, seen: Seen, version: int
) -> None:
    frame = produce_frame(version, [("t", [(0, b"x" * 1000)])])
    size = len(frame) - 4
    set_quotas(server, {PRODUCER_BYTE_RATE: 2 * size / 0.3}, burst_seconds=0.0)
    async with await Peer.connect(server.port) as peer:
        began = asyncio.get_running_loop().time()
        peer.send(frame + frame)
        assert await produced(peer, version) == 150
        assert seen.produced == 1
        assert await produced(peer, version) == 300
        assert asyncio.get_running_loop().time() - began >= 0.149
        assert seen.produced == 2


async def test_a_producer_that_expects_no_answer_waits_too(server: Running, seen: Seen) -> None:
    frame = produce_frame(9, [("t", [(0, b"x" * 1000)])], acks=0)
    set_quotas(server, {PRODUCER_BYTE_RATE: 1.0}, burst_seconds=0.0)
    async with await Peer.connect(server.port) as peer:
        peer.send(frame + frame)
        await until(lambda: seen.produced)
        async with await Peer.connect(server.port) as other:
            await other.ask(ApiKey.API_VERSIONS, 3)
        assert seen.produced == 1


async def test_a_consumer_above_its_quota_waits_and_gets_at_most_its_burst(
    server: Running, seen: Seen
) -> None:
    set_quotas(server, {CONSUMER_BYTE_RATE: 2_000.0}, burst_seconds=2.0)
    async with await Peer.connect(server.port) as peer:
        peer.request(ApiKey.FETCH, 12, FETCH)
        frame = await peer.frame()
        _, position = decode_response_header(ApiKey.FETCH, 12, frame)
        response = decode_fetch_response(12, frame[position:])
        assert response.throttle_time_ms == (len(frame) - position - 4_000) / 2
        assert bytes(response.topics[0][1][0].records or b"") == RECORDS
        assert seen.fetch_max_bytes == 4_000


async def test_a_member_of_a_share_group_waits_as_a_consumer_but_not_for_its_acknowledgements(
    server: Running, seen: Seen
) -> None:
    set_quotas(server, {CONSUMER_BYTE_RATE: 50_000.0}, burst_seconds=0.08)
    member = {"group_id": "g", "member_id": "m", "share_session_epoch": 0, "topics": []}
    fetch = {"max_wait_ms": 0, "min_bytes": 0, "max_records": 1, "batch_size": 1, "forgotten_topics_data": []}
    async with await Peer.connect(server.port) as peer:
        answer = await peer.ask(ApiKey.SHARE_FETCH, 1, {**member, **fetch})
        assert 20 <= answer.throttle_time_ms <= 22
        assert seen.fetch_max_bytes == 4_000
        assert not (await peer.ask(ApiKey.SHARE_ACKNOWLEDGE, 1, member)).throttle_time_ms


async def test_the_time_of_the_event_loop_is_a_quota_of_every_request(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()  # 0.1 ms pass from one to the next, however busy the machine is.
    monkeypatch.setattr(dispatch, "_now", lambda: next(looks) / 10_000)
    set_quotas(server, {REQUEST_PERCENTAGE: 1.0}, burst_seconds=0.0)
    async with await Peer.connect(server.port) as peer:
        times = [(await peer.ask(ApiKey.METADATA, 12, {"topics": []})).throttle_time_ms for _ in range(3)]
    assert times[2] > times[1] > times[0] == 0


async def test_quotas_of_others_cost_a_client_nothing(server: Running) -> None:
    held = ClientQuotas(1.0)
    held.replace({((USER, "alice"),): {PRODUCER_BYTE_RATE: 1.0}})
    server.dispatcher.meter = Meter(held, server.metrics.throttles)
    async with await Peer.connect(server.port) as peer:
        for _ in range(3):
            peer.send(produce_frame(9, [("t", [(0, b"x" * 1000)])]))
            assert await produced(peer) == 0


async def test_a_client_that_is_not_authenticated_uses_no_quota_of_the_client_id_that_it_names(
    server: Running,
) -> None:
    state = ConnectionState(1, Listener("S", "h", 1), SecurityProtocol.SASL_PLAINTEXT, "10.0.0.1")
    header = RequestHeader(ApiKey.PRODUCE, 9, 1, "test")
    for step in AuthenticationStep:
        held = ClientQuotas(0.0)
        held.replace({((CLIENT_ID, "test"),): {PRODUCER_BYTE_RATE: 1.0, REQUEST_PERCENTAGE: 1.0}})
        meter = Meter(held, server.metrics.throttles, now=lambda: 0.0)
        state.authentication = step
        meter.arrived(state, header, 1_000)
        meter.worked(state, header, 1.0)
        debts = [one.delay_seconds(0.0) for one in held.buckets("ANONYMOUS", "test") if one is not None]
        assert any(debts) is (step.name in ("AUTHENTICATED", "NOT_REQUIRED")), step


async def test_throttling_is_counted_per_quota_and_client(server: Running) -> None:
    set_quotas(server, {PRODUCER_BYTE_RATE: 100_000.0}, burst_seconds=0.0)
    async with await Peer.connect(server.port) as peer:
        peer.send(produce_frame(9, [("t", [(0, b"x" * 1000)])]))
        await produced(peer)
    labels = {"quota": PRODUCER_BYTE_RATE, "user": "ANONYMOUS", "client_id": "test"}
    assert value(server.metrics, "tidelog_throttled_requests_total", **labels) == 1
    assert 0 < value(server.metrics, "tidelog_throttle_time_seconds_total", **labels) < 1
