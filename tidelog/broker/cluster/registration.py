"""Whether a starting broker may use the id of a registered one, and whether a broker may be removed from the
catalog.

Owns both checks, and the texts of their refusals. A data folder keeps its own id, and the incarnations under
which a broker was started with it. Another id means another disk; a folder without the incarnation that
registered last is an older copy. Either may lack acknowledged records: the broker leaves every in-sync and
eligible set before it registers again. If no other broker is in such a set, an operator has to accept the
loss.

Invariants: an operator accepts the loss of one named incarnation, so the acceptance applies once; only a
broker without a replica is removed, so no partition names an unknown broker.

Pure. Source: KIP-631 (UnregisterBroker), KIP-858 (directory ids), KIP-903 (an older disk).
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from tidelog.broker.cluster.catalog import (
    NO_ID,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    Catalog,
)
from tidelog.broker.cluster.store import StoreError
from tidelog.protocol.errors import ApiError, ErrorCode

_NAMED: Final = 5
"""How many partitions a message names."""


def replica_epoch_of(incarnation: UUID) -> int:
    """The number that names a start of a broker in its requests as a follower (KIP-903): 63 bits."""
    return incarnation.int & (1 << 63) - 1


def registering(
    catalog: Catalog, broker: BrokerRegistration, known_incarnations: Collection[UUID], lost: UUID | None
) -> BrokerRegistered:
    """The delta that registers a broker.

    `known_incarnations` are those that its folder knows, `lost` the incarnation whose records an operator
    gave up. Raises StoreError if the folder is another one, and only this broker had some of its records.
    """
    before = catalog.brokers.get(broker.node_id)
    if (
        before is not None
        and before.incarnation != lost
        and is_other_folder(catalog, broker, known_incarnations)
        and (alone := _only_copies(catalog, broker.node_id))
    ):
        is_copy = before.directory_id == broker.directory_id
        how = "after this copy of its data folder was made" if is_copy else "in another data folder"
        raise StoreError(_refusal(before, how, alone))
    return BrokerRegistered(broker)


def is_other_folder(
    catalog: Catalog, broker: BrokerRegistration, known_incarnations: Collection[UUID]
) -> bool:
    """Whether the folder may lack what the broker's last start had."""
    before = catalog.brokers.get(broker.node_id)
    # Without an incarnation no other broker used the store, and the folder had the catalog itself.
    if before is None or before.incarnation in (NO_ID, broker.incarnation):
        return False
    return before.directory_id != broker.directory_id or before.incarnation not in known_incarnations


def _only_copies(catalog: Catalog, node_id: int) -> list[str]:
    """The partitions that a broker alone may lead."""
    return [
        f"{topic.name}-{index}"
        for topic in catalog.topics()
        for index, assigned in enumerate(topic.partitions)
        if node_id in assigned.replicas and not {*assigned.isr, *assigned.elr} - {node_id}
    ]


def accepts_loss(catalog: Catalog, node_id: int, lost: UUID | None) -> bool:
    """Whether the operator accepts the loss of the incarnation that is registered now."""
    before = catalog.brokers.get(node_id)
    return before is not None and lost is not None and before.incarnation == lost


def _refusal(before: BrokerRegistration, how: str, alone: list[str]) -> str:
    return (
        f"broker {before.node_id} was last started {how}; this one may lack records that were acknowledged, "
        f"and no other broker has those of {_some(alone)}. Put that folder back in data.dir. If it is lost, "
        f"start with broker.lost.incarnation={before.incarnation.hex}: these records are given up"
    )


def unregistering(catalog: Catalog, node_id: int) -> BrokerUnregistered:
    """The delta after which the cluster has no such broker.

    Raises ApiError: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST where it lives, or has replicas.
    """
    broker = catalog.brokers.get(node_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"the cluster has no broker {node_id}")
    if not broker.is_fenced:
        raise still_lives()
    held = [
        f"{topic.name}-{index}"
        for topic in catalog.topics()
        for index, assigned in enumerate(topic.partitions)
        if node_id in assigned.replicas
    ]
    if last := _only_copies(catalog, node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"it has the last replica of {_some(last)}: start it again and move them by "
            "`tidelog reassign`, or delete these topics if their records are lost",
        )
    if held:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"it has replicas of {_some(held)}: move them to other brokers by "
            "`tidelog reassign`, then try again",
        )
    return BrokerUnregistered(node_id)


def still_lives() -> ApiError:
    """Why a broker is not forgotten yet."""
    expected = "expected a stopped broker, but it is live: stop it first"
    return ApiError(ErrorCode.INVALID_REQUEST, expected)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
