"""The console's topics and records over a real broker, beside what other clients write and read."""

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import fastavro
import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer

from tests.conformance.commands import Type
from tests.conformance.conftest import RunningBroker
from tests.conformance.console_site import Visitor
from tests.conformance.registry import registry
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.client import Admin, NewTopic, Producer

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
async def topic(broker: RunningBroker) -> str:
    name = f"t{uuid4().hex}"
    async with Admin(bootstrap_servers=broker.address) as admin:
        await admin.create_topics([NewTopic(name, 2, 1, {})])
    return name


def path_of(topic: str, part: str, **query: object) -> str:
    at = f"/api/v1/topics/{topic}"
    if part == "batches":
        return f"{at}/partitions/0/{part}?{urlencode(query)}"
    return f"{at}/{part}?{urlencode({'partitions': 0, **query}, doseq=True)}"


async def answered(visitor: Visitor, topic: str, part: str, **query: object) -> Any:
    answer = await visitor.get(path_of(topic, part, **query))
    assert answer.status == 200, answer.text
    return answer.json


async def write(broker: RunningBroker, topic: str, values: list[bytes], **settings: Any) -> None:
    async with Producer(bootstrap_servers=broker.address, **settings) as producer:
        for value in values:
            await producer.send(topic, value, key=b"k", partition=0)


def written_by_librdkafka(address: str, topic: str, codec: str) -> None:
    producer = ConfluentProducer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 50})
    for number in range(20):
        value = f"{codec} {number} {'x' * 100}"
        producer.produce(topic, value, key=f"key {number}", partition=0, headers={"n": str(number)})
    assert producer.flush(DEADLINE_SECONDS) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_another_client_wrote_is_shown(
    broker: RunningBroker, visitor: Visitor, topic: str, codec: str
) -> None:
    await asyncio.to_thread(written_by_librdkafka, broker.address, topic, codec)
    rows = (await answered(visitor, topic, "records", offset=0))["rows"]
    assert [(row["offset"], row["key"]["text"], row["headers"][0]["value"]["text"]) for row in rows] == [
        (number, f"key {number}", str(number)) for number in range(20)
    ]
    assert {row["compression"] for row in (await answered(visitor, topic, "batches"))["rows"]} == {codec}
    events = []
    async with visitor.follow(path_of(topic, "search", text=f"{codec} 1", header="n=13")) as following:
        async for name, message in following:
            events.append((name, message))
            if name == "end":
                break
    (found,) = [row for name, message in events if name == "message" for row in message["rows"]]
    assert found["offset"] == 13
    assert events[-2][1]["state"] == "done"


