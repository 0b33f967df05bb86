"""Fills a member of etcd with revisions of keys that are not the brokers', which a compaction removes."""

import asyncio
import math
from base64 import b64encode
from itertools import count

from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.etcd_layout import key

QUOTA_BYTES = 32 << 20
_VALUE_BYTES = 8 << 10
_KEYS_AT_ONCE = 120


async def fill(client: EtcdClient, share: float = math.inf) -> None:
    """Write the same keys until more than this share of the quota is in use. Raises StoreError if etcd
    refuses them.

    etcd refuses by the size of its file. Few large transactions leave no gaps in it, so it is what is in use.
    """
    value = b64encode(bytes(_VALUE_BYTES)).decode()
    for number in count(1):
        keys = [key(f"filler/{each}") for each in range(_KEYS_AT_ONCE)]
        puts = [{"requestPut": {"key": each, "value": value}} for each in keys]
        await client.call("/v3/kv/txn", {"success": puts})
        if await _in_use(client, number * _KEYS_AT_ONCE * _VALUE_BYTES) > share * QUOTA_BYTES:
            return


async def _in_use(client: EtcdClient, at_least_bytes: int) -> int:
    """In bytes, once what was written counts: etcd says what its last commit to the disk left."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (used := await _used(client)) < at_least_bytes:  # noqa: ASYNC110 (etcd does not say when)
            await asyncio.sleep(0.01)
    return used


async def _used(client: EtcdClient) -> int:
    return int((await client.status(client.endpoints[0]))["dbSizeInUse"])
