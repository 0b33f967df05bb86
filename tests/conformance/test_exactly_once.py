"""The settlement of delivery=exactly_once against our broker: wherever a driver dies, and whoever settles at
the same time, a batch is committed as a whole and once, and no transaction stays open."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.conformance.several import EmbeddedBroker
from tests.conformance.test_client_transactions import committed
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.client import Admin, ClientError, ClusterConfig, Producer
from tidelog.pipeline.exactly_once.decision import Decision, ExactlyOnceError, TransactionName, group_of
from tidelog.pipeline.exactly_once.settling import Settlement, Sink, settle
from tidelog.pipeline.exactly_once.task import write_prepared
from tidelog.pipeline.options.sink import SinkOptions
from tidelog.protocol.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from tidelog.wire.connection import Connection

SETTINGS = {
    "transaction.two.phase.commit.enable": True,
    "transaction.two.phase.commit.allowed.ids": "tidelog-sink.*",
}
TIMEOUT_MS = 60_000
CALL = Connection.call


class DriverDied(BaseException):
    """The driver's process ended: it sends nothing more, and handles nothing more."""


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(settings=SETTINGS) as running:
        yield running


def sink_of(broker: EmbeddedBroker, name: str) -> Sink:
    cluster = ClusterConfig(broker.bootstrap_servers, retry_backoff_ms=10)
    return Sink(name, cluster, TIMEOUT_MS)


async def prepare(
    broker: EmbeddedBroker, name: TransactionName, topic: str, *values: bytes
) -> tuple[int, int]:
    """What a task of Spark does with its rows."""
    producer = Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id=str(name),
        transaction_two_phase_commit_enable=True,
    )
    async with producer:
        await producer.begin_transaction()
        for value in values:
            await producer.send(topic, value)
        prepared = await producer.prepare()
    return prepared.producer_id, prepared.producer_epoch


async def execute(
    broker: EmbeddedBroker,
    sink: str,
    topic: str,
    tasks: tuple[tuple[bytes, ...], ...],
    *,
    write: str,
    plan: str = "plan",
    batch: int = 0,
) -> Settlement:
    """One execution of a batch: each task's rows are prepared, and what to settle."""
    names = [TransactionName(sink, batch, write, attempt) for attempt in range(len(tasks))]
    prepared = {
        name: await prepare(broker, name, topic, *rows) for name, rows in zip(names, tasks, strict=True)
    }
    attempts = tuple(name.attempt for name in names)
    return Settlement(batch, Decision(batch, "query", write, plan, write, attempts), prepared)


async def open_transactions(broker: EmbeddedBroker) -> list[str]:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return [each.transactional_id for each in await admin.transactions.list(states=["Ongoing"])]


