"""A broker that is killed in the middle of transactions: each has one outcome, and its offsets the same."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faults.process import BrokerProcess
from tests.conformance.raw import RawClient, connected
from tests.conformance.test_transactions import read
from tests.conformance.test_wire_transactions import send_batch
from tests.waiting import DEADLINE_SECONDS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
KILLS = ("before the end", "with the end")
Named = dict[str, Any]


async def asked(client: RawClient, api_key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
    """The answer once it has no retriable error."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (answer := await client.ask(api_key, version, values)).error_code in RETRIED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer


async def write(client: RawClient, named: Named, offset: int) -> None:
    """One record and one offset in a transaction."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            await send_batch(client, named, 0)
            code = (await client.receive_result()).error_code
            if code not in RETRIED:
                break
            await asyncio.sleep(0.01)
    assert code == ErrorCode.NONE
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
    values = {**named, "group_id": "g", "topics": topics}
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            answer = await client.ask(ApiKey.TXN_OFFSET_COMMIT, 5, values)
            code = answer.topics[0].partitions[0].error_code
            if code not in RETRIED:
                break
            await asyncio.sleep(0.01)
    assert code == ErrorCode.NONE


async def committed(client: RawClient) -> int:
    group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            answer = await client.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [group], "require_stable": True})
            (of_group,) = answer.groups
            if of_group.error_code == ErrorCode.NONE:
                (part,) = of_group.topics[0].partitions
                if part.error_code == ErrorCode.NONE:
                    return int(part.committed_offset)
                assert part.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            else:
                assert of_group.error_code in RETRIED
            await asyncio.sleep(0.01)


async def test_a_transaction_has_the_outcome_of_its_answer_whenever_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path)
    wanted: list[bytes] = []
    async with broker:
        async with connected(broker.port) as client:
            await client.create()
            await client.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "x", "key_type": 1})
            wish = {"transactional_id": "x", "transaction_timeout_ms": 600_000}
            given = await asked(client, ApiKey.INIT_PRODUCER_ID, 5, wish)
        named: Named = {"transactional_id": "x", "producer_id": given.producer_id, "producer_epoch": 0}
        for number, kill in enumerate(KILLS):
            for is_commit in (False, True):
                ending = {**named, "committed": is_commit}
                async with connected(broker.port) as client:
                    await write(client, named, number)
                    if is_commit and kill == "with the end":
                        await client.send_request(ApiKey.END_TXN, 5, ending)
                    elif not is_commit or kill == "after the end":
                        await asked(client, ApiKey.END_TXN, 5, ending)
                    if is_commit:
                        await broker.kill_9()
                        wanted.append(f"{named['producer_epoch']}-0".encode())
                if is_commit:
                    await broker.start()
                async with connected(broker.port) as client:
                    # The same request again, whether it was answered, or lost, or never sent.
                    ended = await asked(client, ApiKey.END_TXN, 5, ending)
                    assert ended.producer_epoch == named["producer_epoch"] + 1
                    named["producer_epoch"] = ended.producer_epoch
                    assert await committed(client) == (number if is_commit else number - 1)
        assert await asyncio.to_thread(read, f"127.0.0.1:{broker.port}", "t") == wanted
