"""The share consumer against a scripted share group: what it sends, and what its application notices."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.client.share.scripted_group import ACCEPT, REJECT, ScriptedGroup
from tests.unit.wire.scripted import TOPIC, ScriptedBroker
from tests.waiting import until
from tidelog.client import (
    AcknowledgementError,
    BrokerError,
    ClientClosedError,
    ConfigError,
    RecordDeserializationError,
    ShareConsumer,
    TopicPartition,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as broker:
        yield broker


def consumer(broker: ScriptedBroker, **settings: Any) -> "ShareConsumer[Any, Any]":
    settings = {"group_id": "g", "fetch_max_wait_ms": 50, "retry_backoff_ms": 10, **settings}
    return ShareConsumer(TOPIC, bootstrap_servers=broker.address, **settings)


async def test_a_body_that_ends_accepts_its_record(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a", b"b")
    async with consumer(broker) as it:
        async for record in it:
            async with record.processing() as same:
                assert same is record
                assert record.delivery_count == 1
            if record.value == b"b":
                break
        assert it.assignment() == {TopicPartition(TOPIC, 0)}
    assert group.outcomes == {0: ACCEPT, 1: ACCEPT}
    assert (group.members, group.sessions) == ({}, {})


async def test_an_exception_releases_and_a_named_one_rejects(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a", b"b", b"c")
    async with consumer(broker) as it:
        first = await it.getone()
        with pytest.raises(KeyError):
            async with first.processing(reject=ValueError):
                raise KeyError
        second = await it.getone()
        async with second.processing(reject=(ValueError, TypeError)):
            raise TypeError
        third = await it.getone()
        async with third.processing(release=OSError):
            raise OSError
        await it.commit()
        assert group.outcomes == {1: REJECT}
        again = await it.getone()
        assert (again.value, again.delivery_count) == (b"a", 2)


async def test_a_cancelled_body_releases_its_record(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a")
    async with consumer(broker) as it:
        record = await it.getone()
        begun = asyncio.Event()

        async def body() -> None:
            async with record.processing():
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await it.getone()).delivery_count == 2
    assert group.outcomes == {}


async def test_what_the_body_acknowledged_stays(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a")
    async with consumer(broker) as it:
        record = await it.getone()
        async with record.processing():
            record.reject()
        with pytest.raises(ValueError, match="t-0 at offset 0 was acknowledged already"):
            record.accept()
        await it.commit()
    assert group.outcomes == {0: REJECT}


async def test_with_explicit_acknowledgement_what_is_not_acknowledged_is_released(
    broker: ScriptedBroker,
) -> None:
    group = ScriptedGroup(broker, b"a", b"b", b"c")
    async with consumer(broker) as it:
        await it.getone()
        record = await it.getone()
        it.acknowledge(record)
    assert group.outcomes == {1: ACCEPT}
    assert group.acquired == set()


async def test_with_implicit_acknowledgement_the_next_read_accepts(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a", b"b", b"c", b"d")
    async with consumer(broker, share_acknowledgement_mode="implicit") as it:
        await it.getone()
        (await it.getone()).reject()
        await it.getone()
        await it.commit()
        assert group.outcomes == {0: ACCEPT, 1: REJECT, 2: ACCEPT}
        await it.getone()
    assert group.outcomes == {0: ACCEPT, 1: REJECT, 2: ACCEPT, 3: ACCEPT}


async def test_an_application_that_fails_accepts_nothing_implicitly(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a")

    async def fail() -> None:
        async with consumer(broker, share_acknowledgement_mode="implicit") as it:
            await it.getone()
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert group.outcomes == {}


async def test_with_implicit_acknowledgement_one_task_reads_at_a_time(broker: ScriptedBroker) -> None:
    ScriptedGroup(broker)
    async with consumer(broker, share_acknowledgement_mode="implicit") as it:
        reading = asyncio.create_task(it.getone())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="use explicit"):
            await it.getone()
    with pytest.raises(ClientClosedError):
        await reading


async def test_no_more_than_max_poll_records_are_held(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, *(b"%d" % number for number in range(20)))
    most = 0
    async with consumer(broker, max_poll_records=4) as it:

        async def work() -> None:
            nonlocal most
            async for record in it:
                async with record.processing():
                    most = max(most, len(group.acquired))
                    await asyncio.sleep(0)

        workers = [asyncio.create_task(work()) for _ in range(6)]
        await until(lambda: len(group.outcomes) == 20)
        await it.stop()
        await asyncio.gather(*workers)
    assert 1 <= most <= 4
    assert max(group.fetch_limits) <= 4


async def test_a_lock_is_renewed_while_its_record_is_processed(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a", lock_ms=200)
    async with consumer(broker) as it, consumer(broker) as other:
        record = await it.getone()
        stolen = asyncio.create_task(other.getone())  # It waits for the lock to end.
        async with record.processing():
            await until(lambda: group.renewals >= 4)
        await it.commit()
        assert not stolen.done()
    assert group.outcomes == {0: ACCEPT}
    assert group.counts == {0: 1}
    with pytest.raises(ClientClosedError):
        await stolen


async def test_records_that_wait_to_be_read_keep_their_locks(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a", b"b", lock_ms=200)
    async with consumer(broker) as it:
        first = await it.getone()
        async with first.processing():
            await until(lambda: group.renewals >= 6)
        second = await it.getone()
        assert (second.value, second.delivery_count) == (b"b", 1)


async def test_a_broker_without_renewals_is_asked_for_none() -> None:
    async with ScriptedBroker(ShareFetch=(1, 1), ShareAcknowledge=(1, 1)) as broker:
        group = ScriptedGroup(broker, b"a", lock_ms=150)
        async with consumer(broker) as it:
            record = await it.getone()
            record.holder.begin(record.offset)
            await until(lambda: group.counts[0] == 2)
        assert group.renewals == 0


async def test_an_acknowledgement_after_the_end_of_its_lock_fails_the_commit(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a", b"b")
    async with consumer(broker) as it:
        for record in (await it.getmany(timeout_ms=10_000))[TopicPartition(TOPIC, 0)]:
            record.accept()
            if record.value == b"a":
                group.give_away(0)
        with pytest.raises(AcknowledgementError, match="1 records of t-0 were not acknowledged") as caught:
            await it.commit()
        assert caught.value.offsets == {TopicPartition(TOPIC, 0): [0]}
        assert it.metrics()["acknowledgements-error-total"] == 1
        await it.commit()
    assert group.outcomes == {1: ACCEPT}


@pytest.mark.parametrize("fail", ["the session is forgotten", "an error that may pass"])
async def test_an_acknowledgement_of_a_forgotten_session_or_that_may_pass_later_is_repeated(
    broker: ScriptedBroker, fail: str
) -> None:
    group = ScriptedGroup(broker, b"a")
    async with consumer(broker) as it:
        record = await it.getone()
        if fail == "the session is forgotten":
            group.sessions.clear()
        else:
            group.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        record.accept()
        await it.commit()
    assert group.outcomes == {0: ACCEPT}


async def test_an_answer_that_is_lost_is_no_lost_acknowledgement(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a", b"b")
    async with consumer(broker) as it:
        record = await it.getone()
        broker.cut()
        record.accept()
        await it.commit()
        assert (await it.getone()).value == b"b"
    assert group.outcomes == {0: ACCEPT}


async def test_after_a_lost_connection_nothing_is_read_that_another_may_have_and_nothing_again(
    broker: ScriptedBroker,
) -> None:
    group = ScriptedGroup(broker, b"a", b"b")
    async with consumer(broker) as it:
        record = await it.getone()
        broker.cut()
        group.give_away(1)
        await until(lambda: group.counts[0] == 2)
        group.add(b"c")
        assert (await it.getone()).value == b"c"
        record.accept()
        await it.commit()
    assert group.outcomes == {0: ACCEPT}


async def test_a_record_that_a_deserializer_refuses_is_released_and_the_next_is_read(
    broker: ScriptedBroker,
) -> None:
    group = ScriptedGroup(broker, b"x", b"5")
    async with consumer(broker, value_deserializer=lambda value: int(value or b"")) as it:
        with pytest.raises(RecordDeserializationError):
            await it.getone()
        record = await it.getone()
        assert record.value == 5
        record.accept()
        await it.commit()
    assert group.outcomes == {1: ACCEPT}
    assert group.counts[0] >= 1


async def test_a_group_that_the_user_may_not_use_is_an_error_of_the_next_read(broker: ScriptedBroker) -> None:
    ScriptedGroup(broker, b"a")
    broker.scripts[ApiKey.SHARE_FETCH] = lambda _: {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    async with consumer(broker) as it:
        with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
            await it.getone()


async def test_it_reads_other_topics_after_another_subscription(broker: ScriptedBroker) -> None:
    ScriptedGroup(broker, b"a")
    async with consumer(broker) as it:
        (await it.getone()).accept()
        it.subscribe(["other"])
        assert it.subscription() == {"other"}
        await until(lambda: it.assignment() == set())
        it.unsubscribe()
        with pytest.raises(ValueError, match="has no topics"):
            await it.getone()


async def test_an_iteration_ends_when_the_consumer_is_stopped(broker: ScriptedBroker) -> None:
    ScriptedGroup(broker)
    async with consumer(broker) as it:

        async def read() -> list[object]:
            return [record async for record in it]

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await it.stop()
        assert await reading == []
        with pytest.raises(ClientClosedError):
            await it.commit()


async def test_a_consumer_that_does_not_read_leaves_the_group_until_it_reads(broker: ScriptedBroker) -> None:
    group = ScriptedGroup(broker, b"a")
    async with consumer(broker, max_poll_interval_ms=50) as it:
        await until(lambda: it.assignment())
        await until(lambda: not it.assignment() and not group.members)
        record = await it.getone()
        async with record.processing():
            heartbeats = group.heartbeats
            await until(lambda: group.heartbeats > heartbeats + 3)
            assert it.assignment()
        await it.commit()
    assert group.outcomes == {0: ACCEPT}


async def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="group_id: expected the name of a share group"):
        ShareConsumer("t")
    with pytest.raises(ConfigError, match="implicit"):
        ShareConsumer("t", group_id="g", share_acknowledgement_mode="maybe")
    with pytest.raises(TypeError, match="did you mean max_poll_records"):
        ShareConsumer("t", group_id="g", max_poll_record=1)  # type: ignore[call-arg]
