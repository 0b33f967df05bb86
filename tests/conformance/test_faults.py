"""Faults ordered from a running broker: each does what its order says."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.conformance.raw import NOW_MS, RawClient, batch, connected
from tests.waiting import until
from tidelog import Admin, ConfigResource, ConfigResourceType, ShareConsumer
from tidelog import Producer as ClientProducer
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import ProduceRequest, encode_produce_request
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

STORED = ErrorCode.NONE


class Site:
    """A broker whose faults can be ordered, with the topic `t`."""

    def __init__(self, broker: Broker, http: aiohttp.ClientSession) -> None:
        self.broker = broker
        self.port = broker.port
        self.http = http
        self.url = f"http://127.0.0.1:{broker.http_port}/faults"

    async def ask(self, method: str, path: str = "", **values: Any) -> tuple[int, Any]:
        body = {"json": values} if values else {}
        async with self.http.request(method, self.url + path, **body) as answer:
            return answer.status, await answer.json()

    async def order(self, fault: str, **values: Any) -> dict[str, Any]:
        status, answer = await self.ask("POST", fault=fault, **values)
        assert status in (200, 201), answer
        assert isinstance(answer, dict)
        return answer

    async def hits(self) -> list[int]:
        """Of all orders, by number."""
        _, answer = await self.ask("GET")
        faults = sorted(answer["faults"] + answer["finished"], key=lambda fault: fault["id"])
        return [fault["hits"] for fault in faults]


async def start(folder: Path, *, enabled: bool = True) -> Broker:
    config = BrokerConfig(data_dir=folder, port=0, http_port=0, faults_enable=enabled)
    return await Broker.start(config)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    broker = await start(tmp_path / "data")
    async with aiohttp.ClientSession() as http:
        async with connected(broker.port) as client:
            await client.create()
        yield Site(broker, http)
    with capture_logs() as events:
        await broker.stop()
    cut_off = [event for event in events if event["event"] == "connections_cut_off"]
    assert cut_off == [], "a fault held the stop up"


@pytest.fixture
async def client(site: Site) -> AsyncIterator[RawClient]:
    async with connected(site.port) as connection:
        yield connection


async def is_closed(client: RawClient) -> bool:
    """The broker closes the connection and answers nothing more."""
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await client.receive()
    return True


async def log(site: Site) -> list[bytes]:
    async with connected(site.port) as reader:
        return await reader.log()


async def test_nothing_behind_a_lost_ack_arrives_on_its_connection(site: Site, client: RawClient) -> None:
    await site.order("drop")
    await client.send_batch(batch("A", -1, -1))
    await client.send_batch(batch("B", -1, -1))
    await until(lambda: site.broker.services.replica("t", 0).high_watermark >= 2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await client.receive()
    assert await log(site) == [b"A", b"B"]


async def test_answers_are_delayed(site: Site, client: RawClient) -> None:
    await site.order("delay", topic="t", delay_ms=300)
    started = time.monotonic()
    assert await client.produce(batch("A", -1, -1)) == (STORED, 0)
    assert time.monotonic() - started >= 0.3
    assert await client.produce(batch("B", -1, -1)) == (STORED, 1)
    assert await site.hits() == [1]


async def test_other_apis_can_be_hit_too(site: Site, client: RawClient) -> None:
    await client.produce(batch("A", -1, -1))
    await site.order("error", api="fetch", topic="t", error="NOT_LEADER_OR_FOLLOWER", when="before")
    assert (await client.fetch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await client.fetch()).error_code == STORED
    await site.order("error", api="init_producer_id", error=14, when="before")
    answer = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None})
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await site.order("cut", api="metadata", topic="t")
    await client.send_request(ApiKey.METADATA, 5, {"topics": [{"name": "t"}]})
    assert await is_closed(client)


async def test_locks_that_expire_give_their_records_to_another_member(site: Site) -> None:
    address = f"127.0.0.1:{site.port}"
    async with Admin(bootstrap_servers=address) as admin:
        group = ConfigResource(ConfigResourceType.GROUP, "g")
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    async with ClientProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait("t", b"1", partition=0)
    async with (
        ShareConsumer("t", group_id="g", bootstrap_servers=address, max_poll_records=1) as one,
        ShareConsumer("t", group_id="g", bootstrap_servers=address) as other,
    ):
        record = await one.getone()
        reading = asyncio.create_task(other.getone())
        await until(lambda: other.assignment())
        ended = await site.order("expire_locks", group_id="g", topic="t", partition=record.partition)
        assert ended["records"] == 1
        assert (await reading).delivery_count == 2
    status, answer = await site.ask("POST", fault="expire_locks", group_id="nobody", topic="t")
    assert (status, "no member of share group" in answer["error"]) == (400, True)


async def test_requests_behind_the_first_batch_of_a_transaction_wait_for_it_while_its_answer_is_delayed(
    site: Site, client: RawClient
) -> None:
    """Produce 12 adds its partition to the transaction before it appends."""
    await client.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "x", "key_type": 1})
    wanted = {"transactional_id": "x", "transaction_timeout_ms": 60_000}
    given = await client.ask(ApiKey.INIT_PRODUCER_ID, 5, wanted)
    named = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    await site.order("delay", delay_ms=1)
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, b"v")
    stored = builder.build(
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        is_transactional=True,
        base_sequence=0,
    )
    request = ProduceRequest("x", -1, 30_000, [("t", [(0, bytes(stored))])])
    await client.send(ApiKey.PRODUCE, 12, encode_produce_request(12, request))
    end = {"transactional_id": "x", **named, "committed": True}
    await client.send_together([(ApiKey.END_TXN, 5, end)])
    assert (await client.receive_result()).error_code == ErrorCode.NONE
    assert (await client.receive()).error_code == ErrorCode.NONE
    assert await site.hits() == [1]


async def test_a_lost_acknowledgement_of_a_share_group_is_sent_again_and_counts_once(site: Site) -> None:
    servers = f"127.0.0.1:{site.port}"
    group = ConfigResource(ConfigResourceType.GROUP, "workers")
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    async with ClientProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("t", b"job")
    await site.order("cut", api="share_acknowledge", when="before", count=2)
    await site.order("error", api="share_fetch", error="SHARE_SESSION_NOT_FOUND", when="before", count=1)
    async with ShareConsumer("t", group_id="workers", bootstrap_servers=servers) as consumer:
        record = await consumer.getone()
        assert record.value == b"job"
        record.accept()
        await consumer.commit()
    async with Admin(bootstrap_servers=servers) as admin:
        (offset,) = (await admin.groups.share_offsets("workers")).values()
    assert offset.lag == 0
    assert await site.hits() == [2, 1]
