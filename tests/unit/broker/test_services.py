"""Services: what a crash leaves is healed at the start, what the clock brings is done, closing is whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.unit.broker.conftest import NOW_MS, Clock
from tests.waiting import until
from tidelog.broker.cluster.catalog import BrokerRegistration, Listener, Topic, TopicCreated
from tidelog.broker.cluster.placement import assign
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.coordinator.producer_ids import above_all_issued
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.services import Services
from tidelog.protocol.records import RecordBatchBuilder


def batch(value: bytes = b"v", *, producer_id: int = -1, sequence: int = -1) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, b"key", value)
    epoch = -1 if producer_id < 0 else 0
    return bytes(builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


async def opened(folder: Path, clock: Callable[[], int] | None = None, **more: Any) -> Services:
    parts = {name: more.pop(name, None) for name in ("disk", "steady_ms", "store")}
    listeners = more.pop("listeners", ())
    config = BrokerConfig(data_dir=folder, **more)
    return await open_services(config, Metrics(), clock or Clock(), listeners=listeners, **parts)


async def stored(services: Services, *values: bytes, topic: str = "t") -> None:
    replica = services.replicas[topic, 0]
    for value in values:
        replica.append_as_leader(batch(value), services.clock_ms())
    await replica.committed(replica.log.end_offset)


async def test_a_topic_that_the_store_holds_gets_its_folders_at_the_start(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / STORE_FILE, node_id=1)
    await store.load()
    await store.commit([TopicCreated(Topic("t", uuid4(), assign(2, [1])))], 0)
    await store.close()
    services = await opened(tmp_path)
    await stored(services, b"v")
    assert sorted(services.replicas) == [("t", 0), ("t", 1)]
    await services.close()


async def test_a_broker_is_in_the_catalog_with_the_addresses_of_its_last_start(tmp_path: Path) -> None:
    revisions = []
    for port in (9092, 9092, 9093):
        listeners = [Listener("external", "h", port), Listener("internal", "", 1)]
        services = await opened(tmp_path, listeners=listeners)
        assert services.catalog.brokers == {1: BrokerRegistration(1, tuple(listeners))}
        revisions.append(services.catalog.revision)
        await services.close()
    assert revisions == [1, 1, 2]  # Nothing is written where nothing changed.


def lose_the_store(folder: Path) -> None:
    for path in folder.glob("cluster.*"):
        path.unlink()


@pytest.mark.parametrize("clean", [True, False])
async def test_producer_ids_that_logs_know_are_not_given_again_by_an_older_store(
    tmp_path: Path, clean: bool
) -> None:
    services = await opened(tmp_path)
    await services.topics.create("t")
    await services.close()
    backup = {path: path.read_bytes() for path in (tmp_path / STORE_FILE, tmp_path / "cluster.copy")}
    services = await opened(tmp_path, producer_id_unknown_sequence="accept")
    given = [await services.producer_ids.next() for _ in range(3)]
    foreign = 2**63 - 1
    for producer_id in (given[1], given[2], given[0], foreign):
        sent = batch(producer_id=producer_id, sequence=0)
        services.replicas["t", 0].append_as_leader(sent, services.clock_ms())
    await services.close(clean=clean)
    lose_the_store(tmp_path)
    for path, data in backup.items():
        path.write_bytes(data)
    services = await opened(tmp_path)
    assert services.producer_ids.bound() == above_all_issued(given[2])
    await until(lambda: services.catalog.next_producer_id > given[2])  # Also if nobody asks for one.
    assert await services.producer_ids.next() > given[2]
    await services.close()


async def test_checkpoints_come_by_their_interval(tmp_path: Path) -> None:
    services = await opened(tmp_path, log_flush_offset_checkpoint_interval_ms=5)
    await services.topics.create("t")
    await stored(services, b"a", b"b")
    await until(lambda: services.replicas["t", 0].log.recovery_point == 2)
    await services.close()


async def test_retention_lets_old_segments_go_and_keeps_their_producers(tmp_path: Path) -> None:
    clock = Clock()
    services = await opened(tmp_path, clock)
    await services.topics.create("t", NewTopic(configs={"retention.ms": "1000", "segment.bytes": "200"}))
    producer_id = await services.producer_ids.next()
    replica = services.replicas["t", 0]
    for sequence in range(5):
        replica.append_as_leader(batch(b"x" * 100, producer_id=producer_id, sequence=sequence), clock())
    await replica.committed(5)
    clock.now_ms += 5_000
    await services.maintenance.apply_retention()
    await services.maintenance.checkpoint()
    assert replica.log.start_offset == 5
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 1
    again = batch(b"x" * 100, producer_id=producer_id, sequence=4)
    assert replica.append_as_leader(again, clock()).duplicate
    await services.close()


@pytest.mark.parametrize("jump_ms", [400 * 86_400_000, -400 * 86_400_000])
async def test_a_wall_clock_that_is_set_expires_no_producer_deletes_no_record_and_stops_no_id(
    tmp_path: Path, jump_ms: int
) -> None:
    wall, steady = Clock(), Clock()
    services = await opened(tmp_path, wall, steady_ms=steady, producer_id_expiration_ms=1000)
    await services.topics.create("t", NewTopic(configs={"retention.ms": "1000"}))
    producer_id = await services.producer_ids.next()
    replica = services.replicas["t", 0]
    replica.append_as_leader(batch(producer_id=producer_id, sequence=0), wall())
    await replica.committed(1)
    wall.now_ms += jump_ms
    steady.now_ms += 999
    await services.maintenance.expire_producers()
    await services.maintenance.apply_retention()
    assert (replica.log.start_offset, len(replica.log.producers)) == (0, 1)
    assert await services.producer_ids.next() == producer_id + 1
    assert not replica.append_as_leader(batch(producer_id=producer_id, sequence=1), steady()).duplicate
    steady.now_ms += 1000
    await services.maintenance.expire_producers()
    assert len(replica.log.producers) == 0
    await services.close()


async def test_damaged_snapshots_and_cut_ends_are_counted_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    services = await opened(tmp_path)
    await services.topics.create("t")
    producer_id = await services.producer_ids.next()
    services.replicas["t", 0].append_as_leader(batch(producer_id=producer_id, sequence=0), NOW_MS)
    await services.replicas["t", 0].committed(1)
    await services.close()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    newest = max((tmp_path / "t-0").glob("*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:-1])
    with next((tmp_path / "t-0").glob("*.log")).open("ab") as file:
        file.write(b"torn")
    services = await opened(tmp_path)
    metrics = services.metrics.render()
    assert b"tidelog_snapshots_damaged_total 1.0" in metrics
    assert b"tidelog_log_truncations_total 1.0" in metrics
    assert b"tidelog_log_truncated_bytes_total 4.0" in metrics
    told = capsys.readouterr().out
    assert "log_damage_found" in told
    assert f"{newest.name}.corrupt" in told
    assert (newest.parent / f"{newest.name}.corrupt").exists()
    again = batch(producer_id=producer_id, sequence=0)
    assert services.replicas["t", 0].append_as_leader(again, NOW_MS).duplicate
    await services.close()
