"""Schedules that are written down, each for one rule of the design: which fault happens at which step.

Owns the scenarios. The brokers, etcd and the network are those of `world`, and nothing else goes wrong. Each
scenario waits for what happens next, never for a time in which it may happen.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from faults.checker import Kind
from faults.readback import COMMITTED, read_all
from faults.wire import Wire
from tests.simulation.platter import Platter
from tests.simulation.transactions import play
from tests.simulation.virtual_broker import VirtualBroker
from tests.simulation.virtual_etcd import MEMBERS
from tests.simulation.virtual_loop import Node, VirtualLoop
from tests.simulation.world import Run, Shape, World
from tidelog.broker.cluster.catalog import PartitionAssignment, ProducerIdsReserved
from tidelog.broker.storage.refused_batches import REMEMBERED_MS
from tidelog.client import Admin, ClientError, Consumer, NewTopic, Producer, TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

TOPIC: Final = "t"
_STEP_S: Final = 0.001
_LONGEST_S: Final = 20.0
_GONE_S: Final = 4.0
"""Longer than a session holds."""


class Scenario(NamedTuple):
    """`steps` are taken once all brokers serve."""

    steps: "Callable[[Stage], Coroutine[Any, Any, None]]"
    brokers: int = 1
    replicas: int = 1
    """Of each partition; two of them have to be in sync, where a topic does not say otherwise."""
    has_epochs: bool = True
    """Whether each transaction has an epoch of its own."""
    has_racks: bool = False
    """Whether each broker has its number as rack, and consumers read in theirs."""
    is_tiered: bool = False

    def play(self) -> Run:
        shape = Shape(
            self.brokers, self.replicas, is_tiered=self.is_tiered, settle_s=60, stops_at_finding=True
        )

        def stage(seed: int, loop: VirtualLoop, shape: Shape, *, has_epochs: bool) -> Stage:
            return Stage(self, seed, loop, shape, has_epochs=has_epochs)

        return play(int(self.has_epochs), shape, stage)


class Stage(World):
    """A world in which only a scenario breaks something."""

    def __init__(self, scenario: Scenario, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._scenario = scenario
        self.etcd.most_lease_slack_s = 0.0
        for broker in self.brokers:
            broker.patiences_s = (1.0,)
            broker.keeps_dying = False
            if scenario.has_racks:
                broker.settings |= {
                    "broker_rack": str(broker.node_id),
                    "replica_selector_class": "RackAwareReplicaSelector",
                }

    async def _play(self) -> None:
        for broker in self.brokers:
            broker.start()
        await self.until_served()
        await self.observer.start(self._scenario.steps(self))

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for it; what does not come about in time is found."""
        end = self.loop.time() + _LONGEST_S
        while not condition():
            if self.loop.time() > end:
                self.run.find(Kind.BROKEN_RULE, what)
                return
            await asyncio.sleep(_STEP_S)

    def close(self, sources: tuple[str, ...], targets: tuple[str, ...]) -> None:
        for source in sources:
            for target in targets:
                self.network.close_way(source, target)

    def change(self, broker: VirtualBroker) -> "asyncio.Task[Any]":
        """Begin a change of the catalog."""
        assert broker.services is not None
        cluster = broker.services.cluster
        return broker.node.start(
            cluster.change(lambda catalog: ProducerIdsReserved(catalog.next_producer_id + 1))
        )

    async def start_again(self, broker: VirtualBroker, platter: Platter | None = None) -> None:
        life = broker.lives
        broker.kill(cuts_power=False, platter=platter)
        await self.until(lambda: broker.lives > life and broker.services, "a broker does not start again")
        await self.until_served()

    def lose_all_that_is_not_durable(self, broker: VirtualBroker) -> None:
        broker.platter.cuts_all = True
        broker.kill(cuts_power=True)

    def empty_disk(self) -> Platter:
        return Platter(Path("/empty"))

    def copy_of(self, platter: Platter) -> Platter:
        return platter.copied_to(Path("/copy"))

    async def start_with(self, broker: VirtualBroker, platter: Platter) -> None:
        """Start a broker with a disk that is not its own; it gets its own one back once it is refused."""
        self._foreign[broker.node_id] = broker.platter
        if self.shape.replicas > 1:
            self.facts.lost_disks[broker.node_id] = self.facts.catalog.brokers[broker.node_id].incarnation
        await self.start_again(broker, platter)

    async def make_topic(self, replicas: int = 0, configs: Mapping[str, str] | None = None) -> None:
        """One partition for each broker."""
        async with Admin(bootstrap_servers=self.address) as admin:
            topic = NewTopic(TOPIC, len(self.brokers), replicas or self.shape.replicas, configs)
            await admin.create_topics([topic])
        await self.until_served()

    def part(self, one: VirtualBroker, other: VirtualBroker) -> None:
        """Let nothing reach one of these brokers from the other."""
        self.close((one.machine,), (other.machine,))
        self.close((other.machine,), (one.machine,))

    def once_stored(self, condition: Callable[[], bool], work: Callable[[], object]) -> list[None]:
        """Do this within the first commit after which the condition holds, before any broker hears of it.
        What is returned has an element then."""
        done: list[None] = []

        def look(_name: str, _value: bytes) -> None:
            if not done and condition():
                done.append(None)
                work()

        self.etcd.on_change.append(look)
        return done

    def hold_flushes(self, broker: VirtualBroker, partition: int) -> None:
        """Let nothing more become durable of this partition in the present life of the broker."""
        assert broker.services is not None
        replica = broker.services.replicas[TOPIC, partition]
        replica._group_commit = SimpleNamespace(request=lambda log: log.begin_flush())  # type: ignore[assignment]

    def led_by(self, topic: str, partition: int) -> VirtualBroker:
        return self.brokers[self.assigned(topic, partition).leader_id - 1]

    def assigned(self, topic: str, partition: int) -> PartitionAssignment:
        found = self.facts.catalog.topic(topic)
        assert found is not None
        return found.partitions[partition]


