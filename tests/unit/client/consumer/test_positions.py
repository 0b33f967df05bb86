"""Positions that a group committed: a seek that comes during the lookup counts, whatever the lookup gives."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from tests.waiting import until
from tidelog.client import ClusterConfig, OffsetAndMetadata, TopicPartition
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.client.consumer.positions import CommittedPositions
from tidelog.protocol.errors import ErrorCode
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import broker_error

REFUSED = broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group 'g'")


@pytest.mark.parametrize("outcome", [REFUSED, OffsetAndMetadata(3)])
async def test_a_seek_during_the_lookup_keeps_its_position(outcome: Any) -> None:
    key = TopicPartition("t", 0)
    reader = PartitionReader(key, check_crc=True)
    changes: list[None] = []

    class Offsets:
        async def fetch(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
            assert list(keys) == [key]
            reader.seek(7)
            if isinstance(outcome, Exception):
                raise outcome
            return {key: outcome}

    positions = CommittedPositions(
        Cluster(ClusterConfig(), ASKED_APIS),
        Offsets(),  # type: ignore[arg-type]
        {key: reader},
        lambda reader: None,
        lambda: changes.append(None),
    )
    positions.wake()
    await until(lambda: bool(changes))
    await asyncio.sleep(0)
    assert (reader.position, reader.error) == (7, None)
