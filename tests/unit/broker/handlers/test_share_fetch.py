"""Members that wait, and disks that are slow, under ShareFetch; `share_scripts/` has what is answered."""

import asyncio
import errno
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tests.unit.broker.handlers.sharing import ACCEPT, RELEASE, Member
from tests.unit.broker.handlers.transactional import TransactionalClient
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.cluster.catalog import SHARE_STATE_TOPIC
from tidelog.broker.coordinator.share_states.state import SharePartitionKey
from tidelog.broker.handlers.share_fetch import ShareFetchHandler
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.share import partitions
from tidelog.broker.share.held import HeldPartition
from tidelog.broker.share.log_reader import READ_BYTES
from tidelog.broker.share.share_partition import Acknowledgement, SharePartition
from tidelog.broker.storage.disk import Disk
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Any]


async def with_records(asker: Asker, count: int = 3, *, per_batch: int = 1) -> None:
    await asker.create("jobs")
    for first in range(0, count, per_batch):
        await asker.produce("jobs", make_batch(*(b"%d" % each for each in range(first, first + per_batch))))


async def joined(asker: Asker, count: int = 3, *, per_batch: int = 1, **configs: str) -> Member:
    """The first member of a group of a topic with records."""
    await with_records(asker, count, per_batch=per_batch)
    member = Member(asker)
    await member.join(**configs)
    return member


async def test_what_a_member_held_is_free_once_its_connection_is_gone(asker: Asker) -> None:
    member = await joined(asker)
    assert await member.got() == {0: 1, 1: 1, 2: 1}
    asker.connection.close()
    other = Member(Asker(asker.services, asker.clock), member_id="other", epoch=0)
    await until(lambda: not len(asker.services.share.sessions))
    assert await other.got(max_wait_ms=5_000) == {0: 2, 1: 2, 2: 2}


async def test_an_answer_that_fails_keeps_no_other_waiting(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = await joined(asker)
    await member.got()
    (held,) = asker.services.share.partitions.all()

    def fail(*_: object) -> None:
        raise MemoryError

    held.acknowledge(member.member_id, [Acknowledgement(0, 0, [ACCEPT])], fail)
    assert await member.acknowledge((1, 1, [ACCEPT])) == 0
    with monkeypatch.context() as patched:
        patched.setattr(ShareFetchHandler, "_acknowledged", fail)
        with pytest.raises(MemoryError):
            await asyncio.wait_for(member.acknowledge((2, 2, [ACCEPT])), DEADLINE_SECONDS)


async def test_an_error_after_acknowledgements_are_stored_keeps_no_later_ones_waiting(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("jobs")
    await asker.produce("jobs", make_batch(b"v", b"v"))
    member = Member(asker)
    await member.join()
    await member.fetch()

    def broken(held: HeldPartition) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patch:
        patch.setattr(HeldPartition, "changed", broken)
        await asyncio.wait_for(member.acknowledge((0, 0, [ACCEPT])), DEADLINE_SECONDS)
        await asyncio.sleep(0)
    await asyncio.wait_for(member.acknowledge((1, 1, [ACCEPT])), DEADLINE_SECONDS)


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_a_partition_whose_acknowledgements_fail_by_a_fault_keeps_no_other_from_being_answered(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, is_loaded: bool
) -> None:
    await asker.create("jobs", partitions=2)
    for partition in (0, 1):
        await asker.produce("jobs", make_batch(b"v"), partition=partition)
    member = Member(asker)
    await member.join()
    topics = [
        topic | {"partitions": [*topic["partitions"], {"partition_index": 1, "acknowledgement_batches": []}]}
        for topic in member._topics()
    ]
    got: set[int] = set()
    while len(got) < 2:  # One answer does not wait for the states of all.
        answer = await member.fetch(topics=topics)
        got |= {each.partition_index for topic in answer.responses for each in topic.partitions}
    taken = SharePartition.acknowledge
    faulty = asker.services.share.partitions

    def broken(machine: SharePartition, *arguments: Any) -> Any:
        if machine is not broken_machine:
            return taken(machine, *arguments)
        raise RuntimeError("a fault of ours")

    held = {key.partition: each for key, each in faulty._held.items()}
    broken_machine = held[0].machine
    if not is_loaded:
        present, seen = faulty.present, set[SharePartitionKey]()

        def at_second(key: SharePartitionKey) -> HeldPartition | None:
            return present(key) if key in seen else seen.add(key)

        monkeypatch.setattr(faulty, "present", at_second)
    monkeypatch.setattr(SharePartition, "acknowledge", broken)
    acknowledged = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [ACCEPT]}]
    partitions = [{"partition_index": each, "acknowledgement_batches": acknowledged} for each in (0, 1)]
    answer = await asker.ask(
        ApiKey.SHARE_ACKNOWLEDGE,
        2,
        group_id="pool",
        member_id="first",
        share_session_epoch=member.epoch,
        topics=[{"topic_id": asker.topic("jobs").topic_id, "partitions": partitions}],
    )
    codes = {each.partition_index: each.error_code for each in answer.responses[0].partitions}
    assert (answer.error_code, codes) == (0, {0: ErrorCode.UNKNOWN_SERVER_ERROR, 1: 0})
    assert held[0].has_ended
    assert not held[1].has_ended


