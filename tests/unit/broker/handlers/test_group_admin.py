"""DescribeGroups, ListGroups and DeleteGroups: what operators see of groups, and take away."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker
from tests.unit.broker.handlers.test_group_membership import join
from tidelog.broker.coordinator.group_machine import DELETED_AT_ONCE
from tidelog.protocol.schema import ApiKey


async def commit(asker: Asker, group_id: str, *, partitions: int = 1) -> None:
    if asker.services.catalog.topic("t") is None:
        await asker.create("t", partitions=partitions)
    wanted = [{"partition_index": index, "committed_offset": 7} for index in range(partitions)]
    answer = await asker.ask(
        ApiKey.OFFSET_COMMIT, 9, group_id=group_id, topics=[{"name": "t", "partitions": wanted}]
    )
    assert answer.topics[0].partitions[0].error_code == 0


async def listed(asker: Asker, version: int = 5, **filters: list[str]) -> list[tuple[Any, ...]]:
    answer = await asker.ask(ApiKey.LIST_GROUPS, version, **filters)
    assert answer.error_code == 0
    return [(each.group_id, each.protocol_type, each.group_state) for each in answer.groups]


async def delete(asker: Asker, *group_ids: str, version: int = 2) -> list[int]:
    answer = await asker.ask(ApiKey.DELETE_GROUPS, version, groups_names=list(group_ids))
    return [each.error_code for each in answer.results]


async def test_more_groups_than_one_step_lists_are_each_listed_once(asker: Asker) -> None:
    names = {f"g{number}" for number in range(450)}
    await asyncio.gather(*(join(asker, group_id=name) for name in names))
    assert sorted(each[0] for each in await listed(asker)) == sorted(names)


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
