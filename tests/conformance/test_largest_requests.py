"""Whatever one client asks, another waits for one step of it: counted in calls and turns, not in seconds.

Every list of every API's request is filled in turn, with equal and with different elements, so an API that is
added is tested too. A loop that yields too rarely makes more calls in a turn than are allowed.
"""

import asyncio
import cProfile
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from faults.hostile.largest import Large, largest_requests
from tests.unit.broker.net.peers import Peer, produce_frame
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import FetchPartition, FetchRequest, encode_fetch_request
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import MAX_REQUEST_ELEMENTS, ApiKey

TOPIC = "there"
PARTITIONS = 200
ELEMENTS = MAX_REQUEST_ELEMENTS // 40
"""Ten calls for each element, in one turn, would be too many already."""
MOST_CALLS_PER_TURN = 25_000
MOST_TURNS_PER_ANSWER = 60
_IDLE_CALLS = 25
"""More than in a turn that does nothing but count: such turns pass while the kernel delivers a packet."""


class Heartbeat:
    """Counts the turns of the loop that do something, and the calls in each: a measure of work that no busy
    machine changes."""

    def __init__(self) -> None:
        self.turns = 0
        self.most_calls = 0
        self.busiest: list[tuple[int, str]] = []
        self._profile = cProfile.Profile(subcalls=False)
        self._handle: asyncio.Handle | None = None

    def beat(self) -> None:
        self._profile.disable()
        stats = self._profile.getstats()
        calls = sum(entry.callcount for entry in stats)
        if calls > self.most_calls:
            self.most_calls = calls
            self.busiest = sorted(((entry.callcount, str(entry.code)) for entry in stats), reverse=True)[:5]
        self._profile.clear()
        self.turns += calls > _IDLE_CALLS
        self._handle = asyncio.get_running_loop().call_soon(self.beat)
        self._profile.enable()

    def stop(self) -> None:
        self._profile.disable()
        if self._handle is not None:
            self._handle.cancel()


in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(memory: Path | None) -> AsyncIterator[Broker]:
    """On files in memory: the heartbeat would count the turns of each wait for a disk."""
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        config = BrokerConfig(port=0, http_port=-1, data_dir=Path(folder))
        async with await Broker.start(config) as broker:
            yield broker


@pytest_asyncio.fixture(loop_scope="module")
async def broker(running: Broker) -> Broker:
    """The broker, with the topic: a test before this one may have deleted it."""
    async with await Peer.connect(running.port) as peer:
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
        await peer.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 1000})
    return running


async def assert_others_are_served(broker: Broker, frame: bytes, asked: str = "") -> None:
    """Send the frame; until it is answered or its connection closed, another client asks again and again."""
    async with await Peer.connect(broker.port) as other, await Peer.connect(broker.port) as peer:
        await other.ask(ApiKey.METADATA, 9, {"topics": [{"name": TOPIC}]})
        heartbeat = Heartbeat()
        heartbeat.beat()
        peer.send(frame)
        answered = asyncio.ensure_future(peer.reader.readexactly(4))
        most_turns = 0
        try:
            while not answered.done():
                before = heartbeat.turns
                await other.ask(ApiKey.DESCRIBE_CLUSTER, 0)
                most_turns = max(most_turns, heartbeat.turns - before)
        finally:
            heartbeat.stop()
        assert heartbeat.most_calls <= MOST_CALLS_PER_TURN, (asked, heartbeat.busiest)
        assert most_turns <= MOST_TURNS_PER_ANSWER, asked
        if answered.exception() is None:
            await peer.reader.readexactly(int.from_bytes(answered.result(), "big"))


VERSIONS = {key: served.last for key, served in SERVED_APIS.items()}
# Each of their elements takes a coordinator many calls: fewer of them are too many for one turn.
TRANSITIONS = {
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.DELETE_GROUPS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.OFFSET_FETCH,
    ApiKey.WRITE_TXN_MARKERS,
}
WITHOUT_LISTS = {
    ApiKey.ASK_CONSOLE,
    ApiKey.HEARTBEAT,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}


def largest_of(api: ApiKey) -> list[Large]:
    """Equal elements are found in one place for each API: one list of them is enough."""
    elements = ELEMENTS // 5 if api in TRANSITIONS else ELEMENTS
    requests = list(largest_requests(TOPIC, {api: VERSIONS[api]}, elements))
    first_repeated = [each for each in requests if each.is_repeated][:1]
    return first_repeated + [each for each in requests if not each.is_repeated]


def frame_of(large: Large) -> bytes:
    return b"".join(encode_request_frame(large.api, large.version, 1, "hostile", large.body))


@pytest.mark.parametrize("api", sorted(SERVED_APIS.keys() - WITHOUT_LISTS), ids=lambda api: api.name)
@in_one_loop
async def test_large_requests_keep_others_waiting_for_one_step_of_them(broker: Broker, api: ApiKey) -> None:
    requests = largest_of(api)
    assert requests, "it has no list in its request: it belongs in WITHOUT_LISTS"
    for large in requests:
        await assert_others_are_served(broker, frame_of(large), str(large))


@in_one_loop
async def test_so_does_one_whose_elements_allow_no_call_for_each_in_one_turn(broker: Broker) -> None:
    versions = {ApiKey.DELETE_TOPICS: VERSIONS[ApiKey.DELETE_TOPICS]}
    requests = largest_requests(TOPIC, versions, MOST_CALLS_PER_TURN)
    large = next(each for each in requests if not each.is_repeated)
    await assert_others_are_served(broker, frame_of(large))


def batch(size: int) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"x" * size, ())
    return bytes(builder.build())


@in_one_loop
async def test_an_append_to_many_partitions_and_a_fetch_of_them_keep_others_waiting_for_one_step(
    broker: Broker,
) -> None:
    records = batch(1_000)
    await assert_others_are_served(
        broker, produce_frame(9, [(TOPIC, [(index, records) for index in range(PARTITIONS)])])
    )
    partitions = [FetchPartition(index, -1, 0, -1, -1, 1 << 20) for index in range(PARTITIONS)]
    for max_wait_ms, min_bytes in ((0, 1), (50, 1 << 30)):
        wanted = FetchRequest(-1, max_wait_ms, min_bytes, 1 << 26, 0, 0, -1, [(TOPIC, partitions)])
        body = encode_fetch_request(12, wanted)
        await assert_others_are_served(
            broker, b"".join(encode_request_frame(ApiKey.FETCH, 12, 1, "hostile", body))
        )


@in_one_loop
async def test_many_clients_with_large_requests_together_keep_others_waiting_no_longer(
    broker: Broker,
) -> None:
    frame = frame_of(largest_of(ApiKey.DELETE_TOPICS)[-1])
    peers = [await Peer.connect(broker.port) for _ in range(5)]
    for peer in peers:
        peer.send(frame)
    await assert_others_are_served(broker, frame)
    for peer in peers:
        await peer.close()