async def test_the_settings_of_so_many_groups_are_kept(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_MOST_KEPT_SETTINGS", 2)
    share = asker.services.share.partitions
    for number in range(5):
        assert share.config(f"group {number}") is share.config(f"group {number}")
    assert len(share._kept_settings) <= 2


async def test_who_has_waited_longest_gets_records_first(open_asker: Open) -> None:
    asker = await open_asker(
        group_share_partition_max_record_locks=100, group_share_min_partition_max_record_locks=1
    )
    first = await joined(asker, 400, per_batch=100)
    second = Member(asker, member_id="second", epoch=0)
    assert (await first.got()).keys() == set(range(100))
    (held,) = asker.services.share.partitions.all()
    waiting = asyncio.create_task(second.fetch(max_wait_ms=60_000))
    for done, member in ((0, first), (100, second), (200, first)):
        await until(lambda: held._watchers)
        asked = asyncio.create_task(member.fetch((done, done + 99, [ACCEPT]), max_wait_ms=60_000))
        (partition,) = (await waiting).responses[0].partitions
        assert [each.first_offset for each in partition.acquired_records] == [done + 100]
        waiting = asked
    waiting.cancel()


async def stable_up_to(asker: Asker, offset: int) -> None:
    await until(lambda: asker.replica("jobs").ends.last_stable == offset)


@pytest.mark.parametrize(("level", "expected"), [("read_committed", {2, 4}), ("read_uncommitted", {0, 2, 4})])
async def test_markers_are_never_delivered_and_aborted_records_only_to_who_reads_uncommitted(
    asker: Asker, level: str, expected: set[int]
) -> None:
    await asker.create("jobs")
    for name, is_commit, end_offset in (("aborts", False, 2), ("commits", True, 4)):
        client = TransactionalClient(asker, name)
        await client.begin()
        await client.add(("jobs", 0))
        await client.produce("jobs")
        await client.end(is_commit)
        await stable_up_to(asker, end_offset)
    await asker.produce("jobs", make_batch(b"plain"))
    member = Member(asker)
    await member.join(**{"share.isolation.level": level})
    assert (await member.got()).keys() == expected
    assert await member.acknowledge(*((each, each, [ACCEPT]) for each in sorted(expected))) == 0
    (held,) = asker.services.share.partitions.of_group("pool")
    assert held.machine.start_offset == held.machine.end_offset == 5


async def test_what_was_read_ahead_is_read_again_for_a_group_that_reads_committed_from_now_on(
    asker: Asker,
) -> None:
    await with_records(asker, 1)
    client = TransactionalClient(asker, "aborted")
    await client.begin()
    await client.add(("jobs", 0))
    await client.produce("jobs")
    await client.end(False)
    await asker.produce("jobs", make_batch(b"plain"))
    member = Member(asker)
    await member.join(**{"share.isolation.level": "read_uncommitted"})
    assert await member.got(max_records=1) == {0: 1}
    await member.configure(**{"share.isolation.level": "read_committed"})
    await stable_up_to(asker, 4)
    assert await member.got() == {3: 1}


async def test_a_waiting_fetch_gets_new_records_at_once(asker: Asker) -> None:
    member = await joined(asker, 1)
    assert await member.got() == {0: 1}
    waiting = asyncio.ensure_future(member.got(max_wait_ms=300_000))
    await asyncio.sleep(0)
    await asker.produce("jobs", make_batch(b"new"))
    assert await waiting == {1: 1}


async def test_records_that_become_free_go_to_who_has_waited_longest_and_the_others_wait_on(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 12
    holder = await joined(asker, count)
    assert len(await holder.got()) == count
    looks = 0
    partitions = asker.services.share.partitions
    look = partitions._acquired

    async def counted(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return await look(*arguments)

    monkeypatch.setattr(partitions, "_acquired", counted)
    members = [Member(asker, member_id=f"{number}", epoch=0) for number in range(count)]
    waits = []
    for member in members:
        wait = member.got(max_wait_ms=10_000, max_records=1, share_acquire_mode=1)
        waits.append(asyncio.ensure_future(wait))
        await until(lambda: looks == len(waits))
    looks = 0
    assert await holder.acknowledge((5, 5, [RELEASE])) == 0
    assert await waits[0] == {5: 2}
    assert looks <= 3
    assert not any(each.done() for each in waits[1:])
    waits[1].cancel()
    assert await holder.acknowledge((0, 4, [RELEASE]), (6, 11, [RELEASE])) == 0
    given = await asyncio.gather(*waits[2:])
    assert sorted(offset for each in given for offset in each) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert looks <= 3 * count


async def test_a_fetch_waits_for_as_many_bytes_as_its_member_wants_but_not_forever(asker: Asker) -> None:
    member = await joined(asker, 1)
    more_than_one = len(make_batch(b"new")) + 1
    waiting = asyncio.ensure_future(member.got(max_wait_ms=300_000, min_bytes=more_than_one))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waiting.done()
    await asker.produce("jobs", make_batch(b"new"))
    assert await waiting == {0: 1, 1: 1}
    await asker.produce("jobs", make_batch(b"new"))
    assert await member.got(max_wait_ms=20, min_bytes=1 << 20) == {2: 1}


class CountedDisk(Disk):
    """Counts the bytes that are read."""

    read_bytes = 0

    def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
        count = super().preadv(fd, buffer, position, flags)
        self.read_bytes += count
        return count


async def test_a_fetch_reads_about_as_much_of_the_log_as_it_gives(open_asker: Open) -> None:
    disk = CountedDisk()
    asker = await open_asker(disk=disk)
    await asker.create("jobs")
    value = bytes(10_000)
    for _ in range(60):
        await asker.produce("jobs", make_batch(value))
    member = Member(asker)
    await member.join()
    given: dict[int, int] = {}
    before = []
    while found := await member.got(max_records=3):
        given |= found
        before.append(disk.read_bytes)
    assert given == dict.fromkeys(range(60), 1)
    # The first does not know how large the records are.
    assert max(b - a for a, b in itertools.pairwise(before)) < 10 * len(value)


class ColdDisk(Disk):
    """Once `is_cold`, no log is in the page cache, and reads in threads wait for `may_read`."""

    is_cold = False

    def __init__(self) -> None:
        self.reads = threading.Semaphore(0)
        self.may_read = threading.Event()

    def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
        if self.is_cold and flags:
            raise BlockingIOError(errno.EAGAIN, "")
        if self.is_cold:
            self.reads.release()
            assert self.may_read.wait(DEADLINE_SECONDS)
        return super().preadv(fd, buffer, position, flags)


async def test_nothing_is_kept_of_a_read_that_ends_after_its_share_partition(open_asker: Open) -> None:
    disk = ColdDisk()
    asker = await open_asker(disk=disk)
    member = await joined(asker)
    assert await member.got(max_records=1) == {0: 1}
    partitions = asker.services.share.partitions
    (held,) = partitions.all()
    partitions.drop(held)
    assert not partitions._ahead
    assert await member.acknowledge((0, 0, [RELEASE])) == ErrorCode.INVALID_REQUEST
    (held,) = partitions.all()
    disk.is_cold = True
    waiting = asyncio.ensure_future(member.fetch())
    assert await asyncio.to_thread(disk.reads.acquire, timeout=DEADLINE_SECONDS)
    partitions.drop(held)
    disk.may_read.set()
    (partition,) = (await waiting).responses[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partitions._ahead


async def test_no_batch_that_is_larger_than_a_read_is_kept(asker: Asker) -> None:
    await asker.create("jobs", max_message_bytes=str(2 * READ_BYTES))
    large = make_batch(*[bytes(READ_BYTES // 2)] * 3)
    await asker.produce("jobs", make_batch(b"small"))
    await asker.produce("jobs", large)
    await asker.produce("jobs", make_batch(b"small"))
    member = Member(asker)
    await member.join()
    kept = asker.services.share.partitions._ahead
    assert await member.got(max_records=1) == {0: 1}
    assert sum(each.size_bytes for each in kept.values()) == len(make_batch(b"small"))
    for offset in (1, 2, 3):
        assert await member.got(max_records=1, share_acquire_mode=1) == {offset: 1}
        assert not kept
    assert await member.got(max_records=1) == {4: 1}
    assert len(kept) == 1


async def test_who_waits_for_more_bytes_leaves_records_to_who_waits_for_fewer(open_asker: Open) -> None:
    disk = ColdDisk()
    asker = await open_asker(disk=disk, fetch_max_wait_ms=300_000)
    await with_records(asker)
    greedy = Member(asker, member_id="greedy")
    quick, modest = (Member(asker, member_id=name, epoch=0) for name in ("quick", "modest"))
    await greedy.join()
    assert await quick.got(max_records=1) == {0: 1}
    partitions = asker.services.share.partitions
    partitions._ahead.clear()
    disk.is_cold = True
    more = asyncio.ensure_future(greedy.got(max_wait_ms=300_000, min_bytes=1 << 20))
    assert await asyncio.to_thread(disk.reads.acquire, timeout=DEADLINE_SECONDS)
    disk.is_cold = False
    assert await quick.got() == {1: 1, 2: 1}
    ((held, read),) = partitions._ahead.items()
    disk.may_read.set()
    await until(lambda: partitions._ahead[held] is not read)
    waiting = asyncio.ensure_future(modest.got(max_wait_ms=300_000))
    await until(lambda: len(held._watchers) == 2)
    await asker.produce("jobs", make_batch(b"new"))
    assert await asyncio.wait_for(waiting, DEADLINE_SECONDS) == {3: 1}
    assert not more.done()
    more.cancel()


async def test_the_disk_works_on_what_is_acknowledged_while_records_are_acquired(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_records(asker)
    member = Member(asker)
    await member.join()
    assert await member.got(max_records=1) == {0: 1}
    partitions, begun = asker.services.share.partitions, []
    acquire, flush = partitions._acquired, Replica.begin_flush

    async def acquired(*arguments: Any) -> Any:
        begun.append("acquire")
        return await acquire(*arguments)

    def flushed(replica: Replica) -> Any:
        begun.append(replica.topic)
        return flush(replica)

    monkeypatch.setattr(partitions, "_acquired", acquired)
    monkeypatch.setattr(Replica, "begin_flush", flushed)
    await member.fetch((0, 0, [ACCEPT]))
    assert begun == [SHARE_STATE_TOPIC, "acquire"]


async def test_a_partition_whose_state_is_still_read_keeps_no_other_waiting(
    open_asker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = await open_asker(fetch_max_wait_ms=300_000)
    await asker.create("jobs", partitions=2)
    for partition in (0, 1):
        await asker.produce("jobs", make_batch(b"%d" % partition), partition=partition)
    member = Member(asker)
    await member.join()
    states, may_read = asker.services.share.partitions._states, asyncio.Event()
    read = states.read

    async def late(key: Any, leader_epoch: int) -> Any:
        if key.partition == 0:
            await may_read.wait()
        return await read(key, leader_epoch)

    monkeypatch.setattr(states, "read", late)
    both = [{"partition_index": each} for each in (0, 1)]
    topics = [{"topic_id": asker.topic("jobs").topic_id, "partitions": both}]
    answer = await member.fetch(topics=topics, max_wait_ms=300_000)
    assert [each.partition_index for each in answer.responses[0].partitions] == [1]
    waiting = asyncio.ensure_future(member.fetch(max_wait_ms=300_000))
    await asyncio.sleep(0)
    may_read.set()
    answer = await asyncio.wait_for(waiting, DEADLINE_SECONDS)
    assert [each.partition_index for each in answer.responses[0].partitions] == [0]
