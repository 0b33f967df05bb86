"""Our transactional producer against our broker: what is committed is read once, the rest never."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.conformance.client_site import FIRST, TOPIC, Site
from tests.conformance.several import EmbeddedBroker
from tests.conformance.test_transactions import read
from tests.ports import free_port
from tests.waiting import DEADLINE_SECONDS, pause
from tidelog.client import (
    Admin,
    BrokerError,
    Consumer,
    Delivery,
    Producer,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortedError,
    TransactionStateError,
)
from tidelog.client.offset_lookup import LATEST, edge_offsets
from tidelog.protocol.schema import ApiKey
from tidelog.wire.connection import Connection

QUICK = {"retry_backoff_ms": 10, "request_timeout_ms": int(DEADLINE_SECONDS * 1000)}
"""A busy machine takes long to start brokers again."""


TWO_PHASE = {
    "transaction.two.phase.commit.enable": True,
    "transaction.two.phase.commit.allowed.ids": "prepared-*",
}


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    # Nobody else may get its port while it does not run.
    async with EmbeddedBroker(settings=TWO_PHASE | {"port": free_port()}) as running:
        yield running


@pytest.fixture(params=["an epoch for each transaction", "one epoch"])
def versions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Also with a cluster that has not finalized transaction.version 2: the version."""
    if request.param == "one epoch":
        features: Mapping[str, int] = {}
        monkeypatch.setattr(Connection, "features", property(lambda _: features, lambda _, __: None))
        return 1
    return 2


def producer(broker: EmbeddedBroker, transactional_id: str = "app", **settings: object) -> Producer:
    return Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id=transactional_id,
        **{**QUICK, "transaction_timeout_ms": QUICK["request_timeout_ms"], **settings},  # type: ignore[arg-type]
    )


async def committed(broker: EmbeddedBroker, topic: str, partitions: int = 1) -> list[bytes]:
    """What a reader of committed records gets, up to the end; it fails if a transaction is open.

    A transaction that was ended is open until its markers are written, which is after the answer.
    """
    consumer = Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=20,
        **QUICK,  # type: ignore[arg-type]
    )
    values: list[Any] = []
    async with consumer, asyncio.timeout(DEADLINE_SECONDS):
        keys = [TopicPartition(topic, number) for number in range(partitions)]
        ends = await edge_offsets(consumer._cluster, keys, LATEST)
        while any([await consumer.position(key) < ends[key] for key in keys]):
            for records in (await consumer.getmany(timeout_ms=50)).values():
                values += [record.value for record in records]
    return values


async def test_the_context_manager_commits_at_the_end_and_aborts_on_an_exception(
    broker: EmbeddedBroker,
) -> None:
    topic = await broker.create_topic()
    async with producer(broker) as writer:
        async with writer.transaction():
            first = await writer.send(topic, b"committed")
        lost: list[Delivery] = []

        async def fail() -> None:
            async with writer.transaction():
                await writer.send_and_wait(topic, b"acknowledged, then aborted")
                lost.append(await writer.send(topic, b"given up"))
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        with pytest.raises(TransactionAbortedError):
            await lost[0]
        async with writer.transaction():
            pass
        async with writer.transaction():
            second = await writer.send(topic, b"committed too")
        epochs = [(await each).producer_epoch for each in (first, second)]
    assert epochs[0] < epochs[1]
    assert await committed(broker, topic) == [b"committed", b"committed too"]
    values = await asyncio.to_thread(read, broker.bootstrap_servers, topic)
    assert values == [b"committed", b"committed too"]


@pytest.mark.usefixtures("versions")
async def test_a_zombie_is_fenced_for_good_and_its_records_are_never_read(broker: EmbeddedBroker) -> None:
    topic = await broker.create_topic()
    async with producer(broker) as zombie:
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"zombie")
        async with producer(broker) as successor, successor.transaction():
            await successor.send(topic, b"successor")
        with pytest.raises(ProducerFencedError):
            await (await zombie.send(topic, b"zombie again"))
        for call in (zombie.commit_transaction, zombie.abort_transaction, zombie.begin_transaction):
            with pytest.raises(ProducerFencedError):
                await call()
    assert await committed(broker, topic) == [b"successor"]


