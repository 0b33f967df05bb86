"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as their clients see them, in every version."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.handlers.conftest import Asker
from tests.waiting import until
from tidelog.broker.security.authorizer import SUPPORTED_OPERATIONS
from tidelog.protocol.acls import ResourceType
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

VERSIONS = pytest.mark.parametrize("version", [0, 1])


async def described(asker: Asker, *group_ids: str, version: int = 1) -> Any:
    answer = await asker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=list(group_ids))
    return answer.groups


@VERSIONS
async def test_a_member_is_assigned_what_it_reads_and_described_with_it(asker: Asker, version: int) -> None:
    await asker.create("t", 2)
    joined = await asker.join_consumer_group("g", version=version, topic_names=["t", "missing"], rack_id="r")
    topic = asker.topic("t")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    assert joined.heartbeat_interval_ms == 5_000
    assert joined.assignment.topic_partitions == [{"topic_id": topic.topic_id, "partitions": [0, 1]}]
    (group,) = await described(asker, "g", version=version)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (
        0,
        "Stable",
        1,
        1,
    )
    assert group.assignor_name == "uniform"
    (member,) = group.members
    assigned = [{"topic_id": topic.topic_id, "topic_name": "t", "partitions": [0, 1]}]
    assert member.assignment.topic_partitions == member.target_assignment.topic_partitions == assigned
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r", 1)
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert member.subscribed_topic_names == ["missing", "t"]
    assert member.member_type == (1 if version == 1 else -1)


async def test_a_member_of_version_0_may_get_its_id_and_one_of_version_1_brings_it(asker: Asker) -> None:
    assert len((await asker.join_consumer_group("g", "", version=0, topic_names=["t"])).member_id) == 36
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.INVALID_REQUEST):
        await asker.join_consumer_group("g", "", version=1, topic_names=["t"])


async def test_a_member_may_leave(asker: Asker) -> None:
    await asker.join_consumer_group("g", topic_names=["t"])
    left = await asker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=-1)
    assert (left.error_code, left.member_epoch, left.assignment) == (0, -1, None)
    assert (await described(asker, "g"))[0].group_state == "Empty"


async def test_a_subscription_by_regular_expression_follows_the_topics(asker: Asker) -> None:
    await asker.create("logs-a")
    joined = await asker.join_consumer_group("g", subscribed_topic_regex="logs-.*")
    assert len(joined.assignment.topic_partitions) == 1
    await asker.create("logs-b")
    await asker.create("other")
    machine = asker.services.groups._shards.of("g").machine.groups.consumer
    await until(lambda: machine.get("g").epoch > 1)
    owned = joined.assignment.topic_partitions
    beat = await asker.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id="g",
        member_id="m",
        member_epoch=1,
        topic_partitions=owned,
    )
    assert len(beat.assignment.topic_partitions) == 2
    member = (await described(asker, "g"))[0].members[0]
    assert (member.subscribed_topic_regex, member.subscribed_topic_names) == ("logs-.*", [])


async def test_an_expression_that_is_none_is_refused(asker: Asker) -> None:
    with pytest.raises(ApiError) as refused:
        await asker.join_consumer_group("g", subscribed_topic_regex="[")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "missing ]" in refused.value.message


async def test_groups_that_are_no_consumer_groups_are_not_found(asker: Asker) -> None:
    (missing,) = await described(asker, "nobody")
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await asker.join_consumer_group("g", topic_names=["t"])
    (missing,) = await described(asker, "nobody")
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group nobody is not a consumer group.",
    )
    (classic,) = (await asker.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"])).groups
    assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    (classic,) = (await asker.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])).groups
    assert (classic.error_code, classic.group_state) == (0, "Dead")


async def test_a_list_of_groups_has_their_types_and_can_be_limited_to_one(asker: Asker) -> None:
    await asker.create("t")
    await asker.join_consumer_group("new", topic_names=["t"])
    offsets = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    await asker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="simple", topics=offsets)

    async def listed(**filters: Any) -> set[tuple[str, str, str]]:
        answer = await asker.ask(ApiKey.LIST_GROUPS, 5, **filters)
        return {(each.group_id, each.group_type, each.group_state) for each in answer.groups}

    consumer, classic = ("new", "consumer", "Stable"), ("simple", "classic", "Empty")
    assert await listed() == {consumer, classic}
    assert await listed(types_filter=["Consumer"]) == {consumer}
    assert await listed(types_filter=["classic"]) == {classic}
    assert await listed(states_filter=["stable"]) == {consumer}


async def test_operations_are_described_if_the_request_asks_for_them(asker: Asker) -> None:
    await asker.join_consumer_group("g", topic_names=["t"])
    asked = {"group_ids": ["g"], "include_authorized_operations": True}
    answer = await asker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked)
    assert answer.groups[0].authorized_operations == SUPPORTED_OPERATIONS[ResourceType.GROUP]


async def test_offsets_of_a_member_are_read_with_its_epoch(asker: Asker) -> None:
    await asker.join_consumer_group("g", topic_names=["t"])

    async def code(version: int, **member: Any) -> int:
        groups = [{"group_id": "g", "topics": None, **member}]
        return int((await asker.ask(ApiKey.OFFSET_FETCH, version, groups=groups)).groups[0].error_code)

    assert await code(9, member_id="m", member_epoch=1) == 0
    assert await code(9, member_id="m", member_epoch=2) == ErrorCode.STALE_MEMBER_EPOCH
    assert await code(10, member_id="x", member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await code(8) == 0


async def test_a_member_beyond_a_limit_is_named_in_an_event(open_asker: Callable[..., Any]) -> None:
    asker = await open_asker(group_consumer_max_size=1)
    await asker.join_consumer_group("g", topic_names=["t"])
    with capture_logs() as events, pytest.raises(ApiError) as refused:
        await asker.join_consumer_group("g", "other", topic_names=["t"])
    assert refused.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    (event,) = (each for each in events if each["event"] == "group_join_refused")
    assert (event["group_id"], event["client_id"]) == ("g", "test")


async def test_what_no_batch_holds_is_refused_and_changes_nothing(asker: Asker) -> None:
    names = [f"{number:0>240}" for number in range(4_900)]
    with capture_logs() as events, pytest.raises(ApiError) as refused:
        await asker.join_consumer_group("g", topic_names=names)
    assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "group_join_refused" in {each["event"] for each in events}
    assert (await described(asker, "g"))[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_broker_without_the_protocol_says_so(open_asker: Callable[..., Any]) -> None:
    asker = await open_asker(group_coordinator_rebalance_protocols=("classic",))
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.UNSUPPORTED_VERSION):
        await asker.join_consumer_group("g", topic_names=["t"])


async def test_session_and_heartbeats_are_those_of_the_settings(open_asker: Callable[..., Any]) -> None:
    asker = await open_asker(
        group_consumer_min_heartbeat_interval_ms=7, group_consumer_heartbeat_interval_ms=7
    )
    assert (await asker.join_consumer_group("g", topic_names=["t"])).heartbeat_interval_ms == 7
