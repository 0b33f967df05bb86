"""Batches and snapshots that break the rules of idempotence are found."""

import os
import re
from pathlib import Path

import pytest

from tests.conformance.raw import NOW_MS, batch, connected
from tests.unit.broker.storage.support import marker
from tests.unit.broker.storage.verification.damaged import Folder, has, only
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig


def test_a_batch_that_is_stored_twice_is_found(folder: Folder) -> None:
    folder.crash()
    number = len(folder.places(folder.last_log)) - 2
    _, first = folder.places(folder.last_log)[number]
    position = folder.append_copy(number)
    has(
        folder,
        rf"damage t-0/{folder.last_log.name} at byte {position}: the batch of offset {first.base_offset} is"
        rf" stored a second time at 180: producer {first.producer_id} epoch 0 sequences"
        rf" {first.base_sequence}\.\.{first.last_sequence}",
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base_sequence": 100}, "sent sequences 100..101, the next is 60"),
        ({"base_sequence": 10}, "sent sequences 10..11 again; they were stored before, 59 is the last"),
        ({"base_sequence": 4, "producer_epoch": 1}, "epoch 1 sent sequences 4..5, the next is 0"),
    ],
)
def test_a_sequence_that_does_not_follow_is_found(
    folder: Folder, changes: dict[str, int], words: str
) -> None:
    folder.crash()
    folder.append_copy(-1, **changes)
    has(folder, rf"damage t-0/.*: a batch that had to be refused: .*{re.escape(words)}")


def test_an_epoch_that_goes_back_is_found(folder: Folder) -> None:
    folder.crash()
    folder.append_copy(-1, base_sequence=0, producer_epoch=1)
    folder.append_copy(-2, base_sequence=60, producer_epoch=0)
    has(folder, r"damage t-0/.*: a batch that had to be refused: .* sent epoch 0, the current is 1")


def test_a_producer_that_begins_again_may_have_expired(folder: Folder) -> None:
    folder.crash()
    folder.append_copy(-1, base_sequence=0)
    has(folder, r"warning t-0/.*: producer \d+ begins again at sequence 0 in epoch 0: right if .*expired.*")
    assert folder.totals.damage == 0


def test_an_id_that_was_never_issued_is_worth_a_warning(folder: Folder) -> None:
    folder.crash()
    folder.append_copy(-1, base_sequence=0, producer_id=10**6)
    has(folder, r"warning t-0/.*: producer id 1000000 was never issued by this cluster: its next one is .*")
    assert folder.totals.damage == 0


def test_a_flipped_bit_in_a_snapshot_is_found(folder: Folder) -> None:
    folder.flip(folder.snapshot, 100)
    only(folder, rf"damage t-0/{folder.snapshot.name}: not a valid snapshot: .*CRC.*")


def test_a_snapshot_cut_short_is_found(folder: Folder) -> None:
    os.truncate(folder.snapshot, 10)
    only(folder, rf"damage t-0/{folder.snapshot.name}: not a valid snapshot: 10 bytes are too few .*")


def test_a_snapshot_named_by_another_offset_is_found(folder: Folder) -> None:
    folder.snapshot.rename(folder.partition / "00000000000000000100.snapshot")
    has(
        folder,
        r"damage t-0/0{17}100\.snapshot: not a valid snapshot: it is named by offset 100, and says 180",
    )


def test_a_snapshot_with_another_sequence_than_the_log_is_found(folder: Folder) -> None:
    offset, table = folder.table()
    slot = next(table.in_idle_order())
    entry = table.entry(slot)
    table.push(slot, entry.producer_epoch, (77, 1, 175, entry.last_timestamp), entry.last_append_ms)
    folder.write_table(offset, table)
    has(
        folder,
        rf"damage t-0/.*\.snapshot: producer {entry.producer_id} has other batches than in the log:"
        r" expected .*sequence 59 at offsets .*, got .*sequence 77 at offsets 174\.\.175 .*",
    )