async def answer_of_a_commit_is_lost(stage: Stage) -> None:
    broker = stage.brokers[0]
    before = stage.facts.catalog.revision
    stage.close(MEMBERS, (broker.machine,))
    change = stage.change(broker)
    await stage.until(lambda: stage.facts.catalog.revision > before, "a commit does not arrive")
    await stage.loop.after(2.5)  # The broker gave up waiting for an answer, and asks what became of it.
    stage.network.open_all_ways()
    await change


async def commit_arrives_after_it_was_given_up(stage: Stage) -> None:
    broker = stage.brokers[0]
    assert broker.services is not None
    client: Any = broker.services.cluster._store._client  # type: ignore[attr-defined]
    member = MEMBERS[client._next % len(MEMBERS)]
    stage.etcd.stop(member)
    (failure,) = await asyncio.gather(stage.change(broker), return_exceptions=True)
    assert isinstance(failure, Exception)
    stage.etcd.go_on(member)
    await stage.loop.after(1)


async def journal_is_gone_when_a_broker_comes_back(stage: Stage) -> None:
    broker, other = stage.brokers
    life = broker.node
    stage.close(MEMBERS, (broker.machine,))
    stage.close((broker.machine,), MEMBERS)
    stage.etcd.restart()
    for _ in range(30):
        await stage.change(other)
    last = stage.facts.catalog.revision
    stage.network.open_all_ways()
    await stage.until(
        lambda: broker.services is not None and broker.services.catalog.revision >= last,
        "a broker stays behind the store",
    )
    await stage.loop.after(1)
    assert life is broker.node


async def member_that_is_watched_hangs(stage: Stage) -> None:
    broker = stage.brokers[0]
    stage.etcd.stop(stage.etcd.member_watched_by(broker.node))
    change = stage.change(broker)
    await stage.until(change.done, "a broker stays behind the store")


async def answer_of_the_last_keepalive_is_late(stage: Stage) -> None:
    broker = stage.brokers[0]
    before = stage.etcd.lease_ends()
    stage.close(MEMBERS, (broker.machine,))
    await stage.until(lambda: stage.etcd.lease_ends() != before, "a session is not kept")
    await stage.loop.after(0.45)
    stage.network.open_all_ways()
    await stage.loop.after(_STEP_S)
    stage.close((broker.machine,), MEMBERS)
    await stage.loop.after(_GONE_S)


