"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as their clients see them, in every version."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.handlers.conftest import Asker
from tests.waiting import until
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey


async def described(asker: Asker, *group_ids: str, version: int = 1) -> Any:
    answer = await asker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=list(group_ids))
    return answer.groups


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
