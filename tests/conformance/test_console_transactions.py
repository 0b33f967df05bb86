"""The console's transactions over a real broker: open, prepared, hanging, what they hold back, their end."""

import asyncio
from typing import Any
from urllib.parse import urlencode

from tests.conformance.conftest import RunningBroker, broker_with
from tests.conformance.console_site import Answer, Visitor
from tests.conformance.raw import NOW_MS, connected
from tests.conformance.test_cli_transactions import begun
from tests.waiting import DEADLINE_SECONDS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import ProduceRequest, encode_produce_request
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

broker = broker_with(
    transaction_two_phase_commit_enable=True, transaction_two_phase_commit_allowed_ids=("prepared*",)
)
_VERSION = 12
"""Of Produce: it adds the partition to the transaction."""


def transactional_batch(producer_id: int, producer_epoch: int) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, b"v")
    named = {"producer_id": producer_id, "producer_epoch": producer_epoch}
    return bytes(builder.build(**named, base_sequence=0, is_transactional=True))


async def opened(
    broker: RunningBroker, name: str, *, topic: str = "", is_prepared: bool = False
) -> tuple[int, int]:
    """A transaction with one record in a topic, by default that of its name, whose producer is gone; its
    producer id and epoch."""
    topic = topic or name
    async with connected(broker.broker.port) as client:
        await client.create(topic)
        given = await begun(client, name, enable2_pc=is_prepared)
        sent = transactional_batch(given.producer_id, given.producer_epoch)
        request = ProduceRequest(name, -1, 30_000, [(topic, [(0, sent)])])
        await client.send(ApiKey.PRODUCE, _VERSION, encode_produce_request(_VERSION, request))
        assert (await client.receive_result()).error_code == ErrorCode.NONE
        return given.producer_id, given.producer_epoch


async def transaction(visitor: Visitor, name: str) -> dict[str, Any]:
    answer = await visitor.get(f"/api/v1/transaction?{urlencode({'transactional_id': name})}")
    assert answer.status == 200, answer.text
    return dict(answer.json)


async def held_back(visitor: Visitor, topic: str) -> dict[str, Any] | None:
    answer = await visitor.get("/api/v1/transactions/held-back?limit=500")
    assert answer.status == 200, answer.text
    return next((row for row in answer.json["rows"] if row["topic"] == topic), None)


async def end(visitor: Visitor, verb: str, name: str, **more: int) -> Answer:
    return await visitor.ask("POST", f"/api/v1/transaction/{verb}", {"transactional_id": name, **more})