async def test_what_is_produced_here_is_durable_and_read_by_another_client(
    broker: RunningBroker, visitor: Visitor, topic: str
) -> None:
    records = f"/api/v1/topics/{topic}/records"
    asked = {"partition": 0, "key": "k", "value": "ü", "headers": {"a": "b"}}
    assert (await visitor.ask("POST", records, asked)).json == {"topic": topic, "partition": 0, "offset": 0}
    assert broker.broker.services.replicas[topic, 0].log.flushed_end_offset == 1
    asked = {"partition": 0, "value": "/wA=", "value_encoding": "base64"}
    assert (await visitor.ask("POST", records, asked)).json["offset"] == 1
    asked = {"partition": 0, "key": "00ff", "key_encoding": "hex"}
    assert (await visitor.ask("POST", records, asked)).json["offset"] == 2
    consumer = ConfluentConsumer(
        {"bootstrap.servers": broker.address, "group.id": uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    read = await asyncio.to_thread(consumer.consume, 3, DEADLINE_SECONDS)
    consumer.close()
    assert [(each.key(), each.value(), each.headers()) for each in read] == [
        (b"k", "ü".encode(), [("a", b"b")]),
        (None, b"\xff\x00", None),
        (b"\x00\xff", None, None),
    ]


async def test_a_key_chooses_the_partition_that_clients_choose(
    broker: RunningBroker, visitor: Visitor, topic: str
) -> None:
    async with Producer(bootstrap_servers=broker.address) as producer:
        for key in ("a", "b", "foobar", "21", "ü"):
            theirs = await producer.send_and_wait(topic, b"v", key=key.encode())
            ours = await visitor.ask("POST", f"/api/v1/topics/{topic}/records", {"key": key, "value": "v"})
            assert ours.json["partition"] == theirs.partition


async def test_a_download_is_what_the_command_prints(
    broker: RunningBroker, visitor: Visitor, topic: str, tidelog: Type
) -> None:
    await write(broker, topic, [b"plain", b"\xff", b"line\nline", b"x" * 100_000])
    download = await visitor.get(path_of(topic, "download"))
    assert (download.status, download.headers["Content-Type"]) == (200, "application/x-ndjson")
    read = ("--from-beginning", "--max-messages", "4", "--json")
    _, printed, _ = await asyncio.to_thread(tidelog, "consume", topic, *read)
    assert list(map(json.loads, download.text.splitlines())) == list(map(json.loads, printed.splitlines()))
    assert len(download.text.splitlines()) == 4


@pytest.mark.usefixtures("watchful_streams")
async def test_a_visitor_who_leaves_ends_the_search_and_the_watching(
    broker: RunningBroker, visitor: Visitor, topic: str
) -> None:
    await write(broker, topic, [b"value %d" % number for number in range(500)])
    replica = broker.broker.services.replicas[topic, 0]
    async with visitor.follow(path_of(topic, "live")) as following:
        assert (await anext(following))[1] == {"rows": [], "left_out": 0}
        await write(broker, topic, [b"news"])
        _, message = await anext(following)
        assert [row["value"]["text"] for row in message["rows"]] == ["news"]
        assert replica._watchers
    await until(lambda: not replica._watchers)


async def test_a_table_has_the_records_of_all_partitions_and_no_formula(
    broker: RunningBroker, visitor: Visitor, topic: str
) -> None:
    await write(broker, topic, [b"=1+1", b'{"total": 5}', b"a,b"])
    await visitor.ask("POST", f"/api/v1/topics/{topic}/records", {"partition": 1, "value": "other"})
    table = await visitor.get(f"/api/v1/topics/{topic}/download/csv")
    assert (table.status, table.headers["Content-Type"]) == (200, "text/csv")
    rows = list(csv.DictReader(io.StringIO(table.text, newline="")))
    assert [row["value"] for row in rows] == ["'=1+1", '{"total": 5}', "a,b", "other"]
    chosen = await visitor.get(f"/api/v1/topics/{topic}/download/csv?{urlencode({'json': 'total > `4`'})}")
    assert len(chosen.text.splitlines()) == 2


async def test_a_record_is_sent_again_with_all_its_bytes(
    broker: RunningBroker, visitor: Visitor, topic: str
) -> None:
    headers = [("n", b"1"), ("n", b"\xff"), ("none", None)]
    async with Producer(bootstrap_servers=broker.address) as producer:
        await producer.send_and_wait(topic, b"\x00\xff", key=b"\xfe", headers=headers, partition=0)
        await producer.send_and_wait(topic, None, key=b"k", partition=0)
    for offset in (0, 1):
        path = f"/api/v1/topics/{topic}/partitions/0/records/{offset}/resend"
        copied = (await visitor.ask("POST", path, {"to_topic": topic})).json
        query = {"partitions": copied["partition"], "offset": copied["offset"], "limit": 1}
        copy = json.loads((await visitor.get(f"/api/v1/topics/{topic}/download?{urlencode(query)}")).text)
        first = json.loads((await visitor.get(path_of(topic, "download", offset=offset, limit=1))).text)
        assert [copy[each] for each in ("key", "value", "headers")] == [
            first[each] for each in ("key", "value", "headers")
        ]
    missing = await visitor.ask(
        "POST", f"/api/v1/topics/{topic}/partitions/0/records/99/resend", {"to_topic": topic}
    )
    assert (missing.status, missing.json["code"]) == (400, "OFFSET_OUT_OF_RANGE")


async def test_avro_values_are_read_with_the_schemas_of_the_configured_registry(tmp_path: Path) -> None:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), {"id": 42})
    value = b"\0\0\0\0\7" + stream.getvalue()
    with registry({"/schemas/ids/7": {"schema": json.dumps(SCHEMA)}}) as (url, asked):
        config = BrokerConfig.load(
            {"port": 0, "http.port": 0, "data.dir": tmp_path / "data", "console.schema.registry.url": url}
        )
        async with await Broker.start(config) as broker:
            await broker.services.topics.create("orders")
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for each in (value, b"\0\0\0\0\x08x", b"text"):
                    await producer.send_and_wait("orders", each)
            visitor = Visitor(broker)
            rows = (await answered(visitor, "orders", "records", offset=0))["rows"]
            shown = [(row["value"]["format"], row["value"]["schema_id"]) for row in rows]
            assert shown == [("avro", 7), ("text", None), ("text", None)]
            assert json.loads(rows[0]["value"]["text"]) == {"id": 42}
            assert rows[1]["value"]["problem"] == "the schema registry answers 404 to /schemas/ids/8"
            page = await visitor.get("/console/topics/orders/partitions/0/records/0")
            assert "schema 7" in page.text
            assert asked == ["/schemas/ids/7", "/schemas/ids/8"]


