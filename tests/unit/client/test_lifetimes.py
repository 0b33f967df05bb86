"""How clients start and stop: before the start, twice at once, again after a failure, cancelled, never; and
on which event loop."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from tests.unit.wire.clusters import opened
from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import (
    Admin,
    ClientClosedError,
    Consumer,
    ConsumerRebalanceListener,
    Producer,
    TopicPartition,
    UnsupportedVersionError,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

FIRST = TopicPartition(TOPIC, 0)


def coordinator(_: Request) -> dict[str, object]:
    return {"error_code": 0, "node_id": 1, "host": "127.0.0.1", "port": 1}


async def test_a_call_before_the_start_says_what_to_do() -> None:
    admin = Admin(bootstrap_servers="127.0.0.1:1")
    for call in admin.list_topics(), admin.delete_topics(["t"]):
        with pytest.raises(ClientClosedError, match=r"call start\(\) first"):
            await call


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
async def test_a_start_that_failed_can_be_repeated(client: Any, broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.API_VERSIONS] = lambda _: {"error_code": ErrorCode.INVALID_REQUEST}
    it = client(bootstrap_servers=broker.address)
    with pytest.raises(UnsupportedVersionError):
        await it.start()
    del broker.scripts[ApiKey.API_VERSIONS]
    await it.start()
    await it.close()


async def test_what_was_closed_while_a_refresh_began_can_be_started_again() -> None:
    async with ScriptedBroker() as broker, opened(broker.address) as cluster:
        cluster.request_refresh()
        await cluster.close()
        await cluster.start()


async def test_a_producer_that_is_started_twice_at_once_starts_once(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.FIND_COORDINATOR] = coordinator
    it = Producer(bootstrap_servers=broker.address, transactional_id="id")
    await asyncio.gather(it.start(), it.start())
    await it.begin_transaction()
    await it.stop()
    assert len(broker.seen(ApiKey.INIT_PRODUCER_ID)) == 1


async def test_a_consumer_that_is_started_twice_at_once_is_one_member(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.FIND_COORDINATOR] = coordinator
    broker.scripts[ApiKey.JOIN_GROUP] = lambda _: None
    it = Consumer(TOPIC, bootstrap_servers=broker.address, group_id="g")
    await asyncio.gather(it.start(), it.start())
    await until(lambda: bool(broker.seen(ApiKey.JOIN_GROUP)))
    await it.stop()
    assert len(broker.seen(ApiKey.JOIN_GROUP)) == 1


@pytest.fixture
async def unanswered() -> Any:
    """A broker whose coordinator never answers, and a consumer that has something to commit."""
    async with ScriptedBroker() as broker:
        broker.scripts[ApiKey.FIND_COORDINATOR] = lambda _: None
        it = Consumer(bootstrap_servers=broker.address, group_id="g", request_timeout_ms=200)
        await it.start()
        it.assign([FIRST])
        it.pause(FIRST)
        it.seek(FIRST, 3)
        yield broker, it
        assert it._is_closed
        await until(lambda: not broker._writers)


async def test_a_stop_that_is_cancelled_leaves_no_member_and_no_connection(unanswered: Any) -> None:
    _, it = unanswered
    tasks = it._group._tasks
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(it.stop(), 0.02)
    assert all(task.done() for task in tasks)


async def test_a_stop_waits_for_a_silent_coordinator_as_long_as_one_request_may_take(unanswered: Any) -> None:
    broker, it = unanswered
    before = len(broker.seen(ApiKey.FIND_COORDINATOR))
    await asyncio.wait_for(it.stop(), DEADLINE_SECONDS)
    # One that the group asks on its own, one of the commit.
    assert len(broker.seen(ApiKey.FIND_COORDINATOR)) <= before + 2


async def test_a_call_that_waits_for_a_position_ends_with_the_consumer(unanswered: Any) -> None:
    _, it = unanswered
    it.assign([TopicPartition(TOPIC, 1)])
    asking = asyncio.create_task(it.position(TopicPartition(TOPIC, 1)))
    await asyncio.sleep(0)
    await it.stop()
    with pytest.raises(ClientClosedError):
        await asyncio.wait_for(asking, DEADLINE_SECONDS)


async def elsewhere(work: Coroutine[Any, Any, None]) -> None:
    """Run it on another event loop, in another thread."""
    await asyncio.to_thread(asyncio.run, work)


@pytest.mark.parametrize(
    ("client", "calls"),
    [
        (Producer, [lambda it: it.send(TOPIC, b"2"), lambda it: it.flush(), lambda it: it.stop()]),
        (Consumer, [lambda it: it.getone(), lambda it: it.getmany(), lambda it: it.stop()]),
        (Admin, [lambda it: it.list_topics(), lambda it: it.close()]),
    ],
)
async def test_a_client_refuses_calls_on_another_event_loop(client: Any, calls: Any) -> None:
    async def use(call: Any) -> None:
        with pytest.raises(RuntimeError, match="started on another event loop"):
            await asyncio.wait_for(call(it), DEADLINE_SECONDS)

    async with ScriptedBroker() as broker:
        it = client(bootstrap_servers=broker.address)
        await it.start()
        for call in calls:
            await elsewhere(use(call))
        await it.close()


async def test_a_producer_that_was_never_stopped_logs_how_many_records_it_loses() -> None:
    async def forget(address: str) -> None:
        it = Producer(bootstrap_servers=address, linger_ms=60_000)
        await it.start()
        await it.send(TOPIC, b"1")
        await it.send(TOPIC, b"2")

    async with ScriptedBroker() as broker:
        await elsewhere(forget(broker.address))
    with capture_logs() as events:
        gc.collect()
    [event] = [each for each in events if each["event"] == "producer_was_not_stopped"]
    assert event["unacknowledged_records"] == 2


async def test_a_consumer_that_was_never_stopped_leaves_no_task_to_its_loop(broker: ScriptedBroker) -> None:
    loops = []

    async def forget(address: str) -> None:
        loops.append(asyncio.get_running_loop())
        it = Consumer(bootstrap_servers=address)
        await it.start()
        it.assign([FIRST])
        it.seek(FIRST, 0)
        await until(lambda: bool(broker.seen(ApiKey.FETCH)))

    broker.scripts[ApiKey.FETCH] = lambda _: None
    await elsewhere(forget(broker.address))
    assert not asyncio.all_tasks(loops[0])


async def test_a_callback_at_the_stop_commits_under_the_epoch_that_the_broker_has_now() -> None:
    """While the consumer stops, the group goes on: the member learns the new epoch by a heartbeat."""
    epoch, committed = 1, []
    topic_id = UUID(int=7)

    def metadata(_: Request) -> dict[str, Any]:
        answer: dict[str, Any] = broker.metadata([TOPIC])
        answer["topics"][0]["topic_id"] = topic_id
        return answer

    def heartbeat(request: Request) -> dict[str, object]:
        assigned = {"topic_partitions": [{"topic_id": topic_id, "partitions": [0]}]}
        return {
            "error_code": 0,
            "member_id": request.values.member_id,
            "member_epoch": -1 if request.values.member_epoch < 0 else epoch,
            "heartbeat_interval_ms": 60_000,
            "assignment": None if request.values.member_epoch else assigned,
        }

    def commit(request: Request) -> dict[str, object]:
        is_stale = request.values.generation_id_or_member_epoch != epoch
        code = ErrorCode.STALE_MEMBER_EPOCH if is_stale else ErrorCode.NONE
        if not is_stale:
            committed.append(request.values.topics[0].partitions[0].committed_offset)
        return {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "error_code": code}]}]}

    class Committing(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            nonlocal epoch
            epoch = 2
            await it.commit({FIRST: 5})

    async with ScriptedBroker() as broker:
        broker.scripts |= {
            ApiKey.METADATA: metadata,
            ApiKey.FIND_COORDINATOR: coordinator,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: heartbeat,
            ApiKey.OFFSET_COMMIT: commit,
            ApiKey.OFFSET_FETCH: lambda _: None,
        }
        it = Consumer(
            bootstrap_servers=broker.address,
            group_id="g",
            group_protocol="consumer",
            enable_auto_commit=False,
            request_timeout_ms=2_000,
        )
        it.subscribe([TOPIC], listener=Committing())
        await it.start()
        await until(lambda: FIRST in it.assignment())
        await it.stop()
    assert committed == [5]


async def test_a_stop_waits_until_the_broker_has_read_what_it_does_not_acknowledge() -> None:
    gate = asyncio.Event()

    async def produced(_: Request) -> None:
        await gate.wait()  # Meanwhile nothing more is read from the connection.

    async with ScriptedBroker() as broker:
        broker.scripts[ApiKey.PRODUCE] = produced
        it = Producer(
            bootstrap_servers=broker.address, acks=0, enable_idempotence=False, max_request_size=1 << 24
        )
        await it.start()
        await it.send(TOPIC, b"1")
        await until(lambda: bool(broker.seen(ApiKey.PRODUCE)))
        await it.send(TOPIC, bytes(1 << 23))  # More than the kernel takes.
        stopping = asyncio.create_task(it.stop())
        await asyncio.wait([stopping], timeout=0.1)
        gate.set()
        await stopping
        await until(lambda: not broker._writers)
        assert len(broker.seen(ApiKey.PRODUCE)) == 2