async def lease_is_granted_again_after_it_ended(stage: Stage) -> None:
    """The request for the broker's first lease arrives a second time, after its session has ended."""
    broker = stage.brokers[0]
    grants: list[Any] = []
    ask = stage.etcd.ask

    def note(node: Node, member: str, path: str, body: Any, answered: Callable[[Any], None]) -> None:
        if path == "/v3/lease/grant":
            grants.append(body)
        ask(node, member, path, body, answered)

    stage.etcd.ask = note  # type: ignore[method-assign]
    await stage.start_again(broker)
    stage.close((broker.machine,), MEMBERS)
    await stage.until(lambda: stage.facts.session_of(broker.node_id) is None, "a session does not end")
    stage.etcd.execute("/v3/lease/grant", grants[0])
    stage.network.open_all_ways()
    await stage.loop.after(_GONE_S)
    await stage.until_served()


async def two_brokers_reserve_at_once(stage: Stage) -> None:
    held: dict[Node, Callable[[], None]] = {}
    ask = stage.etcd.ask

    def hold(node: Node, member: str, path: str, body: Any, answered: Callable[[Any], None]) -> None:
        sent = partial(ask, node, member, path, body, answered)
        if body.get("compare") and node not in held:
            held[node] = sent
        else:
            sent()

    stage.etcd.ask = hold  # type: ignore[method-assign]
    wanted = [
        broker.node.start(broker.services.producer_ids.next())
        for broker in stage.brokers
        if broker.services is not None
    ]
    await stage.until(lambda: len(held) == len(wanted), "the brokers do not commit")
    stage.etcd.ask = ask  # type: ignore[method-assign]
    for sent in held.values():
        sent()
    await asyncio.gather(*wanted)


async def session_begins_again_before_its_broker_is_fenced(stage: Stage) -> None:
    controller, broker = stage.brokers
    await stage.loop.after(2)  # Then there is a controller.
    held: list[Callable[[], None]] = []
    ask = stage.etcd.ask

    def hold(node: Node, member: str, path: str, body: Any, answered: Callable[[Any], None]) -> None:
        sent = partial(ask, node, member, path, body, answered)
        is_commit = node is controller.node and bool(body.get("compare"))
        if is_commit and stage.facts.session_of(broker.node_id) is None:
            held.append(sent)
        else:
            sent()

    stage.etcd.ask = hold  # type: ignore[method-assign]
    broker.node.pause()
    await stage.until(lambda: held, "no broker is fenced")
    broker.node.resume()
    await stage.until(lambda: stage.facts.session_of(broker.node_id), "no session begins")
    for send in held:
        send()
    await stage.loop.after(1)
    await stage.until_served()


async def session_begins_again_before_its_broker_learns_that_it_was_fenced(stage: Stage) -> None:
    _, broker = stage.brokers
    await stage.loop.after(2)  # Then there is a controller.
    member = stage.etcd.member_watched_by(broker.node)
    stage.etcd.stop(member)
    broker.node.pause()
    await stage.until(lambda: stage.facts.catalog.brokers[broker.node_id].is_fenced, "no broker is fenced")
    broker.node.resume()
    await stage.until(lambda: stage.facts.session_of(broker.node_id), "no session begins")
    await stage.loop.after(1)
    stage.etcd.go_on(member)
    await stage.until_served()


async def broker_starts_again(stage: Stage) -> None:
    await stage.make_topic()
    await stage.start_again(stage.brokers[0])


async def broker_starts_with_an_empty_disk(stage: Stage) -> None:
    await stage.make_topic()
    await stage.start_with(stage.brokers[0], stage.empty_disk())


async def broker_starts_with_an_older_disk(stage: Stage) -> None:
    await stage.make_topic()
    broker = stage.brokers[0]
    copy = stage.copy_of(broker.platter)
    await stage.start_again(broker)
    await stage.start_with(broker, copy)


async def broker_dies_as_the_catalog_hears_of_its_start(stage: Stage) -> None:
    await stage.make_topic()
    broker = stage.brokers[0]
    before = stage.facts.catalog.brokers[broker.node_id].incarnation
    died = stage.once_stored(
        lambda: stage.facts.catalog.brokers[broker.node_id].incarnation != before,
        lambda: stage.loop.call_soon(partial(broker.kill, cuts_power=False), context=Context()),
    )
    broker.kill(cuts_power=False)
    await stage.until(lambda: died and broker.services, "a broker does not start again")
    await stage.until_served()