async def test_subjects_have_versions_and_differences(tmp_path: Path) -> None:
    newer = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "note", "type": "string"}]}  # type: ignore[misc]
    schemas = {
        "/subjects": ["orders-value", "orders-key", "a/b"],
        "/subjects/orders-value/versions": [1, 3],
        "/subjects/orders-value/versions/1": {"id": 7, "schema": json.dumps(SCHEMA)},
        "/subjects/orders-value/versions/3": {"id": 9, "schema": json.dumps(newer)},
        "/subjects/orders-key/versions": [1],
        "/subjects/orders-key/versions/1": {"id": 8, "schemaType": "PROTOBUF", "schema": "message K {}"},
    }
    with registry(schemas) as (url, _):
        config = BrokerConfig.load(
            {"port": 0, "http.port": 0, "data.dir": tmp_path / "data", "console.schema.registry.url": url}
        )
        async with await Broker.start(config) as broker:
            visitor = Visitor(broker)
            assert (await visitor.get("/api/v1/registry?search=orders")).json["rows"] == [
                {"subject": "orders-key"},
                {"subject": "orders-value"},
            ]
            found = (await visitor.get("/api/v1/registry/subject?subject=orders-value")).json
            assert (found["versions"], found["version"], found["schema_id"], found["against"]) == (
                [1, 3],
                3,
                9,
                1,
            )
            assert "--- version 1" in found["difference"]
            assert any(line.startswith("+") and "note" in line for line in found["difference"])
            first = (await visitor.get("/api/v1/registry/subject?subject=orders-value&version=1")).json
            assert (first["against"], first["difference"]) == (None, [])
            key = (await visitor.get("/api/v1/registry/subject?subject=orders-key")).json
            assert (key["type"], key["text"]) == ("PROTOBUF", "message K {}")
            page = await visitor.get("/console/registry/subject?subject=orders-value&version=1&against=3")
            assert "Differences from version 3" in page.text
            assert (await visitor.get("/api/v1/registry/subject?subject=absent")).status == 404
            assert 'href="/console/registry"' in (await visitor.get("/console/topics")).text


async def test_masked_fields_are_shown_found_and_downloaded_nowhere(tmp_path: Path) -> None:
    config = BrokerConfig.load(
        {
            "port": 0,
            "http.port": 0,
            "data.dir": tmp_path / "data",
            "console.masking.rules": "orders*:value.customer.email,orders*:key",
        }
    )
    async with await Broker.start(config) as broker:
        visitor = Visitor(broker)
        for topic in ("orders", "open"):
            await broker.services.topics.create(topic)
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await producer.send_and_wait(topic, b'{"customer": {"email": "a@b"}, "id": 7}', key=b"secret")
        for topic, is_masked in (("orders", True), ("open", False)):
            answers = [
                (await visitor.get(path_of(topic, part, offset=0))).text
                for part in ("records", "download", "download/csv")
            ]
            answers.append((await visitor.get(f"/api/v1/topics/{topic}/partitions/0/records/0")).text)
            answers.append((await visitor.get(f"/console/topics/{topic}")).text)
            for answer in answers:
                assert ("a@b" in answer or "secret" in answer) is not is_masked, answer
                assert ("***" in answer) is is_masked
                assert "id" in answer
            for query in (
                {"text": "a@b"},
                {"key": "secret"},
                {"text": "secret"},
                {"json": "customer.email == 'a@b'"},
                {"json": "starts_with(customer.email, 'a')"},
            ):
                async with visitor.follow(path_of(topic, "search", **query)) as following:
                    messages = [message async for name, message in following if name == "message"]
                assert messages[-1]["found"] == (0 if is_masked else 1), query
            shown = await visitor.get(path_of(topic, "records", offset=0, json="customer.email == '***'"))
            assert len(shown.json["rows"]) == (1 if is_masked else 0)
            asked = {"to_topic": "open"}
            resent = await visitor.ask("POST", f"/api/v1/topics/{topic}/partitions/0/records/0/resend", asked)
            assert resent.status == (403 if is_masked else 200)