@pytest.mark.usefixtures("versions")
async def test_a_transaction_continues_after_a_crash_of_the_broker(broker: EmbeddedBroker) -> None:
    topic = await broker.create_topic()
    async with producer(broker, max_batch_size=200) as writer:
        await writer.begin_transaction()
        await writer.send_and_wait(topic, b"00")
        deliveries = [await writer.send(topic, b"%02d" % number) for number in range(1, 60)]
        await broker.crash()
        await broker.start()
        for delivery in deliveries:
            await delivery
        ending = asyncio.create_task(writer.commit_transaction())
        await asyncio.sleep(0)
        await broker.crash()
        await broker.start()
        await ending
        async with writer.transaction():
            await writer.send(topic, b"next")
    assert await committed(broker, topic) == [*(b"%02d" % number for number in range(60)), b"next"]


@pytest.mark.usefixtures("versions")
async def test_offsets_and_results_are_committed_together_exactly_once_over_a_crash(
    broker: EmbeddedBroker,
) -> None:
    source, target = await broker.create_topic(), await broker.create_topic()
    inputs = [b"%02d" % number for number in range(30)]
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as plain:
        for value in inputs:
            await plain.send(source, value)

    async def process(limit: int) -> None:
        """Copies up to `limit` records in transactions of five, then ends in the middle of one."""
        reader = Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="copy",
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **QUICK,  # type: ignore[arg-type]
        )
        key = TopicPartition(source, 0)
        async with reader, producer(broker, "copy") as writer:
            reader.assign([key])
            done = await reader.committed(key) or 0
            while done < len(inputs):
                await writer.begin_transaction()
                for _ in range(5):
                    record = await reader.getone()
                    await writer.send(target, record.value)
                await writer.send_offsets_to_transaction({key: done + 5}, reader.group_metadata())
                if limit <= done:
                    await broker.crash()
                    await broker.start()
                    raise ConnectionAbortedError
                await writer.commit_transaction()
                done += 5

    with pytest.raises(ConnectionAbortedError):
        await process(10)
    await process(len(inputs))
    assert await committed(broker, target) == inputs


async def test_a_producer_that_is_closed_aborts_its_transaction(broker: EmbeddedBroker) -> None:
    topic = await broker.create_topic()
    async with producer(broker) as writer:
        await writer.begin_transaction()
        await writer.send_and_wait(topic, b"left")
    assert await committed(broker, topic) == []


async def test_a_prepared_transaction_outlives_its_producer_and_another_one_ends_it(
    broker: EmbeddedBroker, versions: int
) -> None:
    topic = await broker.create_topic()
    settings = {"transaction_two_phase_commit_enable": True}
    prepared = []
    for name in (b"committed", b"aborted"):
        async with producer(broker, f"prepared-{name.decode()}", **settings) as writer:
            await writer.begin_transaction()
            await writer.send(topic, name)
            prepared.append(await writer.prepare())
            with pytest.raises(TransactionStateError, match="has prepared"):
                await writer.send(topic, b"too late")
    await broker.restart()
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        (transactional_id, *identity), (aborted_id, *_) = prepared
        with pytest.raises(BrokerError, match="INVALID_TXN_STATE"):
            await admin.transactions.commit_prepared(transactional_id, (identity[0], identity[1] + 1))
        await admin.transactions.commit_prepared(transactional_id, (identity[0], identity[1]))
        await admin.transactions.abort(aborted_id)
        names = {each.transactional_id for each in await admin.transactions.list("prepared-(ab|com).*")}
        assert names == {transactional_id, aborted_id}
        assert await admin.transactions.list("prepared") == []
        async with asyncio.timeout(DEADLINE_SECONDS):
            # The answer comes before the markers.
            while (ended := await admin.transactions.describe(transactional_id)).state != "CompleteCommit":
                await pause(0.01)
        # Both attempts got an epoch, and in version 2 the end of the transaction gave one more.
        assert ended.producer_epoch == identity[1] + 2 + (versions - 1)
    assert await committed(broker, topic) == [b"committed"]


