"""The brokers that a client may connect to, and the address that each advertises for the client's listener.

Owns this choice for all answers that name brokers. Invariants: an answer names a broker only by a listener of
the name that the request came in by (KIP-103); this broker has the address to which the client connected. A
broker that advertises no host for a listener is on the same host as this one.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.services import Services


class Reachable(NamedTuple):
    """A broker as answers name it."""

    node_id: int
    listener: Listener
    rack: str | None
    is_fenced: bool


def reachable(
    services: Services, context: RequestContext, *, with_fenced: bool = False
) -> Iterator[Reachable]:
    """Each live broker that has the listener of the request."""
    for node_id, broker in services.catalog.brokers.items():
        listener, is_fenced = address_of(services, context, node_id), not services.is_live(node_id)
        if listener is not None and (with_fenced or not is_fenced):
            yield Reachable(node_id, listener, broker.rack, is_fenced)


def address_of(services: Services, context: RequestContext, node_id: int) -> Listener | None:
    """The address of a broker; None if it is unknown, or has no such listener."""
    own = context.connection.listener
    if node_id == services.node_id:
        return own
    broker = services.catalog.brokers.get(node_id)
    for listener in () if broker is None else broker.listeners:
        if listener.name == own.name:
            return listener if listener.host else listener._replace(host=own.host)
    return None
