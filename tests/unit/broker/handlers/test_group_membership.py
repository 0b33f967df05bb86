"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup as their clients see them, in every version."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.handlers.conftest import Asker
from tests.waiting import until
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey


async def join(asker: Asker, version: int = 5, group_id: str = "g", member_id: str = "", **more: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": group_id,
        "member_id": member_id,
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
        **({"rebalance_timeout_ms": 60_000} if version >= 1 else {}),
        **more,
    }
    return await asker.ask(ApiKey.JOIN_GROUP, version, **values)


async def joined(asker: Asker, version: int = 5, **more: Any) -> Any:
    """A join with the id that the coordinator asks for."""
    answer = await join(asker, version, **more)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await join(asker, version, member_id=answer.member_id, **more)
    return answer


async def sync(asker: Asker, answer: Any, version: int = 5, assignment: bytes = b"all", **more: Any) -> Any:
    assignments = [{"member_id": answer.member_id, "assignment": assignment}]
    member = {"group_id": "g", "generation_id": answer.generation_id, "member_id": answer.member_id}
    return await asker.ask(ApiKey.SYNC_GROUP, version, **{**member, "assignments": assignments, **more})


def is_parked(asker: Asker) -> bool:
    """Whether anybody waits for others of its group."""
    return any(shard.runtime._parked for shard in asker.services.groups._shards._shards.values())


async def test_version_0_has_one_timeout_for_both(asker: Asker) -> None:
    first = await join(asker, 0)
    assert (await sync(asker, first, 0)).error_code == 0
    second = asyncio.ensure_future(join(asker, 0))
    await until(lambda: is_parked(asker))
    assert (await join(asker, 0, member_id=first.member_id)).generation_id == 2
    assert (await second).generation_id == 2


async def test_without_time_to_join_a_member_has_its_session_timeout(asker: Asker) -> None:
    """As kafkajs asks if no rebalance timeout is set."""
    answer = await joined(asker, rebalance_timeout_ms=0)
    machine = asker.services.groups._shards.of("g").machine
    assert machine.groups.classic._groups["g"].rebalance_timeout_ms == 10_000
    assert (await sync(asker, answer)).error_code == ErrorCode.NONE


async def test_more_members_than_one_step_leaves_are_each_answered(asker: Asker) -> None:
    await asker.services.groups.make_topic()
    ids = [f"m{number}" for number in range(1_234)]
    left = await asker.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": each} for each in ids])
    assert [each.member_id for each in left.members] == ids


async def test_a_group_has_the_size_limit_of_the_settings_and_a_refused_member_is_named(
    open_asker: Callable[..., Any],
) -> None:
    asker = await open_asker(group_max_size=1)
    await sync(asker, await joined(asker))
    with capture_logs() as events:
        assert (await join(asker)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    (event,) = (each for each in events if each["event"] == "group_join_refused")
    assert (event["group_id"], event["client_id"]) == ("g", "test")
    assert event["error"] == "GROUP_MAX_SIZE_REACHED"


async def test_an_assignment_that_no_record_holds_is_refused_and_the_leader_may_try_again(
    asker: Asker,
) -> None:
    answer = await joined(asker)
    with capture_logs() as events, pytest.raises(ApiError) as refused:
        await sync(asker, answer, assignment=bytes(2 << 20))
    assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "group_assignment_too_large" in {event["event"] for event in events}
    assert (await sync(asker, answer)).assignment == b"all"
