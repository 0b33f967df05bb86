"""A project's own tests against a broker, with no container."""

from tidelog.broker.testing.embedded import EmbeddedBroker, ThreadedBroker
from tidelog.client import Consumer, Producer


async def test_orders_outlive_the_death_of_the_broker(
    tidelog_broker: ThreadedBroker, tidelog_topic: str
) -> None:
    servers = tidelog_broker.bootstrap_servers
    async with Producer(bootstrap_servers=servers) as producer:
        stored = await producer.send_and_wait(tidelog_topic, b"order 1")
    assert (stored.offset, stored.sequence) == (0, 0)

    tidelog_broker.crash()  # as kill -9 would
    tidelog_broker.restart()  # on the same port
    async with Consumer(tidelog_topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        record = await consumer.getone()
    assert record.value == b"order 1"


async def test_a_broker_of_its_own_settings_in_the_loop_of_the_test() -> None:
    async with EmbeddedBroker(settings={"num.partitions": 3, "log.segment.bytes": 65536}) as broker:
        topic = await broker.create_topic(partitions=3)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert await producer.partitions_for(topic) == {0, 1, 2}