def test_a_snapshot_with_another_epoch_is_found(folder: Folder) -> None:
    offset, table = folder.table()
    slot = next(table.in_idle_order())
    entry = table.entry(slot)
    last = entry.batches[-1]
    table.push(slot, 3, (last[0], last[1], last[2], last[3]), entry.last_append_ms)
    folder.write_table(offset, table)
    has(folder, r"damage t-0/.*: producer \d+ has another epoch than in the log: expected 0, got 3")


def test_a_snapshot_that_knows_what_the_log_never_held_is_found(folder: Folder) -> None:
    offset, table = folder.table()
    table.push(table.add(500, 0), 0, (4, 4, 100, 0), 0)
    folder.write_table(offset, table)
    has(
        folder,
        r"damage t-0/.*: producer 500: the log has no batch of it: got sequence 4 at offsets 96\.\.100 .*",
    )


def test_a_snapshot_that_lacks_a_producer_is_worth_a_warning(folder: Folder) -> None:
    offset, table = folder.table()
    table.remove(table.entry(next(table.in_idle_order())).producer_id)
    folder.write_table(offset, table)
    has(
        folder,
        r"warning t-0/.*: 1 producers that wrote within the last day are not in it: right if they expired",
    )


def test_a_snapshot_where_no_batch_begins_is_found(folder: Folder) -> None:
    _, table = folder.table()
    folder.write_table(101, table)
    has(folder, r"damage t-0/0{17}101\.snapshot: no batch begins at offset 101")


def test_a_snapshot_ahead_of_the_log_is_damage_unless_the_broker_crashed(folder: Folder) -> None:
    _, table = folder.table()
    folder.write_table(500, table)
    has(folder, r"damage t-0/0{17}500\.snapshot: it has more than the log; .*")
    folder.crash()
    has(folder, r"warning t-0/0{17}500\.snapshot: it has more than the log; .*")


async def test_a_producer_that_was_moved_by_a_fault_is_no_damage(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with await Broker.start(BrokerConfig(data_dir=data_dir, port=0, http_port=-1)) as broker:
        async with connected(broker.port) as client:
            await client.create()
            producer_id = await client.producer_id()
            await client.produce(batch("a", producer_id, 0))
        broker.services.replica("t", 0).log.set_next_sequence(producer_id, 0, 1000, NOW_MS)
    only(Folder(data_dir), rf"warning t-0/.*: producer {producer_id} was moved by `tidelog fault sequence`")


@pytest.mark.parametrize("clean", [True, False])
async def test_markers_are_replayed_as_a_start_does(tmp_path: Path, clean: bool) -> None:
    data_dir = tmp_path / "data"
    config = BrokerConfig(data_dir=data_dir, port=0, http_port=-1)
    async with await Broker.start(config) as broker, connected(broker.port) as client:
        await client.create()
        producer_id, other_id = await client.producer_id(), await client.producer_id()
        await client.produce(batch("a", producer_id, 0))
        replica = broker.services.replica("t", 0)
        await replica.append_as_coordinator(marker(producer_id, 1, 3), NOW_MS)
        await replica.append_as_coordinator(marker(other_id, 0, 3), NOW_MS)
        await client.produce(batch("b", producer_id, 0, epoch=1))
    folder = Folder(data_dir)
    if not clean:
        folder.crash()
    assert not [line for line in folder.lines() if "t-0/" in line]


async def test_a_marker_of_an_older_coordinator_is_found(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    config = BrokerConfig(data_dir=data_dir, port=0, http_port=-1)
    async with await Broker.start(config) as broker, connected(broker.port) as client:
        await client.create()
        producer_id = await client.producer_id()
        replica = broker.services.replica("t", 0)
        for coordinator_epoch in (2, 3):
            await replica.append_as_coordinator(marker(producer_id, 0, coordinator_epoch), NOW_MS)
    folder = Folder(data_dir)
    folder.crash()
    folder.append_copy(0)
    has(folder, r"damage t-0/.*: a batch that had to be refused: a coordinator of epoch 2 ends .* 3 did so.*")
