"""Whatever one client asks, another waits for one step of it: counted in calls and turns, not in seconds.

Every list of every API's request is filled in turn, with equal and with different elements, so an API that is
added is tested too. A loop that yields too rarely makes more calls in a turn than are allowed.
"""

import asyncio
import cProfile
from collections.abc import AsyncIterator

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
ELEMENTS = MAX_REQUEST_ELEMENTS // 20
"""Four calls for each element, in one turn, would be too many already."""
MOST_CALLS_A_TURN = 20_000
MOST_TURNS_AN_ANSWER = 60


class Heartbeat:
    """Counts the turns of the loop, and the calls in each: a measure of work that no busy machine changes."""

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
        self.turns += 1
        self._handle = asyncio.get_running_loop().call_soon(self.beat)
        self._profile.enable()

    def stop(self) -> None:
        self._profile.disable()
        if self._handle is not None:
            self._handle.cancel()


in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    folder = tmp_path_factory.mktemp("broker")
    async with await Broker.start(BrokerConfig(port=0, http_port=-1, data_dir=folder)) as broker:
        yield broker


@pytest_asyncio.fixture(loop_scope="module")
async def broker(running: Broker) -> Broker:
    """The broker, with the topic: a test before this one may have deleted it."""
    async with await Peer.connect(running.port) as peer:
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
        await peer.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 1000})
    return running


async def assert_others_are_served(broker: Broker, frame: bytes) -> None:
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
        assert heartbeat.most_calls <= MOST_CALLS_A_TURN, heartbeat.busiest
        assert most_turns <= MOST_TURNS_AN_ANSWER
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
}
FEWER = largest_requests(TOPIC, VERSIONS, ELEMENTS // 3)
LARGEST = [each for each in largest_requests(TOPIC, VERSIONS, ELEMENTS) if each.api not in TRANSITIONS]
LARGEST += [each for each in FEWER if each.api in TRANSITIONS]
# Equal elements are found in one place for each API: one list of them is enough.
FIRST_REPEATED = {each.api: each for each in reversed(LARGEST) if each.is_repeated}
LARGEST = [each for each in LARGEST if not each.is_repeated or FIRST_REPEATED[each.api] is each]


@pytest.mark.parametrize("large", LARGEST, ids=str)
@in_one_loop
async def test_a_large_request_keeps_others_waiting_for_one_step_of_it(broker: Broker, large: Large) -> None:
    frame = encode_request_frame(large.api, large.version, 1, "hostile", large.body)
    await assert_others_are_served(broker, b"".join(bytes(part) for part in frame))


@in_one_loop
async def test_so_does_the_largest_that_the_limit_allows(broker: Broker) -> None:
    requests = largest_requests(TOPIC, VERSIONS, MAX_REQUEST_ELEMENTS)
    large = next(each for each in requests if each.api == ApiKey.DELETE_TOPICS and not each.is_repeated)
    frame = encode_request_frame(large.api, large.version, 1, "hostile", large.body)
    await assert_others_are_served(broker, b"".join(bytes(part) for part in frame))


def test_every_api_that_is_served_and_has_a_list_in_its_request_is_tested() -> None:
    without_lists = {
        ApiKey.HEARTBEAT,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    }
    assert {large.api for large in LARGEST} == SERVED_APIS.keys() - without_lists


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
    large = next(each for each in LARGEST if each.api == ApiKey.DELETE_TOPICS)
    frame = b"".join(encode_request_frame(large.api, large.version, 1, "hostile", large.body))
    peers = [await Peer.connect(broker.port) for _ in range(5)]
    for peer in peers:
        peer.send(frame)
    await assert_others_are_served(broker, frame)
    for peer in peers:
        await peer.close()
