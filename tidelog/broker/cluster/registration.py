"""Whether a broker that starts may take the place of the one that the catalog knows by its id.

Owns the check, and what its refusal says. A data folder keeps its own id, and the incarnations under which a
broker was started with it. Another id is another disk; a folder that does not know the incarnation that
registered last is an older copy. Either may lack acknowledged records, so an operator has to accept it.

Invariant: a word of an operator names the incarnation that is lost, so it holds once.

Pure. Source: KIP-858 (directory ids), KIP-903 (an older disk).
"""

from collections.abc import Collection
from uuid import UUID

from tidelog.broker.cluster.catalog import NO_ID, BrokerRegistered, BrokerRegistration, Catalog
from tidelog.broker.cluster.store import StoreError


def replica_epoch_of(incarnation: UUID) -> int:
    """The number that names a start of a broker in its requests as a follower (KIP-903): 63 bits."""
    return incarnation.int & (1 << 63) - 1


def registering(
    catalog: Catalog, broker: BrokerRegistration, known_incarnations: Collection[UUID], lost: UUID | None
) -> BrokerRegistered:
    """The delta that registers a broker.

    `known_incarnations` are those that its folder knows, `lost` the incarnation whose records an operator
    gave up. Raises StoreError where the folder is not the one of before.
    """
    before = catalog.brokers.get(broker.node_id)
    # Without an incarnation no other broker used the store, and the folder had the catalog itself.
    if before is not None and before.incarnation not in (NO_ID, lost, broker.incarnation):
        if before.directory_id != broker.directory_id:
            raise StoreError(_refusal(before, "in another data folder"))
        if before.incarnation not in known_incarnations:
            raise StoreError(_refusal(before, "after this copy of its data folder was made"))
    return BrokerRegistered(broker)


def accepts_loss(catalog: Catalog, node_id: int, lost: UUID | None) -> bool:
    """Whether the operator's word is about the broker that is registered now."""
    before = catalog.brokers.get(node_id)
    return before is not None and lost is not None and before.incarnation == lost


def _refusal(before: BrokerRegistration, how: str) -> str:
    return (
        f"broker {before.node_id} was last started {how}; this one may lack records that were acknowledged. "
        "Put that folder back in data.dir. If it is lost, start with broker.lost.incarnation="
        f"{before.incarnation.hex}: the records that only it had are given up"
    )
