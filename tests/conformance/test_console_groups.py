"""The console's groups over a real broker: members of both protocols, lag, and a reset with its preview."""

from typing import Any
from urllib.parse import urlencode

import pytest

from tests.conformance.conftest import RunningBroker, broker_with
from tests.conformance.console_site import Answer, Visitor
from tests.conformance.crew import PARTITIONS, QUICK, RECORDS, Crew, Reader, both_protocols
from tests.waiting import until
from tidelog.client import Admin, TopicPartition

broker = broker_with(**QUICK)
OF_PARTITION = RECORDS // PARTITIONS


async def commit(broker: RunningBroker, group_id: str, topic: str, *offsets: int) -> None:
    """Commit for a group without members, in the first partitions."""
    async with Admin(bootstrap_servers=broker.address) as admin:
        committed = {TopicPartition(topic, index): offset for index, offset in enumerate(offsets)}
        await admin.groups.commit(group_id, committed)


async def group(visitor: Visitor, group_id: str, **query: object) -> dict[str, Any]:
    answer = await visitor.get(f"/api/v1/group?{urlencode({'group_id': group_id, **query})}")
    assert answer.status == 200, answer.text
    return dict(answer.json)


async def reset(visitor: Visitor, method: str, group_id: str, to: str, **values: object) -> Answer:
    asked = {"group_id": group_id, "to": to, **values}
    path = "/api/v1/group/reset"
    if method == "POST":
        return await visitor.ask("POST", path, asked)
    return await visitor.get(f"{path}?{urlencode(asked, doseq=True)}")


@both_protocols
async def test_a_group_shows_who_reads_which_partition_and_how_far_it_is_behind(
    crew: Crew, broker: RunningBroker, visitor: Visitor, protocol: dict[str, Any]
) -> None:
    group_id = f"readers-{protocol['group_protocol']}"
    await commit(broker, group_id, crew.topic, 10, 20)
    reader = await Reader(broker.address, group_id, enable_auto_commit=False, **protocol).start(crew.topic)
    try:
        await until(lambda: len(reader.given) == RECORDS - 30)
        found = await group(visitor, group_id)
        (member,) = found["members"]
        assert (found["type"], found["state"]) == (protocol["group_protocol"], "Stable")
        assert member["assignment"] == [{"topic": crew.topic, "partitions": [*range(PARTITIONS)]}]
        assert member["subscribed_topics"] == [crew.topic]
        assert [
            (row["partition"], row["committed"], row["high_watermark"], row["lag"], row["member_id"])
            for row in found["rows"]
        ] == [
            (0, 10, OF_PARTITION, OF_PARTITION - 10, member["member_id"]),
            (1, 20, OF_PARTITION, OF_PARTITION - 20, member["member_id"]),
        ]
        assert found["lag"] == 2 * OF_PARTITION - 30
        refused = await reset(visitor, "POST", group_id, "earliest")
        assert (refused.status, refused.json["code"]) == (409, "NON_EMPTY_GROUP")
        assert "1 member" in (await reset(visitor, "GET", group_id, "earliest")).json["refusal"]
    finally:
        await reader.stop()


async def test_groups_are_listed_by_their_lag(crew: Crew, broker: RunningBroker, visitor: Visitor) -> None:
    for group_id, offset in (("lags-a", 90), ("lags-b", 10), ("lags-c", 50)):
        await commit(broker, group_id, crew.topic, offset)
    answer = await visitor.get("/api/v1/groups?search=lags-&order=lag&limit=2")
    assert answer.json["total"] == 3
    assert [(row["group_id"], row["lag"]) for row in answer.json["rows"]] == [
        ("lags-b", OF_PARTITION - 10),
        ("lags-c", OF_PARTITION - 50),
    ]
    answer = await visitor.get("/api/v1/groups?search=lags-&offset=2")
    assert [row["group_id"] for row in answer.json["rows"]] == ["lags-c"]


@pytest.mark.parametrize(
    ("to", "value", "expected"),
    [
        ("earliest", None, [0, 0]),
        ("latest", None, [OF_PARTITION, OF_PARTITION]),
        ("offset", 7, [7, 7]),
        ("shift", -15, [0, 5]),
        ("timestamp", 2**40, [0, 0]),
        ("timestamp", 2**42, [OF_PARTITION, OF_PARTITION]),
    ],
)
async def test_a_reset_does_what_its_preview_shows(
    crew: Crew, broker: RunningBroker, visitor: Visitor, to: str, value: int | None, expected: list[int]
) -> None:
    group_id = f"reset-{to}-{value}"
    await commit(broker, group_id, crew.topic, 10, 20)
    values = {} if value is None else {"value": value}
    preview = (await reset(visitor, "GET", group_id, to, **values)).json
    assert [(row["committed"], row["new_offset"]) for row in preview["rows"]] == [
        (10, expected[0]),
        (20, expected[1]),
    ]
    assert [row["committed"] for row in (await group(visitor, group_id))["rows"]] == [10, 20]
    done = await reset(visitor, "POST", group_id, to, **values)
    assert (done.status, done.json) == (200, preview)
    assert [row["committed"] for row in (await group(visitor, group_id))["rows"]] == expected


async def test_a_reset_may_name_topics_and_partitions(
    crew: Crew, broker: RunningBroker, visitor: Visitor
) -> None:
    asked = {"topics": [crew.topic], "partitions": [1, 3]}
    done = await reset(visitor, "POST", "named", "latest", **asked)
    assert [(row["partition"], row["committed"], row["new_offset"]) for row in done.json["rows"]] == [
        (1, None, OF_PARTITION),
        (3, None, OF_PARTITION),
    ]
    rows = (await group(visitor, "named"))["rows"]
    assert [(row["partition"], row["lag"]) for row in rows] == [(1, 0), (3, 0)]


async def test_what_cannot_be_reset_says_why(visitor: Visitor) -> None:
    for asked, status in (
        ({"to": "offset"}, 400),
        ({"to": "latest", "value": 3}, 400),
        ({"to": "offset", "value": -3}, 400),
        ({"to": "elsewhere"}, 400),
        ({"to": "latest"}, 404),
        ({"to": "latest", "topics": ["no-such-topic"]}, 404),
    ):
        answer = await visitor.ask("POST", "/api/v1/group/reset", {"group_id": "nobody", **asked})
        assert answer.status == status, answer.text
        assert answer.json["message"]
    assert (await visitor.get("/api/v1/group?group_id=nobody")).status == 404