async def _asked_without_sessions(stage: Stage, consumer: Consumer, key: TopicPartition) -> None:
    machines = tuple(broker.machine for broker in stage.brokers)
    stage.close(machines, MEMBERS)
    stage.close(MEMBERS, machines)
    await stage.loop.after(_GONE_S)
    with suppress(ClientError, TimeoutError):
        async with asyncio.timeout(2):
            await consumer.committed(key)
    stage.network.open_all_ways()


async def coordinator_is_asked_that_has_no_session(stage: Stage) -> None:
    await stage.make_topic()
    key = TopicPartition(TOPIC, 0)
    async with Consumer(bootstrap_servers=stage.address, group_id="g", request_timeout_ms=1_000) as consumer:
        await consumer.commit({key: 1})
        await _asked_without_sessions(stage, consumer, key)


async def coordinator_is_looked_for_that_has_no_session(stage: Stage) -> None:
    await stage.make_topic()
    key = TopicPartition(TOPIC, 0)
    settings: dict[str, Any] = {"bootstrap_servers": stage.address, "request_timeout_ms": 1_000}
    async with Consumer(group_id="g", **settings) as consumer:
        await consumer.commit({key: 1})
    async with Consumer(group_id="h", **settings) as consumer:
        await _asked_without_sessions(stage, consumer, key)


async def replica_is_alone_that_is_not_in_sync(stage: Stage) -> None:
    """The leader went on without its follower, and is gone when that comes back."""
    await stage.make_topic(replicas=2)
    leader = stage.led_by(TOPIC, 0)
    (follower,) = (broker for broker in stage.brokers if broker is not leader)
    follower.node.pause()
    await stage.until(lambda: stage.assigned(TOPIC, 0).isr == (leader.node_id,), "no follower is left out")
    leader.node.pause()
    follower.node.resume()
    await stage.until(lambda: stage.assigned(TOPIC, 0).leader_id != leader.node_id, "no leader is fenced")
    leader.node.resume()
    await stage.until_served()


def _connected(broker: VirtualBroker) -> AbstractAsyncContextManager[Wire]:
    host, port = broker.address.split(":")
    return Wire.connected(int(port), host)


def _batch(producer: Any, sequence: int, value: bytes = b"v", *, is_transactional: bool = False) -> bytes:
    """Of one record; `producer` is an answer to InitProducerId."""
    builder = RecordBatchBuilder()
    builder.append(0, None, value)
    return builder.build(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


async def disk_is_full_for_one_batch(stage: Stage) -> None:
    """Of a producer that pipelines, gives that batch up, and goes on."""
    await stage.make_topic()
    (broker,) = stage.brokers
    async with _connected(broker) as wire:
        made = await wire.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None})
        broker.disk.is_full = True
        await wire.append(TOPIC, {0: _batch(made, 0)})
        broker.disk.is_full = False
        await wire.append(TOPIC, {0: _batch(made, 1)})
        await wire.append(TOPIC, {0: _batch(made, 5)})
        await stage.loop.after(REMEMBERED_MS / 1000)
        await wire.append(TOPIC, {0: _batch(made, 1)})


async def transaction_has_the_sequence_of_an_aborted_one(stage: Stage) -> None:
    """As librdkafka numbers it, if it aborts before it has the answer for a batch that is stored."""
    await stage.make_topic()
    (broker,) = stage.brokers
    codes = []
    async with Producer(bootstrap_servers=stage.address, transactional_id="x"):
        pass  # Then there is a coordinator.
    async with _connected(broker) as wire:
        wanted = {"transactional_id": "x", "transaction_timeout_ms": 60_000}
        found = await wire.ask(ApiKey.INIT_PRODUCER_ID, 4, wanted)
        named = {
            "transactional_id": "x",
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
        }
        added = {f"v3_and_below_{name}": value for name, value in named.items()}
        added["v3_and_below_topics"] = [{"name": TOPIC, "partitions": [0]}]
        for value, is_commit in ((b"1", False), (b"2", True)):
            await stage.loop.after(1)  # The markers of the last one are written.
            await wire.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added)
            batch = _batch(found, 0, value, is_transactional=True)
            codes.append((await wire.append(TOPIC, {0: batch}, "x"))[0].error_code)
            await wire.ask(ApiKey.END_TXN, 3, {**named, "committed": is_commit})
    await stage.loop.after(1)
    if codes[0] != ErrorCode.NONE:
        stage.run.find(Kind.ALARM, f"no transaction: {codes}")
    if not codes[1] and await _committed(stage, 0) != [b"2"]:
        stage.run.find(Kind.MISSING, "an acknowledged record is not stored")