async def test_a_producer_commits_and_aborts_what_it_prepared(broker: EmbeddedBroker) -> None:
    topic = await broker.create_topic()
    async with producer(broker, "prepared-own", transaction_two_phase_commit_enable=True) as writer:
        async with writer.transaction():
            await writer.send(topic, b"committed")
            await writer.prepare()
        await writer.begin_transaction()
        await writer.send(topic, b"aborted")
        await writer.prepare()
        await writer.abort_transaction()
    assert await committed(broker, topic) == [b"committed"]
    async with producer(broker, "plain") as plain:
        with pytest.raises(ValueError, match="transaction_two_phase_commit_enable"):
            await plain.prepare()


async def test_a_commit_whose_answer_is_lost_is_decided_once(site: Site) -> None:
    await site.create()
    async with site.producer(transactional_id="app") as writer:
        for number in range(6):
            fault = site.proxy.cut_after_request(api_key=ApiKey.END_TXN)
            await writer.begin_transaction()
            await writer.send_and_wait(TOPIC, b"%d" % number)
            if number % 2:
                await writer.abort_transaction()
            else:
                await writer.commit_transaction()
            await fault.wait(10_000)
    async with site.consumer(TOPIC, isolation_level="read_committed") as reader:
        found = [(await reader.getone()).value for _ in range(3)]
        ends = await reader.end_offsets([FIRST])
    assert found == [b"0", b"2", b"4"]
    assert ends == {FIRST: 12}  # A marker follows each of the six records.


@pytest.mark.usefixtures("versions")
async def test_a_transaction_of_which_nothing_arrived_can_be_aborted(site: Site) -> None:
    """The coordinator refuses the end of a transaction that it does not have."""
    await site.create()
    async with site.producer(transactional_id="app") as writer:
        async with writer.transaction():
            await writer.send(TOPIC, b"first")
        faults = [
            site.proxy.cut_before_request(10_000, api_key=key)
            for key in (ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT)
        ]
        await writer.begin_transaction()
        lost = asyncio.create_task(writer.send_offsets_to_transaction({FIRST: 1}, "group"))
        await site.proxy.wait_until(lambda: any(fault.remaining < 10_000 for fault in faults))
        lost.cancel()
        site.proxy.heal()
        await writer.abort_transaction()
        async with writer.transaction():
            await writer.send(TOPIC, b"second")
    async with site.consumer(TOPIC, isolation_level="read_committed") as reader:
        assert [(await reader.getone()).value for _ in range(2)] == [b"first", b"second"]


@pytest.mark.usefixtures("versions")
async def test_partitions_are_added_first_only_where_brokers_do_not_add_them(
    site: Site, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow disk, the second transaction would be refused until the markers of the first are written.
    monkeypatch.setattr(
        "tidelog.broker.coordinator.transaction_coordinator.ENDING_WAIT_SECONDS", DEADLINE_SECONDS
    )
    await site.create(2)
    asked: list[int] = []
    async with site.producer(transactional_id="app") as writer:
        site.proxy.tap = lambda each: asked.append(each.api_key)
        epochs = set()
        for _ in range(2):
            async with writer.transaction():
                delivery = await writer.send(TOPIC, b"value", partition=0)
                await writer.send_offsets_to_transaction({FIRST: 1}, "group")
            epochs.add((await delivery).producer_epoch)
    ours = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.PRODUCE, ApiKey.END_TXN}
    order = [each for each in asked if each in ours]
    if "one epoch" in request.node.name:
        assert len(epochs) == 1
        for begin in (order[:4], order[4:]):
            assert set(begin) == ours
            assert begin.index(ApiKey.ADD_PARTITIONS_TO_TXN) < begin.index(ApiKey.PRODUCE)
            assert begin[-1] == ApiKey.END_TXN
    else:
        assert len(epochs) == 2
        assert order == [ApiKey.PRODUCE, ApiKey.END_TXN] * 2
