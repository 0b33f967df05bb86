"""Raw sockets against a running broker: what a peer may not do to it, and what it answers to old clients."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.unit.broker.net.peers import Peer, produce_frame
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.served_apis import BETWEEN_BROKERS, SERVED_APIS
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.schema import ApiKey

MAX_FRAME = 1 << 20
SEED = 20_000
BODIES_PER_API = 8
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    """One for all tests: none of them may change what the next one meets."""
    folder = tmp_path_factory.mktemp("broker")
    config = BrokerConfig(port=0, http_port=-1, data_dir=folder, socket_request_max_bytes=MAX_FRAME)
    async with await Broker.start(config) as running:
        yield running


def frame(api_key: int, version: int, body: bytes) -> bytes:
    return b"".join(encode_request_frame(api_key, version, 1, "test", body))


def memory_kb() -> int:
    fields = Path("/proc/self/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1])


async def refused(broker: Broker, data: bytes) -> dict[str, object]:
    """Send `data`; the connection must close with nothing answered. Returns its one log event."""
    with capture_logs() as events:
        async with await Peer.connect(broker.port) as peer:
            peer.send(data)
            assert await peer.closed() == b""
    (event,) = events
    assert event["event"] == "connection_closed_bad_request"
    return dict(event)


async def still_serves(broker: Broker) -> None:
    async with await Peer.connect(broker.port) as peer:
        assert (await peer.ask(ApiKey.API_VERSIONS, 3)).error_code == 0


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.METADATA, 1, (2**31 - 1).to_bytes(4, "big")),  # topics: two billion
        (
            ApiKey.METADATA,
            1,
            (1).to_bytes(4, "big") + (32767).to_bytes(2, "big") + b"t",
        ),  # name: longer than all
        (ApiKey.METADATA, 9, b"\xff\xff\xff\xff\x0f"),  # a compact length of four billion
        (ApiKey.METADATA, 9, b"\x80" * 20),  # a varint that does not end
        (ApiKey.PRODUCE, 3, b"\xff\xff" + bytes(6) + (2**31 - 1).to_bytes(4, "big")),
        (ApiKey.PRODUCE, 9, b"\x00" + bytes(6) + b"\xff\xff\xff\xff\x07"),
        (ApiKey.FETCH, 12, bytes(21) + b"\xff\xff\xff\xff\x07"),
        (ApiKey.API_VERSIONS, 3, b"\x02a\x02b\xff\xff\xff\xff\x0f"),  # tagged fields: four billion
        (ApiKey.METADATA, 1, (1).to_bytes(4, "big") + b"\0\1\xff"),  # not UTF-8
    ],
)
async def test_lengths_inside_a_request_are_checked_before_memory_is_taken(
    broker: Broker, api_key: ApiKey, version: int, body: bytes
) -> None:
    before = memory_kb()
    event = await refused(broker, frame(api_key, version, body))
    assert (event["api_key"], event["api_version"]) == (api_key, version)
    assert memory_kb() - before < 20 * 1024
    await still_serves(broker)


async def test_random_bytes_for_any_api_are_answered_or_close_that_connection_and_nothing_else(
    broker: Broker,
) -> None:
    for api_key, served in SERVED_APIS.items():
        draw = random.Random(SEED + api_key)
        with capture_logs() as events:
            for _ in range(BODIES_PER_API):
                version = draw.randint(served.first, served.last)
                body = draw.randbytes(draw.randint(0, 60))
                async with await Peer.connect(broker.port) as peer:
                    peer.send(frame(api_key, version, body))
                    peer.writer.write_eof()
                    await peer.closed()
        assert "request_failed" not in {event["event"] for event in events}, f"{api_key}, seed {SEED}"
        await still_serves(broker)


async def test_every_advertised_range_is_the_one_that_is_served(broker: Broker) -> None:
    async with await Peer.connect(broker.port) as peer:
        response = await peer.ask(ApiKey.API_VERSIONS, 4)
    ranges = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert ranges[ApiKey.PRODUCE][0] == 0
    served = SERVED_APIS.keys() - BETWEEN_BROKERS
    assert ranges == {key: (SERVED_APIS[key].advertised_first, SERVED_APIS[key].last) for key in served}


async def test_half_a_frame_and_silence_hold_nothing_up(broker: Broker) -> None:
    async with await Peer.connect(broker.port) as silent:
        silent.send(produce_frame(9, [("t", [(0, bytes(1000))])])[:500])
        await asyncio.gather(*(still_serves(broker) for _ in range(20)))
