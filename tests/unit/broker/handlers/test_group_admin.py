"""DescribeGroups, ListGroups and DeleteGroups: what operators see of groups, and take away."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker
from tests.unit.broker.handlers.test_group_membership import join, joined, sync, versions
from tidelog.broker.coordinator.group_machine import DELETED_AT_ONCE
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


async def commit(asker: Asker, group_id: str, *, partitions: int = 1) -> None:
    if asker.services.catalog.topic("t") is None:
        await asker.create("t", partitions=partitions)
    wanted = [{"partition_index": index, "committed_offset": 7} for index in range(partitions)]
    answer = await asker.ask(
        ApiKey.OFFSET_COMMIT, 9, group_id=group_id, topics=[{"name": "t", "partitions": wanted}]
    )
    assert answer.topics[0].partitions[0].error_code == 0


async def describe(asker: Asker, group_id: str, version: int = 6, **more: Any) -> Any:
    answer = await asker.ask(ApiKey.DESCRIBE_GROUPS, version, groups=[group_id], **more)
    (group,) = answer.groups
    return group


async def listed(asker: Asker, version: int = 5, **filters: list[str]) -> list[tuple[Any, ...]]:
    answer = await asker.ask(ApiKey.LIST_GROUPS, version, **filters)
    assert answer.error_code == 0
    return [(each.group_id, each.protocol_type, each.group_state) for each in answer.groups]


async def delete(asker: Asker, *group_ids: str, version: int = 2) -> list[int]:
    answer = await asker.ask(ApiKey.DELETE_GROUPS, version, groups_names=list(group_ids))
    return [each.error_code for each in answer.results]


@versions(ApiKey.DESCRIBE_GROUPS)
async def test_a_stable_group_is_described_with_its_members(asker: Asker, version: int) -> None:
    answer = await joined(asker, group_instance_id="worker")
    await sync(asker, answer)
    group = await describe(asker, "g", version)
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (
        answer.member_id,
        "test",
        "/127.0.0.1",
    )
    assert (member.member_metadata, member.member_assignment) == (b"topics", b"all")
    assert member.group_instance_id == ("worker" if version >= 4 else None)


@versions(ApiKey.DESCRIBE_GROUPS)
async def test_a_missing_group_is_dead_and_from_version_6_on_not_found(asker: Asker, version: int) -> None:
    for _ in range(2):  # Before and after the topic of the groups is made.
        group = await describe(asker, "nobody", version)
        assert group.group_state == "Dead"
        assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
        if version >= 6:
            assert group.error_message == "group nobody does not exist"
        await asker.services.groups.make_topic()


async def test_authorized_operations_are_returned_on_request(asker: Asker) -> None:
    await commit(asker, "g")
    assert (await describe(asker, "g")).authorized_operations == -(2**31)
    asked = await describe(asker, "g", include_authorized_operations=True)
    operations = {bit for bit in range(32) if asked.authorized_operations >> bit & 1}
    assert operations == {3, 6, 8, 10, 11}


@versions(ApiKey.LIST_GROUPS)
async def test_all_groups_are_listed_with_what_the_version_knows_of_them(asker: Asker, version: int) -> None:
    assert await listed(asker, version) == []
    await sync(asker, await joined(asker))
    await commit(asker, "only offsets")
    groups = {group_id: (kind, state) for group_id, kind, state in await listed(asker, version)}
    states = ("Stable", "Empty") if version >= 4 else ("", "")
    assert groups == {"g": ("consumer", states[0]), "only offsets": ("", states[1])}


async def test_a_list_may_be_of_some_states_and_types(asker: Asker) -> None:
    await sync(asker, await joined(asker))
    await commit(asker, "idle")
    assert [each[0] for each in await listed(asker, states_filter=["stable", "Dead"])] == ["g"]
    assert [each[0] for each in await listed(asker, states_filter=["Empty"])] == ["idle"]
    assert len(await listed(asker, types_filter=["Classic"])) == 2
    assert await listed(asker, types_filter=["consumer"]) == []


async def test_more_groups_than_one_step_lists_are_each_listed_once(asker: Asker) -> None:
    names = {f"g{number}" for number in range(450)}
    await asyncio.gather(*(join(asker, group_id=name) for name in names))
    assert sorted(each[0] for each in await listed(asker)) == sorted(names)


@versions(ApiKey.DELETE_GROUPS)
async def test_a_group_without_members_is_deleted_with_its_offsets(asker: Asker, version: int) -> None:
    await commit(asker, "g")
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert await delete(asker, "g", "nobody", version=version) == [0, missing]
    assert await delete(asker, "g", version=version) == [missing]
    assert await listed(asker) == []


@pytest.mark.parametrize("partitions", [1, DELETED_AT_ONCE, DELETED_AT_ONCE + 1])
async def test_a_deleted_group_stays_deleted_after_a_restart_however_much_it_committed(
    open_asker: Callable[..., Any], partitions: int
) -> None:
    asker = await open_asker()
    await commit(asker, "kept", partitions=partitions)
    await commit(asker, "g", partitions=partitions)
    assert await delete(asker, "g") == [0]
    await asker.services.close()
    again = await open_asker()
    assert [each[0] for each in await listed(again)] == ["kept"]


async def test_a_group_without_members_and_offsets_is_forgotten_by_the_next_sweep(asker: Asker) -> None:
    answer = await joined(asker)
    await sync(asker, answer)
    await commit(asker, "kept")
    members = [{"member_id": answer.member_id}]
    await asker.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=members)
    assert (await describe(asker, "g")).group_state == "Empty"
    await asker.services.groups.sweep()
    assert (await describe(asker, "g")).group_state == "Dead"
    assert (await describe(asker, "kept")).group_state == "Empty"
