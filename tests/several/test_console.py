"""The console and its API of one broker show the whole cluster, and change it at the broker that may."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from typer.testing import CliRunner

from tests.several.brokers import Brokers, brokers
from tests.several.test_coordinators import coordinated_by
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.broker.console.routes import PAGES
from tidelog.cli.cluster import app as cluster_commands
from tidelog.client import Admin, NewTopic, Producer, TopicPartition

TOPIC = "t"
COPIED = "copied"
"""Of one partition, with a replica on each broker."""
PARTITIONS = 4
RECORDS = 3
"""In each partition."""


class Site:
    """The HTTP port of broker 1."""

    def __init__(self, session: ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}"

    async def get(self, path: str, **query: Any) -> Any:
        async with self._session.get(f"{self._url}/api/v1{path}", params=query) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def status(self, path: str, **query: Any) -> int:
        async with self._session.get(f"{self._url}/api/v1{path}", params=query) as answer:
            return answer.status

    async def change(self, path: str, **body: Any) -> Any:
        async with self._session.post(f"{self._url}/api/v1{path}", json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def stream(self, path: str, **query: Any) -> list[Any]:
        """The values of a stream that ends."""
        async with self._session.get(f"{self._url}/api/v1{path}", params=query) as answer:
            text = await answer.text()
            assert answer.status == 200, text
        events = [event for event in text.split("\n\n") if event.startswith("data: ")]
        return [json.loads(event.removeprefix("data: ")) for event in events]

    async def follow(self, path: str) -> AsyncGenerator[Any, None]:
        """The values of a stream that goes on."""
        async with self._session.get(f"{self._url}/api/v1{path}") as answer:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

    async def text(self, path: str) -> str:
        async with self._session.get(f"{self._url}/api/v1{path}") as answer:
            return await answer.text()

    async def page(self, path: str) -> str:
        async with self._session.get(f"{self._url}/console{path}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.text()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    """Two brokers. Each leads two partitions, which have records of one producer."""
    async with brokers(tmp_path, (1, 2), http_port=0) as running:
        address = running.bootstrap_servers
        async with Admin(bootstrap_servers=address) as admin:
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, {}), NewTopic(COPIED, 1, 2, {})])
        async with Producer(bootstrap_servers=address) as producer:
            await producer.send_and_wait(COPIED, b"of each broker")
            for number in range(PARTITIONS * RECORDS):
                await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()
        await running.make_internal_topics()
        yield running


@pytest.fixture
async def site(cluster: Brokers) -> AsyncIterator[Site]:
    async with ClientSession() as session:
        yield Site(session, cluster[1].http_port or 0)


def led_by(cluster: Brokers, node_id: int) -> list[int]:
    return [index for index in range(PARTITIONS) if cluster.leader_of(TOPIC, index) == node_id]


async def test_records_of_other_brokers_are_read_searched_and_produced(cluster: Brokers, site: Site) -> None:
    (there, _) = led_by(cluster, 2)
    at = f"/topics/{TOPIC}/partitions/{there}"
    of_topic = f"/topics/{TOPIC}"
    found = await site.get(f"{of_topic}/records", partitions=there, time=0)
    values = [row["value"]["text"] for row in found["rows"]]
    assert values == [str(there + PARTITIONS * each) for each in range(RECORDS)]
    newest = await site.get(f"{of_topic}/records", limit=5)
    every = [str(number) for number in range(PARTITIONS * RECORDS)]
    times = [row["timestamp"] for row in newest["rows"]]
    assert times == sorted(times, reverse=True)
    older = await site.get(f"{of_topic}/records", positions=newest["next"])
    both = [row["value"]["text"] for row in (*newest["rows"], *older["rows"])]
    assert (sorted(both, key=int), older["next"]) == (every, "")
    assert (await site.get(f"{at}/records/1"))["value"]["text"] == values[1]
    assert (await site.get(f"{at}/batches"))["rows"][0]["base_sequence"] == 0
    messages = await site.stream(f"{of_topic}/search", partitions=there, text=values[2])
    assert [row["offset"] for message in messages for row in message["rows"]] == [2]
    produced = await site.change(f"/topics/{TOPIC}/records", partition=there, value="last")
    assert produced == {"topic": TOPIC, "partition": there, "offset": RECORDS}
    assert "last" in await site.page(f"/topics/{TOPIC}")
    assert await site.status(f"{of_topic}/records", time="never") == 400
    copied = await site.change(f"{at}/records/1/resend", to_topic=COPIED)
    copy = await site.get(f"/topics/{COPIED}/partitions/0/records/{copied['offset']}")
    assert copy["value"]["text"] == values[1]
    lines = await site.text(f"{of_topic}/download")
    assert len(lines.splitlines()) == PARTITIONS * RECORDS + 1
    assert len((await site.text(f"{of_topic}/download/csv")).splitlines()) == PARTITIONS * RECORDS + 2
    await _what_comes_to_any_broker_is_followed(site)
    await _a_search_goes_through_the_partitions_of_all_brokers(site)


async def _what_comes_to_any_broker_is_followed(site: Site) -> None:
    async with aclosing(site.follow(f"/topics/{TOPIC}/live")) as following:
        for partition in range(-2, PARTITIONS):
            if partition >= 0:  # The first messages of the two brokers say that they follow.
                await site.change(f"/topics/{TOPIC}/records", partition=partition, value="new")
            rows = (await anext(following))["rows"]
            assert [row["partition"] for row in rows] == ([partition] if partition >= 0 else [])


async def _a_search_goes_through_the_partitions_of_all_brokers(site: Site) -> None:
    messages = await site.stream(f"/topics/{TOPIC}/search", text="1")
    found = [row["value"]["text"] for message in messages for row in message["rows"]]
    assert sorted(found) == ["1", "10", "11"]
    assert messages[-1]["state"] == "done"
    assert (messages[-1]["found"], messages[-1]["not_served"]) == (3, 0)
    messages = await site.stream(f"/topics/{TOPIC}/search", text="1", limit=2)
    assert (messages[-1]["found"], messages[-1]["state"]) == (2, "full")


async def test_topics_producers_clients_and_groups_of_all_brokers_are_shown(
    cluster: Brokers, site: Site
) -> None:
    (topic,) = (await site.get("/topics", search=TOPIC, internal="false"))["rows"]
    assert (topic["offsets"], topic["without_leader"]) == (PARTITIONS * RECORDS, 0)
    assert await site.get(f"/topics/{TOPIC}") == {**topic, "unanswered": []}
    partitions = (await site.get(f"/topics/{TOPIC}/partitions"))["rows"]
    assert [row["high_watermark"] for row in partitions] == [RECORDS] * PARTITIONS
    producers = await site.get("/producers", topic=TOPIC)
    assert [row["partition"] for row in producers["rows"]] == list(range(PARTITIONS))
    assert producers["total"] == PARTITIONS
    assert not producers["problems"]
    assert (await site.get("/producers", topic=COPIED))["total"] == 1
    later = await site.get("/producers", topic=TOPIC, offset=3, limit=2)
    assert [row["partition"] for row in later["rows"]] == [3]
    (there, _) = led_by(cluster, 2)
    producer_id = producers["rows"][0]["producer_id"]
    history = await site.stream(f"/topics/{TOPIC}/partitions/{there}/producers/{producer_id}/history")
    assert sum(row["records"] for piece in history for row in piece["rows"]) == RECORDS
    there_too = [row for row in (await site.get("/clients"))["rows"] if row["node_id"] == 2]
    assert "broker-1" in [row["client_id"] for row in there_too]
    brokers_shown = (await site.get("/overview"))["brokers"]
    assert [each["broker"]["node_id"] for each in brokers_shown] == [1, 2]
    for coordinator in (1, 2):
        await _a_group_has_its_lag_wherever_its_partitions_are_and_is_reset(cluster, site, coordinator)


async def _a_group_has_its_lag_wherever_its_partitions_are_and_is_reset(
    cluster: Brokers, site: Site, coordinator: int
) -> None:
    group_id = coordinated_by(cluster, coordinator, OFFSETS_TOPIC)
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        committed = {TopicPartition(TOPIC, index): 1 for index in range(PARTITIONS)}
        await admin.groups.commit(group_id, {**committed, TopicPartition(COPIED, 0): 0})
    (listed, *_) = (await site.get("/groups", order="lag"))["rows"]
    lag = PARTITIONS * (RECORDS - 1) + 1
    assert (listed["group_id"], listed["partitions"], listed["lag"]) == (group_id, PARTITIONS + 1, lag)
    group = await site.get("/group", group_id=group_id)
    assert group["lag"] == lag
    ends = [1, *[RECORDS] * PARTITIONS]
    assert [(row["start_offset"], row["high_watermark"]) for row in group["rows"]] == [
        (0, end) for end in ends
    ]
    plan = await site.change("/group/reset", group_id=group_id, to="latest")
    assert [row["new_offset"] for row in plan["rows"]] == ends
    assert (await site.get("/group", group_id=group_id))["lag"] == 0


async def test_a_transaction_hangs_nowhere_and_a_broker_that_does_not_answer_is_named(
    cluster: Brokers, site: Site
) -> None:
    await _a_transaction_is_shown_and_aborted_by_its_coordinator(cluster, site)
    await _a_broker_that_does_not_answer_is_named_and_the_others_are_shown(cluster, site)


async def _a_transaction_is_shown_and_aborted_by_its_coordinator(cluster: Brokers, site: Site) -> None:
    name = coordinated_by(cluster, 2, TRANSACTIONS_TOPIC)
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name)
    async with producer:
        await producer.begin_transaction()
        for index in range(PARTITIONS):
            await producer.send(TOPIC, b"open", partition=index)
        await producer.send(COPIED, b"open")
        await producer.flush()
        (shown,) = (await site.get("/transactions"))["rows"]
        assert (shown["transactional_id"], shown["partition_count"]) == (name, PARTITIONS + 1)
        held_back = await site.get("/transactions/held-back")
        # One row for each, not for each of its replicas.
        found = sorted((row["topic"], row["partition"], row["is_hanging"]) for row in held_back["rows"])
        assert found == [(COPIED, 0, False), *((TOPIC, index, False) for index in range(PARTITIONS))]
        assert {row["transactional_id"] for row in held_back["rows"]} == {name}
        assert name in await site.page("/transactions")
        aborted = await site.change("/transaction/abort", transactional_id=name)
        assert aborted["transactional_id"] == name


async def _a_broker_that_does_not_answer_is_named_and_the_others_are_shown(
    cluster: Brokers, site: Site
) -> None:
    here, there = led_by(cluster, 1), led_by(cluster, 2)
    await cluster.kill(2)
    for _ in range(2):
        found = await site.get("/producers", topic=TOPIC)
        assert {row["partition"] for row in found["rows"]} == set(here)
        assert found["unanswered"] == [2]
        assert "Broker 2 did not answer" in await site.page("/producers")
        assert await site.status(f"/topics/{TOPIC}/partitions/{there[0]}/records/0") == 503
        shown = await site.get(f"/topics/{TOPIC}/records")
        assert {row["partition"] for row in shown["rows"]} == set(here)
        assert shown["unanswered"] == [2]
        if not cluster[1].services.is_live(2):
            break
        await cluster.lose_session(2)
    names: Mapping[str, str] = {
        each["name"]: each["text"] for each in (await site.get("/overview"))["problems"]
    }
    assert "node id 2" in names["broker_gone"]
    arguments = ["status", "--json", "--bootstrap-servers", cluster[1].bootstrap_servers]
    said = await asyncio.to_thread(CliRunner().invoke, cluster_commands, arguments)
    assert said.exit_code == 1, said.output
    problems = {each["name"] for each in json.loads(said.output)["problems"]}
    assert {"broker_gone", "broker_not_answering"} <= problems


async def test_two_of_three_brokers_hang_and_the_pages_wait_for_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with brokers(tmp_path, (1, 2, 3), http_port=0) as running, ClientSession() as session:
        async with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(TOPIC, 6, 1, {})])
        await running[1].services.groups.make_topic()
        await running.agreed()
        site, hanging = Site(session, running[1].http_port or 0), set[int]()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1 << 16):
                hanging.add(writer.get_extra_info("sockname")[1])
            writer.close()

        async with AsyncExitStack() as servers, asyncio.timeout(DEADLINE_SECONDS):
            for node_id in (2, 3):
                port = running[node_id].port
                await running.kill(node_id)
                await servers.enter_async_context(await asyncio.start_server(hang, "127.0.0.1", port))
            # Their sessions have not ended, and do not meanwhile.
            monkeypatch.setattr(running[1].services, "is_live", lambda _: True)
            monkeypatch.setattr("tidelog.broker.console.others._SILENT_SECONDS", 2 * DEADLINE_SECONDS)
            while len(hanging) < 2:  # The connections of before are closed first.
                assert "Brokers 2, 3 did not answer" in await site.page("/topics")
            # Who would wait for them again would wait until the test has failed.
            monkeypatch.setattr("tidelog.broker.console.others._SECONDS", 2 * DEADLINE_SECONDS)
            for path in ("/overview", "/topics", f"/topics/{TOPIC}", "/producers", "/clients"):
                assert "Brokers 2, 3 did not answer" in await site.page(path)
            led = [index for index in range(6) if running.leader_of(TOPIC, index) == 1]
            shown = await site.get(f"/topics/{TOPIC}/records")
            assert [each["partition"] for each in shown["positions"]] == led
            for page in PAGES:
                if page.is_in_navigation:
                    await site.page(page.path.removeprefix("/console"))
