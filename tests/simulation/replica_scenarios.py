"""Schedules as in `scenarios`, each for one rule of the replication: two brokers have a replica of each
partition.

Owns the steps. What is lost is seen by the checks of replicas (`replica_checks`), which look on meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Final

from faults.checker import Kind
from tests.simulation.scenarios import TOPIC, Stage
from tests.simulation.virtual_broker import VirtualBroker
from tests.simulation.virtual_etcd import MEMBERS
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.topics import NewTopic
from tidelog.client import Admin, Consumer, Producer, TopicPartition

_LEAST: Final = "min.insync.replicas"
_LOOKED_S: Final = 0.2
"""After so long, all replicas were looked at."""
_LONGEST_LAG_S: Final = 4.5
"""After so long without a fetch, a follower is left out."""


async def _begun(stage: Stage, **configs: str) -> tuple[VirtualBroker, VirtualBroker]:
    """The leader and the follower of partition 0 of a new topic."""
    await stage.make_topic(configs={name.replace("_", "."): value for name, value in configs.items()})
    leader = stage.led_by(TOPIC, 0)
    (follower,) = (broker for broker in stage.brokers if broker is not leader)
    await stage.until(lambda: all(map(_has_replica, stage.brokers)), "a replica is not made")
    return leader, follower


def _has_replica(broker: VirtualBroker) -> bool:
    return broker.services is not None and (TOPIC, 0) in broker.services.replicas


async def _send(stage: Stage, acks: Any) -> None:
    async with _producer(stage, acks) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)


def _producer(stage: Stage, acks: Any) -> Producer:
    """One that needs no producer id, which a broker without the store may not have."""
    return Producer(bootstrap_servers=stage.address, acks=acks, enable_idempotence=False)


@asynccontextmanager
async def _sending(stage: Stage) -> AsyncIterator["asyncio.Task[Any]"]:
    """A record with acks=all is under way; at the end it is stored."""
    async with _producer(stage, "all") as producer:
        await producer.partitions_for(TOPIC)
        task = asyncio.create_task(producer.send_and_wait(TOPIC, b"1", partition=0))
        yield task
        stage.network.open_all_ways()
        await task
    await stage.until_served()


async def _left_out(stage: Stage, leader: VirtualBroker, follower: VirtualBroker) -> None:
    follower.node.pause()
    await stage.until(lambda: stage.assigned(TOPIC, 0).isr == (leader.node_id,), "no follower is left out")


async def follower_loses_what_it_has_not_flushed(stage: Stage) -> None:
    leader, follower = await _begun(stage)
    await _send(stage, "all")
    leader.node.pause()
    await _start_without_power(stage, follower)
    leader.node.resume()
    await stage.until_served()


async def follower_that_comes_back_loses_what_it_has_not_flushed(stage: Stage) -> None:
    leader, follower = await _begun(stage, min_insync_replicas="1")
    stage.part(leader, follower)
    await _send(stage, 1)
    await stage.until(lambda: stage.assigned(TOPIC, 0).isr == (leader.node_id,), "no follower is left out")
    await stage.loop.after(_LOOKED_S)
    stage.hold_flushes(follower, 0)
    stage.network.open_all_ways()
    await stage.until(lambda: _end_of(follower) == 1, "a follower does not fetch")
    await stage.loop.after(1)  # It does not join.
    leader.node.pause()
    await stage.loop.after(_LONGEST_LAG_S)  # Nor does it lead.
    await _start_without_power(stage, follower)
    leader.node.resume()
    await stage.until_served()


def _end_of(broker: VirtualBroker) -> int:
    assert broker.services is not None
    return broker.services.replicas[TOPIC, 0].log.end_offset


async def leader_loses_what_it_has_not_flushed(stage: Stage) -> None:
    leader, follower = await _begun(stage)
    stage.hold_flushes(leader, 0)
    async with _sending(stage):
        await stage.loop.after(1)  # The follower has it.
        follower.node.pause()
        await _start_without_power(stage, leader)
        follower.node.resume()


async def _start_without_power(stage: Stage, broker: VirtualBroker) -> None:
    life = broker.lives
    stage.lose_all_that_is_not_durable(broker)
    await stage.until(lambda: broker.lives > life and broker.services, "a broker does not start again")
    await stage.loop.after(_LOOKED_S)


async def leader_is_left_with_fewer_than_have_to_be_in_sync(stage: Stage) -> None:
    leader, follower = await _begun(stage)
    await _left_out(stage, leader, follower)
    await _send(stage, 1)
    await stage.loop.after(_LOOKED_S)
    follower.node.resume()
    await stage.until_served()


async def fewer_have_to_be_in_sync_while_a_replica_is_eligible(stage: Stage) -> None:
    leader, follower = await _begun(stage)
    await _left_out(stage, leader, follower)
    await _send(stage, 1)

    def is_lowered() -> bool:
        topic = stage.facts.catalog.topic(TOPIC)
        return topic is not None and topic.configs.get(_LEAST) == "1"

    lowered = stage.once_stored(is_lowered, lambda: stage.close((leader.machine,), MEMBERS))
    assert leader.services is not None
    changing = leader.node.start(leader.services.topics.change_configs(TOPIC, lambda _: {_LEAST: "1"}))
    await stage.until(lambda: lowered, "a setting is not stored")
    await stage.loop.after(_LOOKED_S)
    stage.network.open_all_ways()
    await changing
    follower.node.resume()
    await stage.until_served()


async def follower_joins_and_its_leader_does_not_hear_of_it(stage: Stage) -> None:
    leader, follower = await _begun(stage, min_insync_replicas="1")
    await _left_out(stage, leader, follower)

    def cut_off() -> None:
        stage.close(MEMBERS, (leader.machine,))
        stage.part(leader, follower)

    joined = stage.once_stored(lambda: len(stage.assigned(TOPIC, 0).isr) == 2, cut_off)
    follower.node.resume()
    await stage.until(lambda: joined, "a follower does not join")
    async with _sending(stage):
        await stage.loop.after(_LOOKED_S * 2)


async def follower_is_late_and_the_store_does_not_hear_of_it(stage: Stage) -> None:
    leader, follower = await _begun(stage, min_insync_replicas="1")
    stage.part(leader, follower)
    stage.close((leader.machine,), MEMBERS)
    async with _sending(stage):
        await stage.loop.after(_LONGEST_LAG_S)


async def leader_comes_back_with_what_nobody_else_has(stage: Stage) -> None:
    leader, follower = await _begun(stage, min_insync_replicas="1")
    stage.part(leader, follower)
    await _send(stage, 1)
    leader.node.pause()
    await stage.until(lambda: stage.led_by(TOPIC, 0) is follower, "no leader is elected")
    await _send(stage, "all")
    leader.node.resume()
    stage.network.open_all_ways()
    await stage.until(lambda: len(stage.assigned(TOPIC, 0).isr) == 2, "a follower does not join")
    await stage.loop.after(1)  # It hears of what is committed with the answer to its next fetch.


async def follower_starts_with_an_empty_disk(stage: Stage) -> None:
    _, follower = await _begun(stage)
    await _send(stage, "all")
    await stage.start_with(follower, stage.empty_disk())


async def topic_is_made_while_a_broker_starts_with_an_empty_disk(stage: Stage) -> None:
    """The topic is placed before the broker is fenced, and stored after that has left all other topics."""
    maker, other = await _begun(stage)
    assert maker.services is not None
    reconciler: Any = maker.services.topics._reconciler
    prepare, may_be_stored = reconciler.prepare, asyncio.Event()

    async def prepare_late(*arguments: Any) -> None:
        await prepare(*arguments)
        await may_be_stored.wait()

    def go_on() -> None:
        stage.close((other.machine,), MEMBERS)
        may_be_stored.set()

    reconciler.prepare = prepare_late
    making = maker.node.start(maker.services.topics.create("u", NewTopic(1, 2)))
    await stage.loop.after(_LOOKED_S)
    assigned = stage.assigned
    stage.once_stored(lambda: other.node_id not in (*assigned(TOPIC, 0).isr, *assigned(TOPIC, 0).elr), go_on)
    starting = asyncio.create_task(stage.start_with(other, stage.empty_disk()))
    await making
    stage.network.open_all_ways()
    await starting


async def follower_cuts_back_what_nobody_else_has(stage: Stage) -> None:
    """It does so while records of another partition become durable, which came with the same answer."""
    leader, follower = await _begun(stage, min_insync_replicas="1")
    await _send(stage, "all")
    stage.part(leader, follower)
    await _send(stage, 1)
    life = leader.lives
    leader.kill(cuts_power=False)
    await stage.until(lambda: stage.led_by(TOPIC, 0) is follower, "no leader is elected")
    async with _producer(stage, "all") as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=1)
    await stage.until(lambda: leader.lives > life and leader.services, "a broker does not start again")
    assert leader.services is not None
    other: Any = leader.services.replicas[TOPIC, 1]
    request = other._group_commit.request
    other._group_commit = SimpleNamespace(request=lambda log: stage.loop.call_later(0.1, request, log))
    await stage.loop.after(_LOOKED_S)  # Its next request names both partitions.
    stage.network.open_all_ways()
    await stage.until(lambda: len(stage.assigned(TOPIC, 0).isr) == 2, "a follower does not join")
    await stage.until(
        lambda: not stage.replica_checks.difference(stage.brokers), "replicas do not become equal"
    )


async def follower_begins_anew(stage: Stage) -> None:
    """What follows on the records of a follower is deleted, and its leader knows their producers."""
    leader, follower = await _begun(stage, min_insync_replicas="1")
    async with Producer(bootstrap_servers=stage.address) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        await _left_out(stage, leader, follower)
        stored = await producer.send_and_wait(TOPIC, b"2", partition=0)
    async with Admin(bootstrap_servers=stage.address) as admin:
        await admin.delete_records({TopicPartition(TOPIC, 0): stored.offset + 1})
    follower.node.resume()
    await stage.until(lambda: len(stage.assigned(TOPIC, 0).isr) == 2, "a follower does not join")
    await stage.until_served()
    if difference := stage.replica_checks.difference(stage.brokers):
        stage.run.find(Kind.BROKEN_RULE, difference)


async def follower_has_what_is_not_committed(stage: Stage) -> None:
    leader, follower = await _begun(stage)
    await _send(stage, "all")
    async with Consumer(
        TOPIC,
        bootstrap_servers=stage.address,
        client_rack=str(follower.node_id),
        auto_offset_reset="earliest",
        request_timeout_ms=1_000,
    ) as consumer:
        await consumer.getone()
        stage.hold_flushes(leader, 0)
        async with _sending(stage):
            await stage.until(lambda: _end_at(follower) == 2, "a follower does not get a record")
            stage.close((stage.observer.machine,), (leader.machine,))
            try:
                async with asyncio.timeout(2):
                    record = await consumer.getone()
            except TimeoutError:
                pass
            else:
                stage.run.find(Kind.BROKEN_RULE, f"a record is read that is not committed: {record}")
            leader.kill(cuts_power=False)


def _end_at(broker: VirtualBroker) -> int:
    """Where the log of partition 0 ends there; -1 where there is none."""
    replica = None if broker.services is None else broker.services.replicas.get((TOPIC, 0))
    return -1 if replica is None else replica.log.end_offset


async def _reassigned(stage: Stage, at: VirtualBroker, replicas: list[int] | None) -> None:
    """Another broker begins or cancels a reassignment of partition 0."""
    assert at.services is not None
    topic = stage.facts.catalog.topic(TOPIC)
    assert topic is not None
    refused = await at.node.start(
        at.services.topics.reassign(topic.topic_id, {0: replicas}, may_change_factor=True)
    )
    assert not refused


async def replica_is_added_again_before_its_leader_hears_that_it_went(stage: Stage) -> None:
    """The leader asks that an added replica joins; meanwhile that is removed, and comes back empty."""
    await stage.make_topic(replicas=2)
    assigned = stage.assigned(TOPIC, 0)
    leader = stage.led_by(TOPIC, 0)
    (follower,) = (broker for broker in stage.brokers if broker.node_id in assigned.replicas[1:])
    (added,) = (broker for broker in stage.brokers if broker.node_id not in assigned.replicas)
    await _send(stage, "all")
    wanted = [*assigned.replicas, added.node_id]
    stage.once_stored(
        lambda: bool(stage.assigned(TOPIC, 0).adding), lambda: stage.close((leader.machine,), MEMBERS)
    )
    await _reassigned(stage, follower, wanted)
    await stage.until(lambda: _end_at(added) == 1, "an added replica does not follow")
    await stage.loop.after(_LOOKED_S)
    stage.close(MEMBERS, (leader.machine,))
    stage.part(leader, added)
    await _reassigned(stage, follower, None)
    await stage.until(lambda: _end_at(added) == -1, "a replica is not deleted")
    await _reassigned(stage, follower, wanted)
    await stage.until(lambda: _end_at(added) == 0, "a replica is not made")
    for member in MEMBERS:
        stage.network.open_way(leader.machine, member)
        stage.network.open_way(member, leader.machine)
    await stage.loop.after(3)
    stage.network.open_all_ways()
    await stage.until(lambda: not stage.assigned(TOPIC, 0).adding, "a reassignment does not end")


async def added_replica_hears_nothing_of_its_leader(stage: Stage) -> None:
    await stage.make_topic(replicas=2, configs={_LEAST: "1"})
    assigned = stage.assigned(TOPIC, 0)
    leader = stage.led_by(TOPIC, 0)
    (added,) = (broker for broker in stage.brokers if broker.node_id not in assigned.replicas)
    await _send(stage, "all")
    stage.part(leader, added)
    await _reassigned(stage, leader, [leader.node_id, added.node_id])
    await stage.loop.after(2)
    stage.network.open_all_ways()
    await stage.until(lambda: not stage.assigned(TOPIC, 0).removing, "a reassignment does not end")


async def two_brokers_stop_at_once_while_the_third_catches_up(stage: Stage) -> None:
    await stage.make_topic()
    leader = stage.led_by(TOPIC, 0)
    late, other = (broker for broker in stage.brokers if broker is not leader)
    stage.part(leader, late)
    await _send(stage, 1)  # One that has all, because there is nothing, is not late.
    await stage.until(lambda: len(stage.assigned(TOPIC, 0).isr) == 2, "no follower is left out")
    stopped = {broker: broker.lives for broker in (leader, other)}
    too_few = stage.once_stored(lambda: len(stage.assigned(TOPIC, 0).isr) < 2, lambda: None)
    for broker in stopped:
        await broker.stop()
    stage.network.open_all_ways()
    await stage.until(
        lambda: all(broker.lives > life for broker, life in stopped.items()), "a broker does not stop"
    )
    if too_few:
        stage.run.find(Kind.BROKEN_RULE, "stops leave fewer in sync than have to be")
    await stage.until_served()


async def coordinator_stops_before_what_it_replays_is_copied(stage: Stage) -> None:
    key, log = TopicPartition(TOPIC, 0), "__consumer_offsets"
    await _begun(stage)
    settings: dict[str, Any] = {"bootstrap_servers": stage.address, "request_timeout_ms": 1_000}
    async with Consumer(group_id="g", **settings) as consumer:
        await consumer.commit({key: 1})
        await stage.until_served()
        coordinator = next(
            broker
            for broker in stage.brokers
            for place, replica in _replicas(broker).items()
            if place[0] == log and replica.log.end_offset and not replica.is_follower
        )
        (other,) = (broker for broker in stage.brokers if broker is not coordinator)
        ends = {place: each.log.end_offset for place, each in _replicas(coordinator).items()}
        other.node.pause()
        writing = asyncio.create_task(consumer.commit({key: 2}))
        await stage.until(
            lambda: any(each.log.end_offset > ends[place] for place, each in _replicas(coordinator).items()),
            "an offset is not written",
        )
        coordinator.kill(cuts_power=False)
        await stage.until(lambda: _loading(coordinator), "a coordinator does not begin")
        life = coordinator.lives
        stage.close((coordinator.machine,), MEMBERS)  # Else it is fenced, and leads no more.
        coordinator.node.start(coordinator.stop())
        await stage.until(lambda: coordinator.lives > life, "a broker that stops waits for others for ever")
        stage.network.open_all_ways()
        other.node.resume()
        await asyncio.gather(writing, return_exceptions=True)
    await stage.until_served()


def _loading(broker: VirtualBroker) -> bool:
    """Whether it replays what waits for others to copy it."""
    found = () if broker.services is None else broker.services.groups._shards._shards.values()
    return any(each.replica.is_behind and not each.is_loaded for each in found)


def _replicas(broker: VirtualBroker) -> Mapping[tuple[str, int], Replica]:
    return {} if broker.services is None else broker.services.replicas
