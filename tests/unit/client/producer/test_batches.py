"""How records share batches while the way to the broker is busy, and where keyless batches go."""

from itertools import pairwise

from tests.unit.client.producer.test_producer import batches, producer
from tests.unit.wire.scripted import TOPIC, ScriptedBroker
from tests.waiting import until
from tidelog.protocol.schema import ApiKey


async def test_what_cannot_be_sent_yet_waits_in_one_growing_batch(broker: ScriptedBroker) -> None:
    release = broker.hold(ApiKey.PRODUCE)
    async with producer(broker, max_in_flight_requests_per_connection=1) as it:
        await it.send(TOPIC, b"first")
        await until(lambda: bool(broker.seen(ApiKey.PRODUCE)))
        for number in range(220):
            await it.send(TOPIC, b"%03d" % number * 300)
        release.set()
    assert [(sequence, len(values)) for _, sequence, values in batches(broker)] == [(0, 1), (1, 220)]


async def test_a_burst_leaves_in_worthwhile_batches_while_the_broker_has_work_and_its_rest_at_once() -> None:
    async with ScriptedBroker() as broker:
        broker.is_concurrent = True
        release = broker.hold(ApiKey.PRODUCE)
        async with producer(broker) as it:
            await it.send(TOPIC, b"first")
            await until(lambda: len(broker.seen(ApiKey.PRODUCE)) == 1)
            for number in range(200):
                await it.send(TOPIC, b"%04d" % number * 250)
            await until(lambda: len(broker.seen(ApiKey.PRODUCE)) == 3)
            release.set()
    counts = [len(values) for _, _, values in batches(broker)]
    assert counts[0] == 1
    assert counts[1] > 100
    assert sum(counts[1:]) == 200


async def test_keyless_batches_go_to_one_partition_after_the_other_however_small() -> None:
    async with ScriptedBroker(partitions=3) as broker, producer(broker) as it:
        places = [(await it.send_and_wait(TOPIC, b"x")).partition for _ in range(20)]
    assert set(places) == {0, 1, 2}
    assert all(here != there for here, there in pairwise(places))
