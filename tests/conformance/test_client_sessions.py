"""Sessions against our broker: what was replayed from a saved position is stored once, whoever died when."""

import asyncio
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.client_site import FIRST, TOPIC, Site
from tests.conformance.session_worker import record
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import (
    ProducerFencedError,
    ProducerSession,
    SessionError,
    TopicPartition,
)
from tidelog.protocol.schema import ApiKey

ROOT = Path(__file__).resolve().parents[2]


def values(first: int, end: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, end)]


def through_json(session: ProducerSession) -> ProducerSession:
    return ProducerSession.from_dict(json.loads(json.dumps(session.to_dict())))


async def test_a_process_killed_at_any_point_that_replays_its_input_stores_everything_once(
    site: Site, tmp_path: Path
) -> None:
    await site.create(4)
    records, state, rng = 4_000, tmp_path / "state.json", random.Random(5)
    kills = 0
    requests = Counter[int]()
    site.proxy.tap = lambda request: requests.update([request.api_key])
    for seed in range(60):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.conformance.session_worker"),
            *(site.address, TOPIC, str(state), str(records), str(seed)),
            cwd=ROOT,
        )
        ended = asyncio.create_task(process.wait())
        ended.add_done_callback(lambda _: site.proxy.on_change())
        try:
            if kills < 6:
                enough = requests[ApiKey.PRODUCE] + rng.randint(1, 25)
                await site.proxy.wait_until(
                    lambda ended=ended, enough=enough: ended.done() or requests[ApiKey.PRODUCE] >= enough  # type: ignore[misc]
                )
                if not ended.done():
                    process.kill()
                    kills += 1
            async with asyncio.timeout(DEADLINE_SECONDS):
                code = await ended
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert code in (0, -9)
        if code == 0:
            break
    assert kills >= 3
    stored = await site.stored()
    assert sorted(stored) == [record(number)[1] for number in range(records)]
    for key in {record(number)[0] for number in range(records)}:
        of_key = [value for value in stored if record(int(value))[0] == key]
        assert of_key == sorted(of_key)


async def test_what_is_stored_behind_the_saved_place_is_skipped_to_the_record(site: Site) -> None:
    await site.create(2)
    async with site.producer(max_batch_size=150) as producer:
        await producer.session()
        for value in values(0, 10):
            await producer.send(TOPIC, value, partition=0)
        saved = through_json(await producer.session())
        for value in values(10, 37):
            await producer.send(TOPIC, value, partition=0)
        await producer.send(TOPIC, b"other", partition=1)
    async with site.producer(max_batch_size=1_000, session=saved) as producer:
        deliveries = [await producer.send(TOPIC, value, partition=0) for value in values(10, 50)]
        deliveries.append(await producer.send(TOPIC, b"other", partition=1))
        metadata = [await delivery for delivery in deliveries]
        again = await producer.session()
    assert await site.stored() == [*values(0, 50), b"other"]
    assert [each.offset for each in metadata] == [-1] * 27 + list(range(37, 50)) + [-1]
    assert [each.sequence for each in metadata] == [*range(10, 50), 0]
    assert again.partitions[FIRST].next_sequence == 50
    assert again.partitions[FIRST].end_offset == 50
    assert again.partitions[TopicPartition(TOPIC, 1)].next_sequence == 1


async def test_a_ghost_of_the_killed_process_that_arrives_late_is_trimmed_to_the_record(site: Site) -> None:
    await site.create()
    async with site.producer(max_batch_size=150) as killed:
        saved = await killed.session()
        await killed.send_and_wait(TOPIC, b"0000")
        async with site.producer(max_batch_size=400, session=saved) as successor:
            # It has asked what is stored, and the dead process's requests are processed only now.
            assert (await successor.send_and_wait(TOPIC, b"0000")).offset == -1
            ghosts = [await killed.send(TOPIC, value) for value in values(1, 14)]
            await killed.flush()
            deliveries = [await successor.send(TOPIC, value) for value in values(1, 60)]
            await successor.flush()
            offsets = [(await delivery).offset for delivery in deliveries]
    assert [(await ghost).offset for ghost in ghosts] == list(range(1, 14))
    assert await site.stored() == values(0, 60)
    assert offsets[13:] == list(range(14, 60))


