"""A broker's session in etcd: a key with a lease that is kept alive.

Owns the lease and until when it surely holds. Invariants:
- `valid_until_ms` counts from before the keepalive was sent, so no other broker sees the session as ended
  before this broker knows that it may be;
- a lease that ended is not revived. The session begins again with a new lease, unless another incarnation of
  this broker has taken its place. A start replaces the session of a process that has certainly ended, with a
  new lease: the old lease does not matter;
- requests may be repeated, and arrive late. So etcd chooses the id of each lease: a grant that arrives again
  makes a lease that ends unused, and does not revive one that has ended with its key.

Event loop only.
"""

import asyncio
import math
import time
from typing import Final
from uuid import UUID

import structlog

from tidelog.broker.cluster import etcd_layout as layout
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.etcd_layout import Layout, value_of
from tidelog.broker.cluster.store import BrokerSession, SessionHeld, StoreError
from tidelog.broker.tasks import kept

logger = structlog.get_logger(__name__)
_KEEPALIVES: Final = 4
"""How many are sent within the time that a lease holds."""


def _now_ms() -> float:
    return time.monotonic() * 1000


class EtcdSession:
    """Begins, keeps alive and ends a broker's session: at most one at a time."""

    def __init__(self, client: EtcdClient, keys: Layout, timeout_ms: int) -> None:
        self.valid_until_ms = -math.inf
        self.revision = 0
        """The catalog's revision when the session began, or began again."""
        self._client = client
        self._layout = keys
        self._timeout_ms = timeout_ms
        self._lease = 0
        self._task: asyncio.Task[None] | None = None

    async def begin(self, session: BrokerSession, ended: UUID | None = None) -> None:
        """Raises SessionHeld, StoreError."""
        await self._open(session, ended)
        self._task = asyncio.get_running_loop().create_task(kept(self._keep, session))

    async def end(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        self.valid_until_ms = -math.inf
        try:
            await self._client.call("/v3/lease/revoke", {"ID": str(self._lease)})
        except StoreError as error:
            advice = "nothing to do: it ends by itself after broker.session.timeout.ms"
            logger.warning("broker_session_not_ended", error=str(error), advice=advice)

    async def _open(self, session: BrokerSession, ended: UUID | None = None) -> None:
        began_ms = _now_ms()
        seconds = math.ceil(self._timeout_ms / 1000)
        granted = await self._client.call("/v3/lease/grant", {"TTL": str(seconds)})
        lease = int(granted["ID"])
        await self._put(session, lease, ended)
        self._lease = lease
        self.valid_until_ms = began_ms + int(granted["TTL"]) * 1000

    async def _put(self, session: BrokerSession, lease: int, ended: UUID | None) -> None:
        name, value = self._layout.session(session.node_id), session.incarnation.hex.encode()
        replaced = (value, ended.hex.encode()) if ended else (value,)
        changed_at = 0
        while True:
            answer = await self._client.call(
                "/v3/kv/txn",
                {
                    "compare": [layout.unchanged(name, changed_at)],
                    "success": [layout.put(name, value, lease), layout.get(self._layout.head)],
                    "failure": [layout.get(name), layout.get(self._layout.head)],
                },
            )
            head = layout.head_of(layout.found(answer, 1))
            self.revision = 0 if head is None else head.revision
            if answer.get("succeeded"):
                return
            entries = layout.found(answer, 0)
            if entries and value_of(entries[0]) not in replaced:
                await self._client.call("/v3/lease/revoke", {"ID": str(lease)})
                raise SessionHeld(
                    f"another broker with node.id {session.node_id} has a session in the cluster's store;"
                    f" stop it, set another node.id, or wait {self._timeout_ms} ms if it was killed"
                )
            if entries and int(entries[0].get("lease", 0)) == lease:
                return  # The first time it was sent it got no answer.
            changed_at = int(entries[0]["mod_revision"]) if entries else 0

    async def _keep(self, session: BrokerSession) -> None:
        while True:
            await asyncio.sleep(self._timeout_ms / _KEEPALIVES / 1000)
            try:
                await self._prolong(session)
            except StoreError as error:
                logger.warning(
                    "broker_session_not_kept",
                    error=str(error),
                    advice="check that etcd answers; until then this broker may be fenced",
                )

    async def _prolong(self, session: BrokerSession) -> None:
        sent_ms = _now_ms()
        timeout_s = self._timeout_ms / _KEEPALIVES / 1000
        answer = await self._client.call("/v3/lease/keepalive", {"ID": str(self._lease)}, timeout_s=timeout_s)
        seconds = int(answer["result"].get("TTL", 0))
        if seconds:
            self.valid_until_ms = sent_ms + seconds * 1000
        else:
            await self._open(session)
            logger.warning("broker_session_begun_again", node_id=session.node_id, advice="nothing to do")
