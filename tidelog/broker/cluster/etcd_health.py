"""How the members of etcd are: whether each answers, its alarms, its version, how full it is.

Owns what a member's own status means. Invariants: each member is asked itself, so one that is down is found
although requests go to others; a member that answers without saying more (to a user who may not ask) is well.

Event loop only. Source: etcd's rpc.proto (StatusResponse; etcd 3.6 added dbSizeQuota), etcd's metrics.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import structlog

from tidelog.broker.cluster.etcd_client import EtcdClient, EtcdUnavailable
from tidelog.broker.cluster.store import StoreError, StoreMember

logger = structlog.get_logger(__name__)
LOOK_SECONDS: Final = 5.0
_QUOTA: Final = "etcd_server_quota_backend_bytes "


class EtcdHealth:
    """Of the members that one client names. `run` keeps it up to date; `members` is empty before."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self.members: tuple[StoreMember, ...] = ()

    async def run(self) -> None:
        told: set[str] = set()
        while True:
            self.members = tuple(await asyncio.gather(*map(self._look, self._client.endpoints)))
            down = {each.url: each.problem for each in self.members if each.problem}
            for url in down.keys() - told:
                advice = "check that it runs; a member that lost its data has to be replaced"
                logger.warning("store_member_down", member=url, problem=down[url], advice=advice)
            told = set(down)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, url: str) -> StoreMember:
        try:
            status = await self._client.status(url)
        except EtcdUnavailable as error:
            return StoreMember(url, problem=str(error))
        except StoreError:
            return StoreMember(url)
        try:
            return _member(url, status, await self._quota(url, status))
        except (ValueError, KeyError, TypeError) as error:
            return StoreMember(url, problem=f"its status is not understood: {error!r}")

    async def _quota(self, url: str, status: Mapping[str, Any]) -> float:
        """In bytes; 0 if it is not known."""
        if "dbSizeQuota" in status:
            return float(status["dbSizeQuota"])
        try:
            metrics = await self._client.metrics(url)
        except StoreError:
            return 0
        lines = (line for line in metrics.splitlines() if line.startswith(_QUOTA))
        return float(next(lines, _QUOTA + "0").removeprefix(_QUOTA))


def _member(url: str, status: Mapping[str, Any], quota: float) -> StoreMember:
    """Raises ValueError, KeyError or TypeError for what is no status."""
    errors = [str(each).strip() for each in status.get("errors", ())]
    return StoreMember(
        url,
        problem="" if int(status.get("leader", 0)) else "it knows no leader",
        version=str(status["version"]),
        cluster_id=str(status["header"]["cluster_id"]),
        alarms=tuple(sorted({each.rpartition("alarm:")[2] for each in errors if "alarm:" in each})),
        used=int(status.get("dbSizeInUse", 0)) / quota if quota else 0,
    )