async def power_is_cut_after_an_answer(stage: Stage) -> None:
    await stage.make_topic()
    async with Producer(bootstrap_servers=stage.address) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        stage.lose_all_that_is_not_durable(stage.brokers[0])
    await stage.until_served()
    if await _committed(stage, 0) != [b"1"]:
        stage.run.find(Kind.MISSING, "an acknowledged record is not stored")


async def power_is_cut_after_a_marker_was_answered(stage: Stage) -> None:
    await stage.make_topic()
    async with Producer(bootstrap_servers=stage.address, transactional_id="x") as producer:
        await producer.begin_transaction()
        services = stage.brokers[0].services
        assert services is not None
        coordinator_id = services.transactions.leader_of("x")
        partition = next(
            each for each in range(len(stage.brokers)) if stage.led_by(TOPIC, each).node_id != coordinator_id
        )
        await producer.send_and_wait(TOPIC, b"1", partition=partition)
        broker = stage.led_by(TOPIC, partition)
        stage.hold_flushes(broker, partition)
        committing = asyncio.create_task(producer.commit_transaction())
        await stage.loop.after(0.5)
        stage.lose_all_that_is_not_durable(broker)
        await stage.until_served()

        def has_ended() -> bool:
            assert broker.services is not None
            ends = broker.services.replicas[TOPIC, partition].ends
            return ends.last_stable == ends.end

        await stage.until(has_ended, "a transaction is open after its marker was answered")
        await committing


async def marker_arrives_within_the_next_transaction(stage: Stage) -> None:
    await _late_marker(stage, lambda _: None)


async def marker_of_an_earlier_coordinator_arrives(stage: Stage) -> None:
    await _late_marker(stage, lambda coordinator: coordinator.kill(cuts_power=False))


async def _late_marker(stage: Stage, lost: Callable[[VirtualBroker], object]) -> None:
    """The first marker is lost with its connection, and arrives within the next transaction."""
    await stage.make_topic()
    frames: list[bytes] = []
    async with Producer(bootstrap_servers=stage.address, transactional_id="x") as producer:
        await producer.begin_transaction()
        for partition in range(len(stage.brokers)):
            await producer.send_and_wait(TOPIC, b"1", partition=partition)

        def loses(node: Node, frame: bytes) -> bool:
            if frames or int.from_bytes(frame[4:6], "big") != ApiKey.WRITE_TXN_MARKERS:
                return False
            frames.append(frame)
            coordinator = next(each for each in stage.brokers if each.node is node)
            senders.append(coordinator)
            stage.loop.call_soon(lost, coordinator, context=Context())
            return True

        senders: list[VirtualBroker] = []
        stage.network.loses = loses
        await producer.commit_transaction()
        await stage.until(lambda: frames, "no marker is sent")
        await producer.begin_transaction()
        partition = next(
            each for each in range(len(stage.brokers)) if stage.led_by(TOPIC, each) is not senders[0]
        )
        await producer.send_and_wait(TOPIC, b"2", partition=partition)
        stage.network.deliver(stage.led_by(TOPIC, partition).machine, frames[0])
        await stage.loop.after(1)
        if await _committed(stage, partition) != [b"1"]:
            stage.run.find(Kind.BROKEN_RULE, "a record is visible before its transaction is committed")
        await producer.abort_transaction()


async def _committed(stage: Stage, partition: int) -> list[bytes]:
    logs = await read_all(stage.address, TOPIC, len(stage.brokers), 30, lambda _, value: value, COMMITTED)
    return [each.mark for each in logs[partition]]