async def ended(visitor: Visitor, name: str) -> str:
    """The state of its transaction once that has ended: the markers are written after the answer."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (found := await transaction(visitor, name))["condition"] != "none":  # noqa: ASYNC110 (the broker's to signal)
            await asyncio.sleep(0.01)
    return str(found["state"])


async def test_an_open_transaction_shows_what_it_holds_back_and_is_aborted_by_hand(
    broker: RunningBroker, visitor: Visitor
) -> None:
    producer_id, epoch = await opened(broker, "abandoned")
    found = await transaction(visitor, "abandoned")
    assert (found["condition"], found["state"]) == ("ongoing", "Ongoing")
    assert (found["producer_id"], found["producer_epoch"]) == (producer_id, epoch)
    assert found["partitions"] == [{"topic": "abandoned", "partition": 0}]
    assert (found["timeout_ms"], found["age_ms"] >= 0) == (600_000, True)
    row = await held_back(visitor, "abandoned")
    assert row is not None
    assert (row["last_stable_offset"], row["high_watermark"], row["records_held_back"]) == (0, 1, 1)
    assert (row["producer_id"], row["transactional_id"], row["is_hanging"]) == (
        producer_id,
        "abandoned",
        False,
    )
    assert (await end(visitor, "abort", "abandoned")).status == 200
    # Empty where its markers were written while the broker waited for them, before it answered.
    assert await ended(visitor, "abandoned") in ("Empty", "CompleteAbort")
    assert await held_back(visitor, "abandoned") is None
    again = await end(visitor, "abort", "abandoned")
    assert (again.status, again.json["code"]) == (409, "INVALID_TXN_STATE")


async def test_a_transaction_that_is_not_prepared_is_not_committed_by_hand(
    broker: RunningBroker, visitor: Visitor
) -> None:
    producer_id, epoch = await opened(broker, "unprepared")
    refused = await end(visitor, "commit", "unprepared", producer_id=producer_id, producer_epoch=epoch)
    assert (refused.status, refused.json["code"]) == (409, "INVALID_TXN_STATE")
    assert "has not enabled two-phase commit" in refused.json["message"]
    assert (await transaction(visitor, "unprepared"))["condition"] == "ongoing"


async def test_a_prepared_transaction_is_committed_by_hand_if_it_is_the_one_that_was_looked_at(
    broker: RunningBroker, visitor: Visitor
) -> None:
    producer_id, epoch = await opened(broker, "prepared", is_prepared=True)
    found = await transaction(visitor, "prepared")
    assert (found["condition"], found["timeout_ms"]) == ("prepared", None)
    other = await end(visitor, "commit", "prepared", producer_id=producer_id + 1, producer_epoch=epoch)
    assert (other.status, other.json["code"]) == (409, "INVALID_TXN_STATE")
    assert (await transaction(visitor, "prepared"))["condition"] == "prepared"
    done = await end(visitor, "commit", "prepared", producer_id=producer_id, producer_epoch=epoch)
    assert done.status == 200, done.text
    assert await ended(visitor, "prepared") == "CompleteCommit"
    assert await held_back(visitor, "prepared") is None


async def test_a_transaction_that_no_coordinator_knows_hangs_and_is_aborted_on_its_partition(
    broker: RunningBroker, visitor: Visitor
) -> None:
    async with connected(broker.broker.port) as client:
        await client.create("hung")
        producer_id = await client.producer_id()
    replica = broker.broker.services.replica("hung", 0)

    async def hang() -> None:
        # No client can: the coordinator of this broker must know the partition before its first batch.
        replica.append_as_leader(transactional_batch(producer_id, 3), NOW_MS, permit=lambda _: None)
        await replica.flushed()

    broker.run(hang())
    row = await held_back(visitor, "hung")
    assert row is not None
    shown = row["producer_id"], row["producer_epoch"], row["transactional_id"], row["is_hanging"]
    assert shown == (producer_id, 3, None, True)
    path, place = "/api/v1/transactions/held-back/abort", {"topic": "hung", "partition": 0}
    for epoch, status in ((2, 409), (3, 200), (3, 409)):
        answer = await visitor.ask(
            "POST", path, {**place, "producer_id": producer_id, "producer_epoch": epoch}
        )
        assert answer.status == status, answer.text
    assert await held_back(visitor, "hung") is None


async def test_transactions_are_listed_with_the_longest_first(
    broker: RunningBroker, visitor: Visitor
) -> None:
    for name in ("long-1", "long-2"):
        await opened(broker, name)
    answer = await visitor.get("/api/v1/transactions?search=long-")
    rows = answer.json["rows"]
    assert {row["transactional_id"] for row in rows} == {"long-1", "long-2"}
    assert rows[0]["start_ms"] <= rows[1]["start_ms"]
    await end(visitor, "abort", "long-1")
    await ended(visitor, "long-1")
    assert (await visitor.get("/api/v1/transactions?search=long-")).json["total"] == 1
    assert (await visitor.get("/api/v1/transactions?search=long-&all=true")).json["total"] == 2
    missing = await visitor.get("/api/v1/transaction?transactional_id=nobody")
    assert (missing.status, missing.json["code"]) == (404, "TRANSACTIONAL_ID_NOT_FOUND")
