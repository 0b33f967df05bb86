"""What the fault runner alone asks of the proxy: half a request, and everything taken back at the end."""

from faults.proxy import FaultProxy
from tests.faults.peers import AnsweringPeer, FrameClient


async def test_a_cut_within_a_request_leaves_the_broker_with_half_of_it(
    proxy: FaultProxy, peer: AnsweringPeer
) -> None:
    client = await FrameClient.connect(proxy.port)
    fault = proxy.cut_within_request()
    client.send(1, body=b"x" * 1000)
    await fault.wait()
    assert await client.is_cut()
    assert proxy.counters.requests_dropped == 1
    again = await FrameClient.connect(proxy.port)
    again.send(2)
    assert (await again.receive())[0] == 2
    assert peer.seen == [2]


async def test_healing_takes_back_what_was_ordered(proxy: FaultProxy, peer: AnsweringPeer) -> None:
    mute = await FrameClient.connect(proxy.port)
    proxy.drop_responses(5, patience_ms=None)
    mute.send(1)
    await proxy.wait_until(lambda: proxy.counters.responses_dropped == 1)
    proxy.cut_before_request(3)
    proxy.refuse_connections(60_000)
    proxy.hold_responses()
    proxy.delay_ms = 60_000
    proxy.heal()
    assert await mute.is_cut()
    client = await FrameClient.connect(proxy.port)
    client.send(2)
    assert (await client.receive())[0] == 2
