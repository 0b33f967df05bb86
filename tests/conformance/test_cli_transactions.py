"""`tidelog transaction` against a real broker: what is prepared waits, and is ended by hand."""

import asyncio
from typing import Any
from urllib.request import urlopen

import pytest

from tests.conformance.commands import Type
from tests.conformance.conftest import RunningBroker, broker_with
from tests.conformance.raw import RawClient, connected
from tests.unit.broker.handlers.transactional import transactional_batch
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

broker = broker_with(
    transaction_two_phase_commit_enable=True,
    transaction_two_phase_commit_allowed_ids=("sink-*", "tidelog-sink.*"),
    transaction_abort_timed_out_transaction_cleanup_interval_ms=10,
)


async def begun(client: RawClient, name: str, **flags: bool) -> Any:
    await client.ask(ApiKey.FIND_COORDINATOR, 3, {"key": name, "key_type": 1})
    wanted = {"transactional_id": name, "transaction_timeout_ms": 600_000, **flags}
    return await client.ask(ApiKey.INIT_PRODUCER_ID, 6, wanted)


def prepared(broker: RunningBroker, name: str, *, is_prepared: bool = True) -> tuple[int, int]:
    """A transaction with one record whose producer went away; its producer id and epoch."""

    async def run() -> tuple[int, int]:
        async with connected(broker.broker.port) as client:
            await client.create_topic("t", 1)
            given = await begun(client, name, enable2_pc=is_prepared)
            records = transactional_batch(Producer(given.producer_id, given.producer_epoch))
            await client.send_batch(records, transactional_id=name, version=12)
            assert (await client.receive_result()).error_code == ErrorCode.NONE
            return given.producer_id, given.producer_epoch

    return asyncio.run(run())


def state(tidelog: Type, name: str) -> str:
    return tidelog("transaction", "describe", name)[1].split()[1]


def reached(tidelog: Type, name: str, wanted: str) -> None:
    wait_for(lambda: state(tidelog, name) == wanted, f"{name} to be {wanted}", DEADLINE_SECONDS)


@pytest.mark.parametrize(("verb", "wanted"), [("commit", "CompleteCommit"), ("abort", "CompleteAbort")])
def test_a_prepared_transaction_waits_and_is_ended_by_hand(
    broker: RunningBroker, tidelog: Type, verb: str, wanted: str
) -> None:
    name = f"sink-{verb}"
    producer_id, epoch = prepared(broker, name)
    code, shown, _ = tidelog("transaction", "list")
    assert code == 0
    (row,) = (line.split() for line in shown.splitlines() if line.startswith(name))
    assert row[1:4] == ["Ongoing", str(producer_id), str(epoch)]
    assert row[5] == "none"
    with urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=DEADLINE_SECONDS) as scraped:
        metrics = scraped.read().decode()
    assert 'tidelog_transactions{state="Ongoing"}' in metrics
    assert f'tidelog_prepared_transaction_age_seconds{{transactional_id="{name}"}}' in metrics
    code, shown, _ = tidelog("transaction", "describe", name)
    assert "no timeout" in shown
    assert [line.split() for line in shown.splitlines()[2:]] == [["TOPIC", "PARTITION"], ["t", "0"]]
    if verb == "commit":
        code, _, error = tidelog("transaction", "commit", name, "--producer-id", str(producer_id + 1))
        assert code == 1
        assert f"has producer {producer_id} epoch {epoch}" in error
        assert state(tidelog, name) == "Ongoing"
    assert tidelog("transaction", verb, name)[:2] == (
        0,
        f"{'committed' if verb == 'commit' else 'aborted'} {name}\n",
    )
    reached(tidelog, name, "Empty" if verb == "abort" else wanted)
    code, _, error = tidelog("transaction", verb, name)
    assert code == 1
    assert "it has no open transaction" in error


def test_the_transactions_of_a_spark_query_are_ended_together(broker: RunningBroker, tidelog: Type) -> None:
    for name in (
        "tidelog-sink.query.0.write.1",
        "tidelog-sink.query.1.write.2",
        "tidelog-sink.other.0.write.1",
    ):
        prepared(broker, name)
    # Before that, the broker of this process may log.
    assert tidelog("transaction", "settle", "query")[1].endswith("ended 2 transactions of query\n")
    # They are listed until their markers are written.
    wait_for(
        lambda: "tidelog-sink.query." not in tidelog("transaction", "list")[1], "their ends", DEADLINE_SECONDS
    )
    assert "tidelog-sink.other." in tidelog("transaction", "list")[1]
    assert tidelog("transaction", "settle", "query")[:2] == (0, "ended 0 transactions of query\n")
    assert tidelog("transaction", "settle", "other")[1].endswith("ended 1 transaction of other\n")


def test_what_is_not_prepared_is_not_committed_by_hand_but_may_be_aborted(
    broker: RunningBroker, tidelog: Type
) -> None:
    prepared(broker, "plain", is_prepared=False)
    code, _, error = tidelog("transaction", "commit", "plain")
    assert code == 1
    assert "is not prepared" in error
    assert tidelog("transaction", "abort", "plain")[:2] == (0, "aborted plain\n")


def test_an_unknown_id_is_named_and_not_made(broker: RunningBroker, tidelog: Type) -> None:
    prepared(broker, "sink-known")
    for verb in ("describe", "commit", "abort"):
        code, _, error = tidelog("transaction", verb, "unknown")
        assert code == 1
        assert "there is no transactional id 'unknown'" in error
    assert "unknown" not in tidelog("transaction", "list", "--all")[1]


def test_only_allowed_ids_may_prepare(broker: RunningBroker) -> None:
    async def code(name: str) -> int:
        async with connected(broker.broker.port) as client:
            return int((await begun(client, name, enable2_pc=True)).error_code)

    assert asyncio.run(code("other")) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert asyncio.run(code("sink-allowed")) == ErrorCode.NONE
