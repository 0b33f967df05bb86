"""A share group over several brokers. `test_share_workers` and the simulation kill them."""

from pathlib import Path

from tests.several.brokers import brokers
from tests.unit.broker.conftest import Clock
from tests.unit.broker.handlers.conftest import Asker
from tests.unit.broker.handlers.sharing import REJECT, Member
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC
from tidelog.broker.coordinator.shards import partition_of
from tidelog.broker.replicas.topics import NewTopic
from tidelog.client import Consumer, DeadLetter, Producer


async def test_a_dead_letter_goes_to_the_leader_of_its_topic_wherever_that_is(tmp_path: Path) -> None:
    async with brokers(tmp_path) as cluster:
        await cluster.make_internal_topics()
        await cluster[1].services.share.coordinator.make_topic()
        await cluster[1].services.topics.create("jobs", NewTopic(assignments={0: [1]}))
        dead = NewTopic(assignments={0: [2]}, configs={"errors.deadletterqueue.group.enable": "true"})
        await cluster[1].services.topics.create("dlq.jobs", dead)
        await cluster.agreed()
        asker = Asker(cluster[1].services, Clock())
        await Member(asker).configure(
            **{"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.jobs"}
        )
        await cluster.agreed()
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("jobs", b"poison")
        partitions = cluster.topic(OFFSETS_TOPIC).partitions
        coordinator = cluster[partitions[partition_of("pool", len(partitions))].leader_id]
        await Member(Asker(coordinator.services, Clock()), member_id="worker").heartbeat(0)
        member = Member(asker, member_id="worker", epoch=0)
        assert await member.got(max_wait_ms=5_000) == {0: 1}
        assert await member.acknowledge((0, 0, [REJECT])) == 0
        async with Consumer(
            "dlq.jobs", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            letter = DeadLetter.of(await consumer.getone())
        assert (letter.topic_partition, letter.offset) == (("jobs", 0), 0)
