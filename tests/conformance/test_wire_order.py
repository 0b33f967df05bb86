"""What changes or appends something and what reads it, sent together on one connection: `wire_order.txt`."""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.raw import NOW_MS, RawClient, batch, connected
from tests.message_texts import KEYS, answer_text, request_values
from tests.scripts import Case, cases
from tests.unit.broker.handlers.conftest import make_batch
from tests.unit.broker.handlers.transactional import transactional_batch
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.served_apis import SERVED_APIS, Kind
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey, decode_response

TIMES = 20
IN_FLIGHT = 5
REFUSED = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""They change nothing as long as there is no listener with SASL."""
OF_CLUSTERS = {ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ELECT_LEADERS, ApiKey.UNREGISTER_BROKER}
"""They change nothing at a broker alone (`several`)."""
OF_ACLS = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
"""They change nothing without an authorizer. With one, each later request sees them (`test_acls`)."""
UNSEEN = {ApiKey.FIND_COORDINATOR, ApiKey.HEARTBEAT}
"""What they change no request reads: a topic is there the second time, and a session ends later."""
_SCRIPT = Path(__file__).with_name("wire_order.txt")
_DIFFERENT = re.compile(
    r"(?<=port: )\d+|(?<=producer_id: )\d+|(?<=cluster_id: )[\w-]+|(?<=time_ms: )\d{13}"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)


def _requests(case: Case) -> Iterator[tuple[ApiKey, int, str]]:
    """What is sent together."""
    lines = case.lines[case.lines.index("together") + 1 :]
    for name, version, text in (line.split(" ", 2) for line in lines if line[:1].isupper()):
        yield KEYS[name], int(version), text


class Site:
    """One repetition of a case."""

    def __init__(self, client: RawClient, case: Case, number: int) -> None:
        self._client, self._case, self._number = client, case, number
        self._given: dict[str, Any] = {
            "records": make_batch(b"v"),
            "later": make_batch(b"v", timestamp_ms=NOW_MS + 5),
        }
        self._seen: dict[str, str] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The answer to the next request that was sent."""

        async def answered(*_: str) -> str:
            key, version, body = await self._client.receive_body()
            text = answer_text(ApiKey(key), decode_response(key, version, body))
            text = _DIFFERENT.sub(self._short, text)
            text = re.sub(rf"(?<=[a-z])-{self._number}\b", "-%n", text)
            return text.replace("PrepareCommit", "CompleteCommit")

        return answered

    def _short(self, found: re.Match[str]) -> str:
        return self._seen.setdefault(found[0], f"<{len(self._seen) + 1}>")

    def _of_this(self, text: str) -> str:
        return text.replace("%n", str(self._number))

    async def together(self) -> None:
        topic = await self._client.ask(ApiKey.METADATA, 12, {"topics": [{"name": "t"}]})
        self._given["topic_id"] = topic.topics[0].topic_id
        await self._client.send_together(
            (key, version, request_values(key, self._of_this(text), self._given))
            for key, version, text in _requests(self._case)
        )

    async def create(self, name: str) -> None:
        await self._client.create(self._of_this(name))

    async def begin(self, name: str) -> None:
        producer = await begun(self._client, self._of_this(name))
        self._given |= {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


async def begun(client: RawClient, name: str) -> Producer:
    await client.ask(ApiKey.FIND_COORDINATOR, 3, {"key": name, "key_type": 1})
    wanted = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    given = await client.ask(ApiKey.INIT_PRODUCER_ID, 5, wanted)
    assert given.error_code == ErrorCode.NONE
    return Producer(given.producer_id, given.producer_epoch)


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RawClient]:
    # A slow disk may take longer than the defaults.
    monkeypatch.setattr("tidelog.broker.handlers.fetch.FLUSH_PATIENCE_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(
        "tidelog.broker.coordinator.transaction_coordinator.ENDING_WAIT_SECONDS", DEADLINE_SECONDS
    )
    config = BrokerConfig(
        data_dir=tmp_path,
        port=0,
        http_port=-1,
        auto_create_topics_enable=True,
        group_initial_rebalance_delay_ms=0,
        offsets_topic_num_partitions=1,
    )
    async with await Broker.start(config) as broker, connected(broker.port) as connection:
        await connection.create()
        await connection.produce(batch("x", -1, -1))
        await connection.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "g"})
        await connection.producer_id()  # Answers leave out an id that is 0.
        yield connection


@cases(_SCRIPT)
async def test_each_reader_behind_a_change_sees_it_and_nothing_that_comes_later(
    client: RawClient, case: Case, rewrite: bool
) -> None:
    for number in range(1 if rewrite else TIMES):
        await case.play(Site(client, case, number), rewrite)


def test_every_api_that_changes_something_later_has_a_reader_behind_it() -> None:
    changes = {key for key, served in SERVED_APIS.items() if served.kind is Kind.CHANGE}
    (mark,) = cases(_SCRIPT).args[1:]
    followed = {change for case in mark for (change, *_), _ in pairwise(_requests(case))}
    assert changes - followed == REFUSED | OF_CLUSTERS | OF_ACLS | UNSEEN


async def test_batches_in_flight_are_stored_in_order_though_the_first_adds_its_partition(
    client: RawClient,
) -> None:
    """Transaction version 2: Produce 12 adds the partition, EndTxn 5 gives the next epoch."""
    await client.create("u")
    producer = await begun(client, "x")

    async def send(*sequences: int) -> None:
        for sequence in sequences:
            records = transactional_batch(producer, sequence)
            await client.send_batch(records, topic="u", transactional_id="x", version=12)

    for transaction in range(3):
        await send(*range(IN_FLIGHT))
        results = [await client.receive_result() for _ in range(IN_FLIGHT)]
        first = transaction * (IN_FLIGHT + 1)
        assert [(result.error_code, result.base_offset) for result in results] == [
            (ErrorCode.NONE, first + number) for number in range(IN_FLIGHT)
        ]
        named = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        ended = await client.ask(ApiKey.END_TXN, 5, {"transactional_id": "x", **named, "committed": True})
        assert (ended.error_code, ended.producer_epoch) == (ErrorCode.NONE, transaction + 1)
        producer = producer._replace(epoch=ended.producer_epoch)
        await send(1)
        assert (await client.receive_result()).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