async def test_a_session_whose_producer_the_broker_forgot_is_read_from_the_log(site: Site) -> None:
    await site.create()
    async with site.producer(max_batch_size=100) as producer:
        await producer.session()
        for value in values(0, 10):
            await producer.send(TOPIC, value)
        saved = await producer.session()
        for value in values(10, 30):
            await producer.send(TOPIC, value)
    log = site.broker.services.replica(TOPIC, 0).log
    assert log.producers.forget(saved.producer_id)
    old = ProducerSession.from_dict({**saved.to_dict(), "saved_at_ms": 0})
    for end in (50, 70):
        # The second time from the same place: part is stored under one epoch, part under the next.
        async with site.producer(session=old) as producer:
            last = [await producer.send(TOPIC, value) for value in values(10, end)][-1]
            assert (await last).producer_epoch == 1
            assert (await producer.session()).partitions[FIRST].producer_epoch == 1
    assert await site.stored() == values(0, 70)


async def test_a_place_beyond_the_end_of_the_log_is_refused(site: Site) -> None:
    await site.create()
    async with site.producer() as producer:
        await producer.session()
        await producer.send(TOPIC, b"a")
        saved = (await producer.session()).to_dict()
    saved["partitions"] = [[TOPIC, 0, 0, 5, 1]]
    async with site.producer(session=ProducerSession.from_dict(saved)) as producer:
        with pytest.raises(SessionError, match="acknowledged records are lost"):
            await producer.send(TOPIC, b"b")
    assert await site.stored() == [b"a"]


async def test_another_cluster_that_gave_the_same_id_to_another_producer_is_refused(
    site: Site, tmp_path: Path
) -> None:
    await site.create()
    async with site.producer() as producer:
        await producer.session()
        for value in values(0, 5):
            await producer.send(TOPIC, value, partition=0)
        saved = through_json(await producer.session())
    await site.broker.stop()
    site._data_dir = tmp_path / "another"
    await site.start()
    await site.create()
    async with site.producer() as other:
        deliveries = [await other.send(TOPIC, value, partition=0) for value in values(0, 10)]
        assert (await deliveries[0]).producer_id == saved.producer_id
    async with site.producer(session=saved) as resumed:
        with pytest.raises(SessionError, match="belongs to cluster"):
            await resumed.send(TOPIC, b"0005", partition=0)
    assert await site.stored() == values(0, 10)


async def test_an_idle_session_asks_again_before_it_goes_on(site: Site) -> None:
    await site.create()
    async with site.producer(producer_id_lease_ms=1) as producer:
        saved = await producer.session()
        await producer.send_and_wait(TOPIC, b"0000")
        assert site.broker.services.replica(TOPIC, 0).log.producers.forget(saved.producer_id)
        assert (await producer.send_and_wait(TOPIC, b"0001")).producer_epoch == 1
        async with site.producer(session=saved) as other:
            for value in values(0, 3):
                await other.send(TOPIC, value)
        with pytest.raises(ProducerFencedError):
            await producer.send_and_wait(TOPIC, b"0002")
    assert await site.stored() == values(0, 3)


async def test_keys_stay_in_their_partitions_when_the_topic_grows_within_a_session(site: Site) -> None:
    await site.create(2)
    keys = [b"%d" % number for number in range(40)]
    async with site.producer() as producer:
        saved = await producer.session()
        for key in keys:
            await producer.send(TOPIC, key, key=key)
        saved = through_json(await producer.session())
        async with site.admin() as admin:
            await admin.create_partitions({TOPIC: 5})
    async with site.producer(session=saved) as producer:
        placed = [(await producer.send_and_wait(TOPIC, key, key=key)).partition for key in keys]
    assert set(placed) == {0, 1}


async def test_what_would_not_be_the_same_at_a_replay_is_refused(site: Site) -> None:
    await site.create(2)
    async with site.producer() as producer:
        await producer.session()
        for partition in (0, 1):
            await producer.send(TOPIC, b"here", partition=partition)
        with pytest.raises(ValueError, match="key or a partition"):
            await producer.send(TOPIC, b"anywhere")
    async with site.producer() as producer:
        await producer.send_and_wait(TOPIC, b"x", partition=0)
        with pytest.raises(SessionError, match="before the first record"):
            await producer.session()
    async with site.producer(enable_idempotence=False) as producer:
        with pytest.raises(ValueError, match="enable_idempotence"):
            await producer.session()
