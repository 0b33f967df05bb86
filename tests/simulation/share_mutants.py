"""Brokers that lack one rule of share groups each, and the schedule that finds that: as `mutants`.

`python -m tests.simulation.share_mutants NAME` counts the seeds of `share_world` that find the lack.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.simulation.mutants import Mutant, main, nothing
from tests.simulation.scenarios import TOPIC, Scenario, Stage
from tests.simulation.share_world import LOCK_S, SETTINGS, ShareWorld, make_group, member
from tests.simulation.virtual_loop import Node
from tests.simulation.world import Shape
from tidelog import Producer, ShareConsumer
from tidelog.broker.coordinator.share_states.machine import ShareStates
from tidelog.broker.share.held import HeldPartition, Stored
from tidelog.broker.share.share import Share
from tidelog.broker.share.share_partition import RecordState, SharePartition, Update, _Run

_Consumer = ShareConsumer[Any, Any]
_LONG_LOCK: Final = {"share.record.lock.duration.ms": "60000"}
HUNT: Final = Shape(settle_s=60, stops_at_finding=True)


async def _jobs(stage: Stage, count: int, **configs: str) -> None:
    """So many records in the only partition of a group's topic."""
    for broker in stage.brokers:
        broker.settings |= SETTINGS | {
            "group_share_delivery_count_limit": 3,
            "share_coordinator_state_topic_num_partitions": 1,
        }
        broker.kill(cuts_power=False)
    await stage.loop.after(1)
    await stage.until_served()
    await make_group(stage.address, TOPIC, 1, stage.shape.replicas, **configs)
    async with Producer(bootstrap_servers=stage.address) as producer:
        for number in range(count):
            await producer.send_and_wait(TOPIC, b"%d" % number)


def _works(stage: Stage, name: str, work: Callable[[_Consumer], Awaitable[object]]) -> Node:
    """A member on a machine of its own, which dies as a process does."""
    node = Node(stage.loop, name, name)
    node.on_death = lambda: stage.network.cut_of(node)

    async def run() -> None:
        async with member(stage.address, TOPIC) as consumer:
            await work(consumer)

    node.start(run())
    return node


async def _accept_all(consumer: _Consumer) -> None:
    async for record in consumer:
        record.accept()


async def record_is_accepted_and_the_power_is_cut(stage: Stage) -> None:
    await _jobs(stage, 1)
    async with member(stage.address, TOPIC) as consumer:
        (await consumer.getone()).accept()
        await consumer.commit()
        stage.lose_all_that_is_not_durable(stage.brokers[0])
        await stage.until_served()
        await stage.loop.after(3 * LOCK_S)


async def record_behind_one_that_is_held_is_accepted_and_the_broker_starts_again(stage: Stage) -> None:
    await _jobs(stage, 2)
    async with member(stage.address, TOPIC) as consumer:
        await consumer.getone()
        (await consumer.getone()).accept()
        await consumer.commit()
        await stage.start_again(stage.brokers[0])
        await stage.loop.after(3 * LOCK_S)


async def two_members_read(stage: Stage) -> None:
    await _jobs(stage, 5)
    async with member(stage.address, TOPIC) as one, member(stage.address, TOPIC) as other:
        await one.getone()
        reading = asyncio.create_task(other.getone())
        await stage.loop.after(LOCK_S / 2)
        reading.cancel()


async def member_forgets_a_record(stage: Stage) -> None:
    await _jobs(stage, 1)
    async with member(stage.address, TOPIC) as one:
        await one.getone()
        checks = stage.share_checks
        node = _works(stage, "other", _accept_all)
        await stage.until(lambda: checks.done, "a lock that ended is not given to others")
        node.kill()


async def member_dies(stage: Stage) -> None:
    await _jobs(stage, 1, **_LONG_LOCK)
    checks = stage.share_checks
    node = _works(stage, "one", lambda consumer: consumer.getone())
    await stage.until(lambda: checks.counts, "no record is delivered")
    node.kill()
    other = _works(stage, "other", _accept_all)
    await stage.until(lambda: checks.done, "what a dead member held is not given to others")
    other.kill()


