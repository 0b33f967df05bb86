"""The coordinator of share partitions: what no state needs is deleted, and a restart finds the states."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch, open_asker
from tests.unit.broker.handlers.sharing import ACCEPT, Member
from tidelog.broker.cluster.catalog import SHARE_STATE_TOPIC
from tidelog.broker.coordinator import share_coordinator
from tidelog.broker.coordinator.share_states.machine import StateWrite
from tidelog.broker.coordinator.share_states.state import UNINITIALIZED, SharePartitionKey, coordinator_key
from tidelog.protocol.errors import ApiError
from tidelog.protocol.schema import ApiKey

__all__ = ["open_asker"]
SETTINGS = {"share_coordinator_state_topic_num_partitions": 1}


async def states_of(asker: Asker, key: SharePartitionKey) -> Any:
    return await asker.services.share.states.summary(key)


async def begun(asker: Asker) -> SharePartitionKey:
    await asker.create("jobs")
    key = SharePartitionKey("pool", asker.topic("jobs").topic_id, 0)
    await asker.services.share.states.initialize(key, 1, UNINITIALIZED)
    return key


async def test_records_that_later_snapshots_replace_are_deleted_and_a_restart_finds_the_states(
    open_asker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_coordinator, "LEAST_PRUNED", 3)
    asker = await open_asker(**SETTINGS)
    key = await begun(asker)
    gone = SharePartitionKey("pool", UUID(int=7), 0)
    await asker.services.share.states.initialize(gone, 1, 5)
    for offset in range(10):
        await asker.services.share.states.write(key, StateWrite(1, 0, offset, 0, ()))
    log = asker.replica(SHARE_STATE_TOPIC).log
    end_offset = log.end_offset
    await asker.services.share.coordinator.prune()
    # What is left: the snapshot of one, and the end of the other, whose topic does not exist.
    assert (log.start_offset, log.end_offset) == (end_offset, end_offset + 2)
    await asker.services.close(clean=False)
    again = await open_asker(**SETTINGS)
    assert (await states_of(again, key)).start_offset == 9


async def test_updates_are_replayed_upon_their_snapshot(open_asker: Callable[..., Any]) -> None:
    settings = {**SETTINGS, "share_coordinator_snapshot_update_records_per_snapshot": 3}
    asker = await open_asker(**settings)
    key = await begun(asker)
    states = asker.services.share.states
    for offset in range(8):
        await states.write(key, StateWrite(1, 0, offset, 0, ()))
        before = await states.read(key, 0)
        await asker.services.share.coordinator.run(
            coordinator_key(key), lambda machine: partial(machine.read, key, 0)
        )
        assert before.start_offset == offset
    await asker.services.close()
    again = await open_asker(**settings)
    assert await again.services.share.states.read(key, 0) == before


async def test_a_group_whose_states_are_gone_begins_anew(open_asker: Callable[..., Any]) -> None:
    asker = await open_asker()
    await asker.create("jobs")
    member = Member(asker)
    await member.join()
    await member.heartbeat(-1)
    answer = await asker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["pool"])
    assert [each.error_code for each in answer.results] == [0]
    listed = await asker.ask(ApiKey.LIST_GROUPS, 4)
    assert not listed.groups
    key = SharePartitionKey("pool", asker.topic("jobs").topic_id, 0)
    with pytest.raises(ApiError):
        await states_of(asker, key)
    await member.join()
    assert await member.got() == {}


async def test_altered_offsets_hold_for_the_next_member(open_asker: Callable[..., Any]) -> None:
    asker = await open_asker()
    await asker.create("jobs")
    await asker.produce("jobs", make_batch(b"a", b"b", b"c"))
    member = Member(asker)
    await member.join()
    assert len(await member.got()) == 3
    assert await member.acknowledge((0, 2, [ACCEPT]), epoch=-1) == 0
    await member.heartbeat(-1)
    start = [{"topic_name": "jobs", "partitions": [{"partition_index": 0, "start_offset": 1}]}]
    answer = await asker.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="pool", topics=start)
    assert answer.error_code == 0
    await member.join()
    assert await member.got() == {1: 1, 2: 1}
