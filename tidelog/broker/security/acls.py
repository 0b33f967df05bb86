"""The ACLs of the cluster: created, found and deleted here only.

Owns how many there may be, and the authorizer, which follows them. Invariants: a change is durable when it
returns, and each later request is decided by it; an ACL that exists is created again without effect.

On the event loop. Source: Kafka's AclControlManager.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from tidelog.broker.cluster.catalog import AclsChanged, Catalog, Change
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.security.authorizer import Authorizer
from tidelog.protocol.acls import Acl
from tidelog.protocol.errors import ApiError, ErrorCode

logger = structlog.get_logger(__name__)
MAX_ACLS: Final = 100_000
"""About 100 MB."""
_CHANGED_AT_ONCE: Final = 500
"""ACLs of one commit: the loop takes them over in one step of about a millisecond."""


class Acls:
    """All ACLs of one cluster. `authorizer` is None if none is configured."""

    def __init__(self, cluster: Cluster, authorizer: Authorizer | None) -> None:
        self.authorizer = authorizer
        self._cluster = cluster
        self._followers: list[Callable[[], None]] = []
        cluster.follow(self._take_over)

    def follow(self, follower: Callable[[], None]) -> None:
        """Call after each change of the ACLs."""
        self._followers.append(follower)

    @property
    def all(self) -> Sequence[Acl]:
        """All that exist now, oldest first."""
        return list(self._cluster.catalog.acls)

    def exists(self, acl: Acl) -> bool:
        return acl in self._cluster.catalog.acls

    async def catch_up(self) -> None:
        """`all` has what any broker created before this call. Raises ApiError."""
        await self._cluster.catch_up(AclsChanged())

    async def create(self, acls: Sequence[Acl]) -> None:
        """Create those that do not exist. Raises ApiError; then some of them may have been created."""

        def plan(some: Sequence[Acl], catalog: Catalog) -> AclsChanged:
            added = tuple(acl for acl in some if acl not in catalog.acls)
            if len(catalog.acls) + len(added) > MAX_ACLS:
                raise ApiError(ErrorCode.POLICY_VIOLATION, f"there may be at most {MAX_ACLS} ACLs")
            return AclsChanged(added)

        await self._change([acl for acl in dict.fromkeys(acls) if not self.exists(acl)], plan)

    async def delete(self, acls: Sequence[Acl]) -> None:
        """Delete those that exist. Raises ApiError; then some of them may have been deleted."""

        def plan(some: Sequence[Acl], catalog: Catalog) -> AclsChanged:
            return AclsChanged((), tuple(acl for acl in some if acl in catalog.acls))

        await self._change(list(dict.fromkeys(acls)), plan)

    async def _change(
        self, acls: Sequence[Acl], plan: Callable[[Sequence[Acl], Catalog], AclsChanged]
    ) -> None:
        for first in range(0, len(acls), _CHANGED_AT_ONCE):
            some = acls[first : first + _CHANGED_AT_ONCE]
            changed = await self._cluster.change_as_asked(partial(plan, some))
            logger.info("acls_changed", added=len(changed.added), removed=len(changed.removed))

    def _take_over(self, change: Change) -> None:
        delta = change.delta
        if not isinstance(delta, AclsChanged):
            return
        if self.authorizer is not None:
            self.authorizer.change(delta.added, delta.removed)
        for follower in self._followers:
            follower()
