"""An idempotent producer with five requests in flight, whose broker is killed before one is answered."""

from pathlib import Path

from faults.process import BrokerProcess
from tests.conformance.raw import Batch, RawClient, batches, connected


async def pipelined(client: RawClient, wanted: list[Batch]) -> list[tuple[int, int]]:
    """Send all before the first answer is read, as a producer with requests in flight does."""
    for one in wanted:
        await client.send_batch(one)
    results = [await client.receive_result() for _ in wanted]
    return [(result.error_code, result.base_offset) for result in results]


async def test_kill_9_with_five_in_flight_stores_each_once_in_order(tmp_path: Path) -> None:
    """Though nothing was made durable: what the system has in memory outlives the process."""
    process = BrokerProcess(tmp_path / "data", settings={"acks.all.durable": "false"})
    try:
        await process.start()
        async with connected(process.port) as client:
            await client.create()
            producer_id = await client.producer_id()
            five = batches("ABCDE", producer_id)
            for one in five:
                await client.send_batch(one)
            await process.kill_9()
        await process.start()
        async with connected(process.port) as client:
            assert await pipelined(client, five) == [(0, offset) for offset in range(5)]
            assert await client.log() == [b"A", b"B", b"C", b"D", b"E"]
            assert await client.producer_id() > producer_id
    finally:
        await process.kill_9()