async def record_is_released_again_and_again(stage: Stage) -> None:
    await _jobs(stage, 1)
    async with member(stage.address, TOPIC) as consumer:
        while await consumer.getmany(timeout_ms=2_000):
            pass


async def earlier_leader_gives_back_what_was_accepted_since(stage: Stage) -> None:
    """It pauses while a member holds two records. At the next leader, one of them is accepted."""
    await _jobs(stage, 2)
    checks = stage.share_checks

    async def accept_the_second(consumer: _Consumer) -> None:
        await consumer.getone()
        (await consumer.getone()).accept()
        await consumer.commit()
        await asyncio.Event().wait()

    one = _works(stage, "one", lambda consumer: consumer.getone())
    await stage.until(lambda: len(checks.counts) == 2, "no records are delivered")
    first = stage.led_by(TOPIC, 0)
    first.node.pause()
    one.kill()
    await stage.until(lambda: stage.led_by(TOPIC, 0) is not first, "no leader is replaced")
    other = _works(stage, "other", accept_the_second)
    await stage.until(lambda: checks.done, "the next leader gives nothing")
    first.node.resume()
    await stage.loop.after(2)
    other.kill()
    stage.led_by(TOPIC, 0).kill(cuts_power=False)
    third = _works(stage, "third", _accept_all)
    await stage.until(lambda: len(checks.done) == 2, "a record is not given to others")
    third.kill()


def _without_waiting(store: Any) -> Any:
    def changed(self: HeldPartition, update: Update, stored: Stored) -> None:
        store(self, update, nothing)
        stored(None)

    return changed


def _without_batches(begin: Any) -> Any:
    def changed(self: SharePartition, start_offset: int, batches: object, limits: object) -> None:
        begin(self, start_offset, (), limits)

    return changed


def _also_if_held(_: Any) -> Any:
    return property(lambda run: run.state in (RecordState.AVAILABLE, RecordState.ACQUIRED) and not run.update)


def _without_limit(_: Any) -> Any:
    def released(self: SharePartition, run: _Run, state: RecordState, number: int) -> _Run:
        return _Run(state, run.delivery_count, update=number)

    return released


def _without_release(_: Any) -> Any:
    async def end_session(self: Share, session: Any) -> None:
        self.sessions.end(session)

    return end_session


def _whatever_leader(present: Any) -> Any:
    return lambda self, key, leader_epoch: present(self, key, -1)


_AGAIN: Final = "was accepted, and is delivered again"
MUTANTS: Final = {
    "share: durable": Mutant(
        "an acknowledgement is answered once it is durable",
        ((HeldPartition, "_store", _without_waiting),),
        _AGAIN,
        Scenario(record_is_accepted_and_the_power_is_cut),
    ),
    "share: state": Mutant(
        "a leader begins with the states of records that were stored",
        ((SharePartition, "__init__", _without_batches),),
        _AGAIN,
        Scenario(record_behind_one_that_is_held_is_accepted_and_the_broker_starts_again),
    ),
    "share: lock": Mutant(
        "a record that a member holds is given to nobody else",
        ((_Run, "is_available", _also_if_held),),
        "holds it",
        Scenario(two_members_read),
    ),
    "share: expiry": Mutant(
        "a lock ends",
        ((HeldPartition, "_locks_end", nothing),),
        "a lock that ended is not given to others",
        Scenario(member_forgets_a_record),
    ),
    "share: session": Mutant(
        "what a member holds is available once its connection is closed",
        ((Share, "end_session", _without_release),),
        "what a dead member held is not given to others",
        Scenario(member_dies),
    ),
    "share: limit": Mutant(
        "a record that was delivered as often as the limit says is archived",
        ((SharePartition, "_released", _without_limit),),
        "is delivered more often than 3 times",
        Scenario(record_is_released_again_and_again),
    ),
    "share: leader": Mutant(
        "an earlier leader stores nothing",
        ((ShareStates, "_present", _whatever_leader),),
        _AGAIN,
        Scenario(earlier_leader_gives_back_what_was_accepted_since, brokers=3, replicas=3),
    ),
}


if __name__ == "__main__":
    main(sys.argv[1:], MUTANTS, HUNT, ShareWorld)
