"""The proxy keeps its promises: whole frames in order, and exactly the faults that were ordered."""

import asyncio

from faults.proxy import FaultProxy
from tests.faults.peers import METADATA, AnsweringPeer, FrameClient
from tests.waiting import DEADLINE_SECONDS

LONG_MS = 3_600_000


async def test_frames_pass_both_ways_in_order_and_untouched(proxy: FaultProxy, peer: AnsweringPeer) -> None:
    peer.greeting = bytes(range(256)) * 5000
    client = await FrameClient.connect(proxy.port)
    for correlation_id in range(20):
        client.send(correlation_id, body=b"x" * 100_000)
    answers = [await client.receive() for _ in range(20)]
    assert answers == [(correlation_id, peer.greeting) for correlation_id in range(20)]
    assert proxy.counters.requests_forwarded == proxy.counters.responses_forwarded == 20
    assert proxy.counters.bytes_to_client == 20 * (8 + len(peer.greeting))
    assert proxy.in_flight() == []


async def test_dropped_responses_reached_the_broker_and_the_connection_is_cut_after_the_last(
    proxy: FaultProxy, peer: AnsweringPeer
) -> None:
    client = await FrameClient.connect(proxy.port)
    fault = proxy.drop_responses(3, patience_ms=LONG_MS)
    for correlation_id in range(3):
        client.send(correlation_id)
    await fault.wait()
    assert await client.is_cut()
    assert peer.seen == [0, 1, 2]
    assert proxy.counters.responses_dropped == 3
    assert proxy.counters.connections_cut == 1
    again = await FrameClient.connect(proxy.port)
    again.send(7)
    assert (await again.receive())[0] == 7


async def test_a_response_is_never_lost_alone(proxy: FaultProxy, peer: AnsweringPeer) -> None:
    client = await FrameClient.connect(proxy.port)
    fault = proxy.drop_responses(2, patience_ms=LONG_MS)
    client.send(1)
    client.send(2, api_key=METADATA)
    await proxy.wait_until(lambda: proxy.counters.responses_dropped == 2)
    assert not fault.done.is_set()
    client.send(3)
    await fault.wait()
    assert await client.is_cut()


async def test_a_cut_before_the_request_keeps_it_from_the_broker(
    proxy: FaultProxy, peer: AnsweringPeer
) -> None:
    client = await FrameClient.connect(proxy.port)
    client.send(1, api_key=METADATA)
    await client.receive()
    fault = proxy.cut_before_request()
    client.send(2)
    assert await client.is_cut()
    await fault.wait()
    assert peer.seen == [1]
    assert proxy.counters.requests_dropped == 1


async def test_a_cut_after_the_request_lets_the_broker_finish_it(
    proxy: FaultProxy, peer: AnsweringPeer
) -> None:
    client = await FrameClient.connect(proxy.port)
    fault = proxy.cut_after_request()
    client.send(1)
    assert await client.is_cut()
    await fault.wait()
    await peer.has_seen(1)
    await proxy.wait_until(lambda: proxy.counters.responses_dropped == 1)
    assert proxy.counters.responses_forwarded == 0


async def test_cut_connections_resets_them_all(proxy: FaultProxy) -> None:
    clients = [await FrameClient.connect(proxy.port) for _ in range(3)]
    for client in clients:
        client.send(1)
        await client.receive()
    assert proxy.cut_connections() == 3
    assert [await client.is_cut() for client in clients] == [True] * 3
    assert proxy.counters.connections_cut == 3


async def test_held_responses_wait_in_order_and_count_as_in_flight(proxy: FaultProxy) -> None:
    client = await FrameClient.connect(proxy.port)
    proxy.hold_responses()
    for correlation_id in range(5):
        client.send(correlation_id)
    await proxy.wait_until(lambda: proxy.answered() == 5)
    assert len(proxy.in_flight()) == 5
    assert proxy.counters.responses_forwarded == 0
    proxy.release_responses()
    assert [(await client.receive())[0] for _ in range(5)] == list(range(5))
    assert (proxy.in_flight(), proxy.answered()) == ([], 0)


async def test_a_delay_moves_answers_back_without_losing_pipelining(proxy: FaultProxy) -> None:
    loop = asyncio.get_running_loop()
    proxy.delay_ms = 60
    client = await FrameClient.connect(proxy.port)
    began = loop.time()
    for correlation_id in range(10):
        client.send(correlation_id)
    assert [(await client.receive())[0] for _ in range(10)] == list(range(10))
    assert loop.time() - began >= 0.06
    # One answer waits for its time beside the other, not behind it.
    proxy.delay_ms = LONG_MS
    for correlation_id in range(10):
        client.send(correlation_id)
    await proxy.wait_until(lambda: proxy.answered() == 10)


async def test_a_client_that_does_not_speak_kafka_is_closed_alone(proxy: FaultProxy) -> None:
    good = await FrameClient.connect(proxy.port)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await reader.read() == b""
    writer.close()
    good.send(1)
    assert (await good.receive())[0] == 1
