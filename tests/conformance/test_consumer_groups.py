"""Our consumer in groups: it shares partitions, commits, and keeps its place, also over kill -9."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import RunningBroker, broker_with
from tests.conformance.crew import (
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    PARTITIONS,
    QUICK,
    RECORDS,
    Crew,
    Reader,
    both_protocols,
    filled,
    numbered,
    write,
)
from tests.conformance.several import BrokerProcess
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import (
    Admin,
    BrokerError,
    ClientClosedError,
    CommitFailedError,
    ConnectionLostError,
    Consumer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    FencedInstanceError,
    NewTopic,
    TopicPartition,
)
from tidelog.client.groups.assignors import ASSIGNORS

broker = broker_with(**QUICK)


@pytest.mark.parametrize(
    "assignors",
    [
        *({"partition_assignment_strategy": (name,)} for name in ASSIGNORS),
        CONSUMER,
        CONSUMER | {"group_remote_assignor": "range"},
    ],
    ids=lambda settings: "-".join(str(each) for each in settings.values()),
)
async def test_members_come_and_go_and_each_record_is_given_once(
    crew: Crew, assignors: dict[str, Any]
) -> None:
    first = await crew.add(**assignors)
    await until(lambda: crew.shares() == [PARTITIONS] and len(first.given) > 10)
    second = await crew.add(**assignors)
    await until(lambda: crew.shares() == [2, 2])
    await write(crew.address, crew.topic, range(RECORDS, 2 * RECORDS))
    await until(lambda: sum(crew.values().values()) >= 2 * RECORDS)
    await crew.remove(first)
    await until(lambda: crew.shares() == [PARTITIONS])
    await write(crew.address, crew.topic, range(2 * RECORDS, 3 * RECORDS))
    await until(lambda: sum(crew.values().values()) >= 3 * RECORDS)
    await crew.remove(second)
    last = await crew.add(**assignors)
    await until(lambda: crew.shares() == [PARTITIONS])
    for key in last.consumer.assignment():
        assert await last.consumer.position(key) == 3 * RECORDS // PARTITIONS
    assert crew.values() == numbered(range(3 * RECORDS))


async def test_a_rebalance_waits_until_the_record_in_hand_is_finished(crew: Crew) -> None:
    first = await crew.add()
    finish, is_busy = asyncio.Event(), asyncio.Event()

    async def work(record: ConsumerRecord) -> None:
        is_busy.set()
        await finish.wait()

    first.pause = work
    await is_busy.wait()
    second = await crew.add()
    group = first.consumer._group
    assert group is not None
    await until(lambda: group._awaits_application)
    assert not second.given
    # Heartbeats go on meanwhile, also after the connection to the coordinator was lost.
    group.membership.request_failed(ConnectionLostError("cut"))
    await until(lambda: group.membership.coordinator is not None)
    finish.set()
    first.pause = None
    await until(lambda: crew.shares() == [2, 2] and sum(crew.values().values()) >= RECORDS)
    assert crew.values() == numbered(range(RECORDS))


@pytest.mark.parametrize("strategy", [COOPERATIVE, CONSUMER], ids=["classic", "consumer"])
async def test_cooperative_members_keep_reading_what_stays_theirs(
    crew: Crew, strategy: dict[str, Any]
) -> None:
    events: list[tuple[str, frozenset[TopicPartition]]] = []

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            events.append(("revoked", frozenset(revoked)))

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            events.append(("assigned", frozenset(assigned)))

    first = await crew.add(listener=Listener(), **strategy)
    await until(lambda: crew.shares() == [PARTITIONS])
    before = first.consumer.assignment()
    await crew.add(**strategy)
    await until(lambda: crew.shares() == [2, 2])
    [revoked] = [partitions for name, partitions in events if name == "revoked"]
    assert len(revoked) == 2
    assert first.consumer.assignment() == before - revoked
    assert [each for each in events if each[1]] == [("assigned", frozenset(before)), ("revoked", revoked)]


async def test_a_static_member_comes_back_without_a_rebalance_and_a_second_one_fences_it(crew: Crew) -> None:
    first = await crew.add(group_instance_id="one")
    second = await crew.add(group_instance_id="two")
    await until(lambda: crew.shares() == [2, 2])
    share, group = second.consumer.assignment(), first.consumer._group
    assert group is not None
    rebalances = group.membership.rebalances
    await crew.remove(second)
    back = await crew.add(group_instance_id="two")
    await until(lambda: crew.shares() == [2, 2])
    assert back.consumer.assignment() == share
    assert group.membership.rebalances == rebalances
    usurper = Reader(crew.address, crew.group, group_instance_id="two")
    await usurper.start(crew.topic)
    assert back._task is not None
    with pytest.raises(FencedInstanceError, match="two"):
        await back._task
    back._task = None
    await usurper.stop()


async def test_a_static_member_of_the_consumer_protocol_comes_back_to_its_partitions(crew: Crew) -> None:
    first = await crew.add(group_instance_id="one", **CONSUMER)
    second = await crew.add(group_instance_id="two", **CONSUMER)
    await until(lambda: crew.shares() == [2, 2])
    share = second.consumer.assignment()
    usurper = await Reader(crew.address, crew.group, group_instance_id="two", **CONSUMER).start(crew.topic)
    assert usurper._task is not None
    with pytest.raises(FencedInstanceError, match="two"):
        await usurper._task
    usurper._task = None
    await usurper.stop()
    await crew.remove(second)
    assert len(first.consumer.assignment()) == 2
    back = await crew.add(group_instance_id="two", **CONSUMER)
    await until(lambda: back.consumer.assignment() == share)


async def test_a_record_in_hand_is_not_committed_when_its_work_fails(broker: RunningBroker) -> None:
    topic = await filled(broker.address)
    group = f"group-{topic}"

    async def fail_at(number: int) -> list[object]:
        found: list[object] = []

        async def work() -> None:
            async with Reader(broker.address, group).consumer as consumer:
                consumer.subscribe([topic])
                async for record in consumer:
                    if len(found) == number:
                        raise ZeroDivisionError
                    found.append(record.value)

        with pytest.raises(ZeroDivisionError):
            await work()
        return found

    done = await fail_at(10) + await fail_at(20)
    async with Reader(broker.address, group).consumer as consumer:
        consumer.subscribe([topic])
        while len(done) < RECORDS:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                done += [record.value for record in records]
    assert Counter(done) == numbered(range(RECORDS))
    async with Reader(broker.address, group).consumer as consumer:
        for index in range(PARTITIONS):
            assert await consumer.committed(TopicPartition(topic, index)) == RECORDS // PARTITIONS


async def test_commits_by_hand(broker: RunningBroker) -> None:
    topic = await filled(broker.address)
    group, first = f"group-{topic}", TopicPartition(topic, 0)
    by_hand = {"enable_auto_commit": False}
    async with Reader(broker.address, group, **by_hand).consumer as consumer:
        consumer.assign([first])
        assert await consumer.committed(first) is None
        assert await consumer.position(first) == 0
        assert (await consumer.getone()).offset == 0
        await consumer.commit()
        assert await consumer.committed(first) == 1
        await consumer.commit({first: (7, "why")})
        await consumer.getone()
    async with Reader(broker.address, group, **by_hand).consumer as consumer:
        consumer.assign([first])
        assert (await consumer.getone()).offset == 7
        with pytest.raises(ValueError, match="unsubscribe"):
            consumer.subscribe([topic])
        consumer.unsubscribe()
        consumer.subscribe([topic])
        await until(lambda: len(consumer.assignment()) == PARTITIONS)
        with pytest.raises(ValueError, match="unsubscribe"):
            consumer.assign([first])
    async with Consumer(bootstrap_servers=broker.address) as consumer:
        with pytest.raises(ValueError, match="group_id"):
            await consumer.commit()


@both_protocols
async def test_a_commit_that_is_refused_for_its_offsets_does_not_end_the_membership(
    crew: Crew, protocol: dict[str, Any]
) -> None:
    reader = await crew.add(enable_auto_commit=False, **protocol)
    await until(lambda: crew.shares() == [PARTITIONS])
    first = TopicPartition(crew.topic, 0)
    with pytest.raises(BrokerError, match="OFFSET_METADATA_TOO_LARGE"):
        await reader.consumer.commit({first: (3, "x" * 5_000)})
    await reader.consumer.commit({first: 3})
    assert await reader.consumer.committed(first) == 3


async def test_a_partition_that_another_member_has_cannot_be_committed(crew: Crew) -> None:
    first = await crew.add(enable_auto_commit=False)
    await until(lambda: crew.shares() == [PARTITIONS])
    members = first.consumer._group
    assert members is not None
    members.membership.poll_interval_exceeded()
    members._react()
    await until(lambda: not members.membership.owned)
    with pytest.raises(CommitFailedError):
        await first.consumer.commit({TopicPartition(crew.topic, 0): 3})


@both_protocols
async def test_an_application_that_does_not_ask_loses_its_partitions_and_gets_some_when_it_asks(
    crew: Crew, protocol: dict[str, Any]
) -> None:
    lost: list[set[TopicPartition]] = []
    in_hand: set[object] = set()

    class Listener(ConsumerRebalanceListener):
        def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
            lost.append(partitions)
            # A process that is stopped for a while loses them once more.
            in_hand.update(record.value for record in slow.given)

    finish = asyncio.Event()

    async def work(record: ConsumerRecord) -> None:
        await finish.wait()

    slow = await crew.add(listener=Listener(), max_poll_interval_ms=400, **protocol)
    slow.pause = work
    await until(lambda: len(slow.given) == 1)
    other = await crew.add(**protocol)
    await until(lambda: lost and len(other.consumer.assignment()) == PARTITIONS)
    # What it had no record of in hand, it may have given up before. The broker may have fenced it first.
    assert slow.given[0].topic_partition in lost[0]
    slow.pause = None
    finish.set()
    await until(lambda: crew.shares() == [2, 2] and crew.values().keys() >= numbered(range(RECORDS)).keys())
    # Only what was in hand and not committed came twice.
    doubled = {value for value, times in crew.values().items() if times > 1}
    assert doubled <= in_hand


async def test_the_callback_of_new_partitions_can_ask_for_their_positions(crew: Crew) -> None:
    consumer = Reader(crew.address, crew.group).consumer
    found: dict[TopicPartition, int] = {}

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            for partition in assigned:
                found[partition] = await consumer.position(partition)

    async with consumer:
        consumer.subscribe([crew.topic], listener=Listener())
        await until(lambda: len(found) == PARTITIONS)
    assert set(found.values()) == {0}


async def test_a_callback_can_set_where_a_partition_begins_and_its_error_reaches_the_reader(
    crew: Crew,
) -> None:
    consumer = Reader(crew.address, crew.group).consumer

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            for partition in assigned:
                consumer.seek(partition, 99)

        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            await consumer.commit(dict.fromkeys(revoked, 5))
            raise ZeroDivisionError

    async with consumer:
        consumer.subscribe(pattern=f"^{crew.topic}$", listener=Listener())
        found = {record.offset for _ in range(PARTITIONS) if (record := await consumer.getone())}
        assert found == {99}
        consumer.unsubscribe()
        await until(lambda: not consumer.assignment() and not consumer._readers)
        with pytest.raises(ZeroDivisionError):
            await consumer.getone()
        for index in range(PARTITIONS):
            assert await consumer.committed(TopicPartition(crew.topic, index)) == 5


@both_protocols
async def test_a_deleted_topic_does_not_hold_its_group_back(crew: Crew, protocol: dict[str, Any]) -> None:
    kept = await filled(crew.address)
    reader = Reader(crew.address, crew.group, metadata_max_age_ms=50, request_timeout_ms=600_000, **protocol)
    await reader.start(crew.topic, kept)
    crew.stack.push_async_callback(reader.stop)
    await until(lambda: len(reader.given) == 2 * RECORDS)
    async with Admin(bootstrap_servers=crew.address) as admin:
        await admin.delete_topics([crew.topic])
    await until(lambda: {key.topic for key in reader.consumer.assignment()} == {kept})
    await write(crew.address, kept, range(RECORDS, RECORDS + 10))
    await until(lambda: len(reader.given) == 2 * RECORDS + 10)


async def test_a_pattern_finds_topics_that_are_made_later(broker: RunningBroker) -> None:
    group = "pattern"
    async with Reader(broker.address, group, metadata_max_age_ms=50).consumer as consumer:
        consumer.subscribe(pattern=f"{group}-")
        async with Admin(bootstrap_servers=broker.address) as admin:
            await admin.create_topics([NewTopic(f"{group}-a", 1, 1, {})])
            await until(lambda: consumer.assignment() == {TopicPartition(f"{group}-a", 0)})
            await admin.create_topics([NewTopic(f"{group}-b", 1, 1, {})])
            both = {TopicPartition(f"{group}-{name}", 0) for name in "ab"}
            await until(lambda: consumer.assignment() == both)
            await admin.create_partitions({f"{group}-b": 2})
            await until(lambda: len(consumer.assignment()) == 3)
        assert consumer.subscription() == {f"{group}-a", f"{group}-b"}


async def test_a_broker_that_is_killed_costs_no_record_and_doubles_none(tmp_path: Path) -> None:
    """For a group of each protocol."""
    async with BrokerProcess(tmp_path, settings=QUICK) as process, AsyncExitStack() as stack:
        address = f"127.0.0.1:{process.port}"
        crews = [Crew(address, await filled(address)) for _ in range(2)]
        for crew, protocol in zip(crews, (CLASSIC, CONSUMER), strict=True):
            await stack.enter_async_context(crew.stack)
            for _ in range(2):
                await crew.add(request_timeout_ms=10_000, auto_commit_interval_ms=20, **protocol)
        for crew in crews:
            await until(lambda crew=crew: crew.shares() == [2, 2] and len(crew.readers[0].given) > 10)  # type: ignore[misc]
        await process.kill_9()
        await process.restart()
        for crew in crews:
            await write(address, crew.topic, range(RECORDS, 2 * RECORDS))
        for crew in crews:
            await until(lambda crew=crew: sum(crew.values().values()) >= 2 * RECORDS)  # type: ignore[misc]
            await until(lambda crew=crew: crew.shares() == [2, 2])  # type: ignore[misc]
            await crew.remove(crew.readers[0])
            await until(lambda crew=crew: crew.shares() == [PARTITIONS])  # type: ignore[misc]
            await write(address, crew.topic, range(2 * RECORDS, 3 * RECORDS))
            await until(lambda crew=crew: sum(crew.values().values()) >= 3 * RECORDS)  # type: ignore[misc]
            assert crew.values() == numbered(range(3 * RECORDS))


@both_protocols
async def test_a_callback_can_stop_its_consumer(crew: Crew, protocol: dict[str, Any]) -> None:
    ended = asyncio.Event()

    class Stopping(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            await reader.consumer.stop()
            ended.set()

    reader = await crew.add(listener=Stopping(), **protocol)
    await asyncio.wait_for(ended.wait(), DEADLINE_SECONDS)
    async with Admin(bootstrap_servers=crew.address) as admin:
        assert not (await admin.groups.describe(crew.group)).members


async def test_a_closed_consumer_gives_no_record(broker: RunningBroker) -> None:
    consumer = Reader(broker.address, "closed").consumer
    async with consumer:
        consumer.subscribe([await filled(broker.address)])
        await consumer.getone()
    with pytest.raises(ClientClosedError):
        await consumer.getone()
