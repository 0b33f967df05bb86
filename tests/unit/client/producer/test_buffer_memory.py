"""Who waits for memory goes first come, first served."""

import asyncio

import pytest

from tidelog.client import ClientClosedError, TopicPartition
from tidelog.client.producer.accumulator import Accumulator, PartitionQueue
from tidelog.client.producer.batch import ProducerBatch
from tidelog.client.producer.buffer_memory import BufferMemory


class Lab:
    def __init__(self) -> None:
        self.accumulator = Accumulator(
            max_batch_size=1_000, linger_ms=0, buffer_memory=2_000, delivery_timeout_ms=1_000
        )
        self.memory = BufferMemory(self.accumulator)
        self.queue: PartitionQueue = self.accumulator.queue(TopicPartition("t", 0))
        self.served: list[str] = []

    def open(self, size: int = 100) -> ProducerBatch:
        return self.accumulator.open_batch(self.queue, size, 0, 1_000, None, b"x")

    def free(self, batch: ProducerBatch) -> None:
        self.accumulator.release(batch)
        self.memory.notify()

    async def wait(self, name: str, size: int = 100) -> ProducerBatch:
        await self.memory.wait(size)
        self.served.append(name)
        return self.open(size)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_first_come_first_served() -> None:
    lab = Lab()
    held = [lab.open(), lab.open()]
    assert not lab.memory.is_free(100)
    tasks = []
    for name in "abc":
        tasks.append(asyncio.ensure_future(lab.wait(name)))
        await asyncio.sleep(0)
    lab.free(held[0])
    await turns()
    assert lab.served == ["a"]
    lab.free(held[1])
    lab.free(tasks[0].result())
    await asyncio.gather(*tasks)
    assert lab.served == ["a", "b", "c"]


async def test_a_small_one_does_not_overtake_a_large_one() -> None:
    lab = Lab()
    held = [lab.open(), lab.open()]
    large = asyncio.ensure_future(lab.wait("large", 2_000))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(lab.wait("small"))
    lab.free(held[0])
    await turns()
    assert lab.served == []
    assert not lab.memory.is_free(100)
    lab.free(held[1])
    lab.free(await large)
    await small
    assert lab.served == ["large", "small"]


async def test_who_is_cancelled_makes_way_for_the_next() -> None:
    lab = Lab()
    held = [lab.open(), lab.open()]
    large = asyncio.ensure_future(lab.wait("large", 2_000))
    small = asyncio.ensure_future(lab.wait("small"))
    await turns()
    lab.free(held[0])
    large.cancel()
    await small
    assert lab.served == ["small"]
    assert large.cancelled()


async def test_while_anybody_waits_nothing_lingers() -> None:
    lab = Lab()
    patient = Accumulator(max_batch_size=1_000, linger_ms=50, buffer_memory=1_000, delivery_timeout_ms=1_000)
    room = BufferMemory(patient)
    queue = patient.queue(TopicPartition("t", 0))
    batch = patient.open_batch(queue, 100, 0, 1_000, None, b"x")
    assert patient.ready_at_ms(queue) == 50
    waiting = asyncio.ensure_future(room.wait(100))
    await asyncio.sleep(0)
    assert patient.ready_at_ms(queue) == 0
    patient.drain(queue)
    patient.release(batch)
    room.notify()
    await waiting
    assert lab.memory.is_free(100)


async def test_when_it_is_over_all_who_wait_are_told() -> None:
    lab = Lab()
    _ = [lab.open(), lab.open()]
    tasks = [asyncio.ensure_future(lab.wait(name)) for name in "ab"]
    await asyncio.sleep(0)
    lab.memory.fail(ClientClosedError("over"))
    for task in tasks:
        with pytest.raises(ClientClosedError):
            await task
