"""Groups as the console shows them, where other projects' clients do not write what consumers write."""

from typing import Any

import pytest

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.console.asking import answer, caller_of, console_of
from tests.unit.broker.handlers.conftest import Asker, make_batch
from tests.unit.broker.handlers.test_group_membership import joined, sync
from tidelog.broker.console.api import groups
from tidelog.protocol.schema import ApiKey


async def described(asker: Asker) -> Any:
    return await answer(groups.group, console_of(asker), caller_of(asker), group_id="g")


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
async def test_members_whose_assignment_cannot_be_read_are_shown_without_one(
    asker: Asker, protocol_type: str
) -> None:
    more = {"protocol_type": protocol_type, "protocols": [{"name": "range", "metadata": b"\x00"}]}
    await sync(asker, await joined(asker, **more), assignment=b"\x00")
    found = await described(asker)
    (member,) = found["members"]
    shown = found["state"], found["protocol_type"], member["assignment"], member["subscribed_topics"]
    assert shown == ("Stable", protocol_type, None, [])


async def test_a_lag_is_not_known_where_the_partition_is_not_served(asker: Asker) -> None:
    await asker.create("t", 2)
    partitions = [{"partition_index": index, "committed_offset": 0} for index in range(2)]
    await asker.services.groups.make_topic()
    asked = {"group_id": "g", "topics": [{"name": "t", "partitions": partitions}]}
    await asker.ask(ApiKey.OFFSET_COMMIT, 8, **asked)
    replicas = asker.services.partitions.replicas
    elsewhere = replicas.pop(("t", 1))
    found = await described(asker)
    replicas["t", 1] = elsewhere
    assert [(row["partition"], row["lag"], row["member_id"]) for row in found["rows"]] == [
        (0, 0, None),
        (1, None, None),
    ]
    assert found["lag"] == 0


async def test_a_lag_has_the_age_of_the_first_record_that_is_not_committed(asker: Asker) -> None:
    await asker.create("t", 2)
    await asker.produce("t", make_batch(b"a"), partition=1)
    await asker.produce("t", make_batch(b"b", timestamp_ms=NOW_MS - 5_001), partition=1)
    partitions = [{"partition_index": index, "committed_offset": index} for index in range(2)]
    await asker.services.groups.make_topic()
    asked = {"group_id": "g", "topics": [{"name": "t", "partitions": partitions}]}
    await asker.ask(ApiKey.OFFSET_COMMIT, 8, **asked)
    assert [(row["lag"], row["behind_ms"]) for row in (await described(asker))["rows"]] == [
        (0, 0),
        (1, 5_001),
    ]


async def test_what_members_have_without_a_commit_is_named_and_is_not_in_the_lag(asker: Asker) -> None:
    await asker.create("t", 3)
    topic_t = b"\0\0" + b"\0\0\0\1" + b"\0\1t"
    protocols = [{"name": "range", "metadata": topic_t + b"\xff\xff\xff\xff"}]
    member = await joined(asker, protocols=protocols)
    assignment = topic_t + b"".join(each.to_bytes(4, "big") for each in (3, 0, 1, 2))
    await sync(asker, member, assignment=assignment + b"\0\0\0\0")
    committed = [{"partition_index": 1, "committed_offset": 0}]
    identity = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation_id}
    topics = [{"name": "t", "partitions": committed}]
    await asker.ask(ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=topics, **identity)
    found = await described(asker)
    assert [(row["partition"], row["lag"]) for row in found["rows"]] == [(1, 0)]
    assert found["without_commit"] == [{"topic": "t", "partitions": [0, 2]}]
