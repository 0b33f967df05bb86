"""A partition's leader moves from node to node: clients follow, and every record is stored once, in order."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.storage.support import NOW_MS, batch
from tests.unit.client.two_nodes import TwoNodes
from tests.unit.wire.scripted import TOPIC, Request
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import TopicPartition
from tidelog.protocol.schema import ApiKey


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[TwoNodes]:
    async with TwoNodes(tmp_path / "t-0") as made:
        yield made


async def sent_through(nodes: TwoNodes, count: int) -> None:
    """Send `count` records, some to a batch, and check where each was stored."""
    async with nodes.producer(max_batch_size=400, retry_backoff_max_ms=20) as producer:
        deliveries = [
            await producer.send(TOPIC, b"%05d" % number * 10, timestamp_ms=NOW_MS) for number in range(count)
        ]
        metadata = [await delivery for delivery in deliveries]
    assert [each.offset for each in metadata] == list(range(count))
    assert [each.sequence for each in metadata] == list(range(count))
    stored = nodes.sequences()
    assert {epoch for epoch, _, _ in stored} == {0}
    expected = 0
    for _, sequence, records in stored:
        assert sequence == expected
        expected += records
    assert expected == count


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("leader", ["hands over", "dies", "hangs"])
async def test_with_five_in_flight_every_record_is_stored_once_and_in_order_wherever_the_leader_moves(
    nodes: TwoNodes, seed: int, leader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.wire.connection._SILENCE_SECONDS", 0.02)
    rng = random.Random(seed)
    nodes.loses_answer, nodes.hangs = leader == "dies", leader == "hangs"
    nodes.moves_after = [rng.randint(1, 4) for _ in range(6)]
    await sent_through(nodes, 200)
    assert nodes.leader_epoch == 6
    assert nodes.refused or leader != "hands over"


async def test_a_leader_that_a_refusal_names_is_gone_to_without_metadata(nodes: TwoNodes) -> None:
    async with nodes.producer(retry_backoff_max_ms=3_600_000, retry_backoff_ms=3_600_000) as producer:
        await producer.send_and_wait(TOPIC, b"first", timestamp_ms=NOW_MS)
        for node in nodes.nodes.values():
            node.hold(ApiKey.METADATA)
        nodes.names_leader = True
        for offset in range(1, 4):
            nodes.move()
            sent = await producer.send_and_wait(TOPIC, b"moved", timestamp_ms=NOW_MS)
            assert sent.offset == offset
        assert nodes.refused == 3


async def test_batches_that_wait_for_a_leader_that_hangs_move_to_its_successor_in_order(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.wire.connection._SILENCE_SECONDS", 0.05)
    async with nodes.producer(max_batch_size=200, request_timeout_ms=3_600_000) as producer:
        await producer.send_and_wait(TOPIC, b"first", timestamp_ms=NOW_MS)
        first, second = nodes.nodes.values()
        release = first.hold(ApiKey.PRODUCE)
        sent = [
            await producer.send(TOPIC, b"%05d" % number * 10, timestamp_ms=NOW_MS) for number in range(40)
        ]
        await until(lambda: len(first.seen(ApiKey.PRODUCE)) == 2)  # It takes one request after the other.
        # It answers nothing else either.
        first.hold(ApiKey.METADATA)
        nodes.move()
        assert [(await delivery).offset for delivery in sent] == list(range(1, 41))
        assert len(second.seen(ApiKey.PRODUCE)) > 5
        # What the old leader says late changes nothing.
        release.set()
        await producer.send_and_wait(TOPIC, b"last", timestamp_ms=NOW_MS)
        assert [sequence for _, sequence, _ in nodes.sequences()][-1] == 41


async def test_a_partition_that_is_without_a_leader_for_a_while_is_waited_for(nodes: TwoNodes) -> None:
    async with nodes.producer() as producer:
        await producer.send_and_wait(TOPIC, b"first", timestamp_ms=NOW_MS)
        nodes.leader = -1
        delivery = await producer.send(TOPIC, b"second", timestamp_ms=NOW_MS)
        await until(lambda: producer._cluster.image.leader(TopicPartition(TOPIC, 0)) < 0)
        nodes.leader, nodes.leader_epoch = 2, 1
        assert (await delivery).offset == 1


async def test_what_the_old_leader_still_gives_after_the_new_one_is_no_corruption(nodes: TwoNodes) -> None:
    async with nodes.consumer(metadata_max_age_ms=20, fetch_max_wait_ms=20) as consumer:
        asked, may_answer = asyncio.Event(), asyncio.Event()
        late = asyncio.Event()

        async def slowly(request: Request) -> dict[str, Any]:
            asked.set()
            await may_answer.wait()
            nodes.leader = 1
            answer = nodes._fetch(1, request)
            nodes.leader = 2
            late.set()
            return answer

        nodes.nodes[1].scripts[ApiKey.FETCH] = slowly
        consumer.seek(TopicPartition(TOPIC, 0), 0)
        await asked.wait()
        nodes.append(batch(value=b"0"))
        nodes.move()
        assert (await consumer.getone()).offset == 0
        may_answer.set()
        await late.wait()
        nodes.append(batch(value=b"1"))
        assert (await consumer.getone()).offset == 1
        nodes.append(batch(value=b"2"))
        assert (await consumer.getone()).offset == 2


async def test_records_that_come_while_a_position_is_validated_are_given_once(nodes: TwoNodes) -> None:
    async with nodes.consumer(metadata_max_age_ms=20) as consumer:
        leader = nodes.nodes[1]
        consumer.seek(TopicPartition(TOPIC, 0), 0)
        nodes.append(batch(value=b"0"))
        assert (await consumer.getone()).offset == 0
        answered = asyncio.Event()
        may_validate, may_fetch = asyncio.Event(), asyncio.Event()

        async def validated_late(request: Request) -> dict[str, Any]:
            answer = nodes._end_of_epoch(1, request)
            await may_validate.wait()
            return answer

        async def as_before(request: Request) -> dict[str, Any]:
            await may_fetch.wait()
            request.values.topics[0].partitions[0].current_leader_epoch = -1
            answered.set()
            return nodes._fetch(1, request)

        leader.scripts[ApiKey.FETCH] = as_before
        asked = len(leader.seen(ApiKey.FETCH))
        await until(lambda: len(leader.seen(ApiKey.FETCH)) > asked)
        leader.scripts[ApiKey.OFFSET_FOR_LEADER_EPOCH] = validated_late
        # The same node leads in a new epoch, as after a replica was removed.
        nodes.leader_epoch += 1
        await until(lambda: leader.seen(ApiKey.OFFSET_FOR_LEADER_EPOCH))
        nodes.append(batch(value=b"1"))
        may_fetch.set()
        await answered.wait()
        early = await consumer.getmany(timeout_ms=100)
        offsets = [record.offset for records in early.values() for record in records]
        may_validate.set()
        nodes.append(batch(value=b"2"))
        while len(offsets) < 2:
            offsets.append((await consumer.getone()).offset)
        assert offsets == [1, 2]


async def test_a_read_replica_that_the_metadata_does_not_have_yet_is_not_waited_for(nodes: TwoNodes) -> None:
    async with nodes.consumer(auto_offset_reset="earliest", client_rack="a") as consumer:

        def named(request: Request) -> dict[str, Any]:
            answer = nodes._fetch(1, request)
            if request.values.rack_id:
                result = answer["responses"][0]["partitions"][0]
                answer["responses"][0]["partitions"] = [
                    {**result, "records": b"", "preferred_read_replica": 9}
                ]
            return answer

        nodes.nodes[1].scripts[ApiKey.FETCH] = named
        consumer.seek(TopicPartition(TOPIC, 0), 0)
        for number in range(3):
            nodes.append(batch(value=b"%d" % number))
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert (await consumer.getone()).offset == number


async def test_a_consumer_follows_the_leader_and_gets_every_record_once(nodes: TwoNodes) -> None:
    async with nodes.consumer(fetch_max_wait_ms=20) as consumer:
        consumer.seek(TopicPartition(TOPIC, 0), 0)
        for number in range(8):
            nodes.append(batch(value=b"%d" % number))
            assert (await consumer.getone()).offset == number
            nodes.move()
        assert nodes.refused