async def test_a_driver_that_dies_after_any_request_is_finished_by_its_next_start(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start repeats the batch in another layout."""
    topic = await broker.create_topic()
    requests_left = 0

    async def call(connection: Connection, *given: Any, **more: Any) -> Any:
        nonlocal requests_left
        requests_left -= 1
        if requests_left < 0:
            raise DriverDied
        answer = await CALL(connection, *given, **more)
        if requests_left == 0:
            raise DriverDied
        return answer

    expected, deaths = [], 0
    for number in range(1, 1000):
        sink, rows = f"sink-{number}", (b"%d-a" % number, b"%d-b" % number)
        settlement = await execute(broker, sink, topic, (rows[:1], rows[1:]), write="first")
        await prepare(broker, TransactionName(sink, 0, "first", 9), topic, b"of an attempt that failed")
        requests_left = number
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "call", call)
            try:
                await settle(sink_of(broker, sink), settlement)
            except DriverDied:
                deaths += 1
            else:
                break
        again = await execute(broker, sink, topic, (rows,), write="second")
        await settle(sink_of(broker, sink), again)
        expected += rows
    assert deaths > 8
    assert sorted(await committed(broker, topic)) == sorted([*expected, *rows])
    assert await open_transactions(broker) == []


async def test_of_drivers_on_copies_of_a_checkpoint_one_commits_its_batch(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(14)

    async def pause() -> None:
        for _ in range(rng.choice((0, 1, 10, 100))):
            await asyncio.sleep(0)

    async def call(connection: Connection, *given: Any, **more: Any) -> Any:
        await pause()
        return await CALL(connection, *given, **more)

    monkeypatch.setattr(Connection, "call", call)
    for number in range(4):
        topic = await broker.create_topic()
        sink = f"sink-{number}"
        rows = {name: (b"%s-1" % name.encode(), b"%s-2" % name.encode()) for name in ("a", "b")}

        async def drive(name: str, sink: str = sink, topic: str = topic, rows: Any = rows) -> bool:
            """Whether the driver was told that its batch is committed. If not, it aborts, as Spark does."""
            tasks = tuple((row,) for row in rows[name])
            settlement = await execute(broker, sink, topic, tasks, write=name, plan=f"plan of {name}")
            try:
                await settle(sink_of(broker, sink), settlement)
            except ExactlyOnceError:
                await pause()
                with contextlib.suppress(ExactlyOnceError):
                    await settle(sink_of(broker, sink), Settlement(0))
                return False
            return True

        done = await asyncio.gather(drive("a"), drive("b"))
        # The next start of whichever comes first.
        await settle(sink_of(broker, sink), Settlement(0))
        found = sorted(await committed(broker, topic))
        assert found in ([], list(rows["a"]), list(rows["b"]))
        assert not (done[0] and done[1])
        assert not done[0] or found == list(rows["a"])
        assert not done[1] or found == list(rows["b"])
        if not found:
            assert await drive("a")
            assert sorted(await committed(broker, topic)) == list(rows["a"])
    assert await open_transactions(broker) == []


async def test_an_operator_who_ends_a_transaction_is_noticed(broker: EmbeddedBroker) -> None:
    topic = await broker.create_topic()
    sink = sink_of(broker, "sink")
    before = await execute(broker, "sink", topic, ((b"lost",), (b"stays",)), write="before")
    by_hand, _ = before.prepared
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.transactions.abort(str(by_hand))
        with pytest.raises(ExactlyOnceError, match="was ended before its batch was decided"):
            await settle(sink, before)
        await settle(sink, Settlement(0))
        assert await committed(broker, topic) == []

        committed_by_hand = await execute(broker, "sink", topic, ((b"a",), (b"b",)), write="by hand")
        await admin.transactions.commit_prepared(str(next(iter(committed_by_hand.prepared))))
        await settle(sink, committed_by_hand)
        await settle(sink, committed_by_hand)
        assert sorted(await committed(broker, topic)) == [b"a", b"b"]

        # The decision is made, and one of its transactions is aborted before it is committed.
        class Interrupted(Exception):
            pass

        decided = await execute(broker, "sink", topic, ((b"c",),), write="decided", batch=1)

        async def end(*given: Any, **more: Any) -> None:
            raise Interrupted

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("tidelog.client.admin.transactions.TransactionAdmin.end", end)
            with pytest.raises(Interrupted):
                await settle(sink, decided)
        await admin.transactions.abort(str(next(iter(decided.prepared))))
        with pytest.raises(ExactlyOnceError, match="was aborted by hand after batch 1 was decided"):
            await settle(sink, decided)


async def test_a_topic_that_was_created_again_fails_the_batch(broker: EmbeddedBroker) -> None:
    topic = await broker.create_topic()
    options = SinkOptions(ClusterConfig(broker.bootstrap_servers), topic)
    name = TransactionName("sink", 0, "write", 0)
    table = pa.table({"value": pa.array([b"x"], pa.binary())})
    rows = await asyncio.to_thread(write_prepared, options, name, table.to_batches())
    assert rows.transaction is not None
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.delete_topics([topic])
        settlement = Settlement(
            0, Decision(0, write="write", attempts=(0,)), {name: rows.transaction}, rows.topic_ids
        )
        with pytest.raises(ExactlyOnceError, match="a topic was deleted"):
            await settle(sink_of(broker, "sink"), settlement)
        await broker.create_topic(topic)
        with pytest.raises(ExactlyOnceError, match="was deleted and created again"):
            await settle(sink_of(broker, "sink"), settlement)
        await settle(sink_of(broker, "sink"), Settlement(0))
        # It counts once the markers of its transaction are written.
        await until(lambda: admin.groups.offsets(group_of("sink")))
    assert await committed(broker, topic) == []
    assert await open_transactions(broker) == []


def may(operation: Operation, resource_type: ResourceType, name: str, pattern: PatternType) -> Acl:
    return Acl(resource_type, pattern, name, "User:ANONYMOUS", "*", operation, Permission.ALLOW)


@pytest.mark.one_broker("makes ACLs inside the broker")
async def test_a_sink_needs_the_documented_rights_and_no_others() -> None:
    """Those of docs/authorization.md. DescribeConfigs is needed for a batch that is older than a minute."""
    settings = {**SETTINGS, "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    table = pa.table({"value": pa.array([b"x"], pa.binary())})
    rights = [
        may(Operation.WRITE, ResourceType.TOPIC, "topic", PatternType.LITERAL),
        may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tidelog-sink.", PatternType.PREFIXED),
        may(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, "tidelog-sink.", PatternType.PREFIXED),
        may(Operation.READ, ResourceType.GROUP, "tidelog-sink.", PatternType.PREFIXED),
        may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL),
    ]
    two_minutes_ago_ms = int(time.time() * 1000) - 120_000
    async with EmbeddedBroker(settings=settings) as broker:
        acls = broker.broker.services.acls
        await broker.create_topic("topic")
        cluster = ClusterConfig(broker.bootstrap_servers, retry_backoff_ms=10)

        async def store(number: int, planned_ms: int | None) -> None:
            name = TransactionName(f"sink-{number}", 0, "write", 0)
            options = SinkOptions(cluster, "topic")
            rows = await asyncio.to_thread(write_prepared, options, name, table.to_batches())
            assert rows.transaction is not None
            decision = Decision(0, write="write", attempts=(0,))
            prepared = {name: rows.transaction}
            await settle(
                Sink(name.sink, cluster, TIMEOUT_MS),
                Settlement(0, decision, prepared, rows.topic_ids, planned_ms),
            )

        await acls.create(rights)
        await store(0, two_minutes_ago_ms)
        for number, right in enumerate(rights, 1):
            await acls.delete([right])
            with pytest.raises(
                (ExactlyOnceError, ClientError), match=r"AUTHORIZATION_FAILED|DescribeConfigs"
            ):
                await store(number, two_minutes_ago_ms)
            if right.operation != Operation.DESCRIBE_CONFIGS:
                await acls.create([right])
        await store(len(rights) + 1, int(time.time() * 1000))
        read = may(Operation.READ, ResourceType.TOPIC, "topic", PatternType.LITERAL)
        await acls.create([read])
        for number in range(1, len(rights) + 1):
            await settle(Sink(f"sink-{number}", cluster, TIMEOUT_MS), Settlement(0))
        assert await committed(broker, "topic") == [b"x", b"x"]


async def test_an_execution_that_is_too_old_is_refused_again_after_its_abort(broker: EmbeddedBroker) -> None:
    """The broker may have forgotten a decision about its batch. The abort must not hide that."""
    topic = await broker.create_topic()
    for write in ("first", "second"):
        old = replace(await execute(broker, "sink", topic, ((b"x",),), write=write), planned_ms=1)
        with pytest.raises(ExactlyOnceError, match="it is not known whether it was committed"):
            await settle(sink_of(broker, "sink"), old)
        await settle(sink_of(broker, "sink"), Settlement(0))
    assert await committed(broker, topic) == []


@pytest.fixture
def failing_rows() -> Iterator[Any]:
    def rows() -> Iterator[Any]:
        yield pa.record_batch({"value": pa.array([b"x"] * 70_000, pa.binary())})
        raise RuntimeError("the task fails")

    return rows()


async def test_a_task_that_fails_aborts_what_it_wrote(broker: EmbeddedBroker, failing_rows: Any) -> None:
    topic = await broker.create_topic()
    options = SinkOptions(ClusterConfig(broker.bootstrap_servers), topic)
    name = TransactionName("sink", 0, "write", 0)
    with pytest.raises(RuntimeError, match="the task fails"):
        await asyncio.to_thread(write_prepared, options, name, failing_rows)
    assert await open_transactions(broker) == []
    assert await committed(broker, topic) == []


async def test_a_task_whose_rows_another_driver_aborts_says_who_did_it(broker: EmbeddedBroker) -> None:
    topic = await broker.create_topic()
    loop, sink = asyncio.get_running_loop(), sink_of(broker, "sink")
    rows = pa.record_batch({"value": pa.array([b"x"] * 70_000, pa.binary())})

    async def take_over() -> None:
        await until(lambda: open_transactions(broker))
        assert await settle(sink, Settlement(0)) == 1

    def taken_over() -> Iterator[Any]:
        yield rows
        asyncio.run_coroutine_threadsafe(take_over(), loop).result(DEADLINE_SECONDS)
        yield rows

    name = TransactionName("sink", 0, "write", 0)
    with pytest.raises(ExactlyOnceError, match="another driver runs this query"):
        await asyncio.to_thread(
            write_prepared, SinkOptions(ClusterConfig(broker.bootstrap_servers), topic), name, taken_over()
        )
    assert await committed(broker, topic) == []
