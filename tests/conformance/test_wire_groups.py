"""Members of groups on raw connections: the order of requests, and what is left when somebody goes away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.net.peers import Peer, request_frame
from tests.waiting import until
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.net.connection import TURN_SECONDS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

HOUR_MS = 3_600_000
GROUP_BYTES = 1_000_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = BrokerConfig(
        port=0,
        http_port=-1,
        data_dir=tmp_path,
        group_initial_rebalance_delay_ms=HOUR_MS,
        shutdown_timeout_ms=HOUR_MS,
    )
    async with await Broker.start(config) as running:
        yield running


def join_frame(correlation_id: int, metadata: bytes = b"", group_id: str = "g") -> bytes:
    values = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 2 * HOUR_MS,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    return request_frame(ApiKey.JOIN_GROUP, 3, values, correlation_id)


def parked(broker: Broker) -> int:
    return sum(len(shard.runtime._parked) for shard in broker.services.groups._shards._shards.values())


async def test_what_is_asked_behind_a_join_is_served_when_the_join_is_answered(broker: Broker) -> None:
    async with await Peer.connect(broker.port) as peer, await Peer.connect(broker.port) as other:
        peer.send(join_frame(1) + request_frame(ApiKey.LIST_GROUPS, 4, {}, 2))
        await until(lambda: parked(broker) == 1)
        (group,) = (await other.ask(ApiKey.LIST_GROUPS, 4)).groups
        assert group.group_state == "PreparingRebalance"
        # Its only member is taken out, which answers its join.
        (member,) = (await other.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g"]})).groups[0].members
        await other.ask(
            ApiKey.LEAVE_GROUP, 3, {"group_id": "g", "members": [{"member_id": member.member_id}]}
        )
        number, joined = await peer.answer(ApiKey.JOIN_GROUP, 3)
        assert (number, joined.error_code) == (1, ErrorCode.UNKNOWN_MEMBER_ID)
        assert (await peer.answer(ApiKey.LIST_GROUPS, 4))[0] == 2


async def test_a_stop_does_not_wait_for_joins_and_sends_them_to_look_for_the_coordinator(
    broker: Broker,
) -> None:
    async with await Peer.connect(broker.port) as peer:
        peer.send(join_frame(1))
        await until(lambda: parked(broker) == 1)
        stopping = asyncio.ensure_future(broker.stop())
        _, joined = await peer.answer(ApiKey.JOIN_GROUP, 3)
        assert joined.error_code == ErrorCode.NOT_COORDINATOR
        await stopping


@pytest.mark.parametrize("turn_seconds", [0.0, TURN_SECONDS])
async def test_a_connection_that_goes_away_leaves_nothing_parked_and_no_memory_held(
    broker: Broker, turn_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.broker.net.connection.TURN_SECONDS", turn_seconds)
    for number in range(10):
        async with await Peer.connect(broker.port) as peer:
            peer.send(join_frame(number, bytes(GROUP_BYTES), f"g{number}"))
            await until(lambda: parked(broker) == 1)
            (connection,) = broker._server._connections
            assert connection.held_bytes() > GROUP_BYTES
        await until(lambda: parked(broker) == 0 and not broker._server._connections)


async def test_a_join_that_is_sent_in_many_pieces_keeps_what_it_said(broker: Broker) -> None:
    """What the group keeps must not be a view of the buffer that the next request overwrites."""
    metadata = bytes(range(256)) * 200
    async with await Peer.connect(broker.port) as peer, await Peer.connect(broker.port) as other:
        frame = join_frame(1, metadata)
        for start in range(0, len(frame), 5_000):
            peer.send(frame[start : start + 5_000])
            await peer.writer.drain()
        await until(lambda: parked(broker) == 1)
        peer.send(request_frame(ApiKey.LIST_GROUPS, 4, {"states_filter": ["x" * 2_000] * 20}, 2))
        await other.ask(ApiKey.LIST_GROUPS, 4)
        held: Any = [
            member.protocols[0].metadata
            for shard in broker.services.groups._shards._shards.values()
            for group in shard.machine.groups.classic._groups.values()
            for member in group.members.values()
        ]
        assert held == [metadata]
