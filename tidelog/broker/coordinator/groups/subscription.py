"""The topics that the members of a group read, as far as their metadata can be decoded.

Owns the decoding of ConsumerProtocolSubscription. Invariant: if metadata cannot be decoded, the topics are
unknown, never empty. Pure. Source: ConsumerProtocolSubscription.json, versions 0 to 3.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE, Group
from tidelog.protocol.codecs import Codec
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import message_of
from tidelog.protocol.messages.group_records import ConsumerSubscription

_MAX_TOPICS: Final = 100_000
_CODEC: Final = Codec(message_of(ConsumerSubscription), 0, _MAX_TOPICS)


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics of all members; None if these are not consumers, or the metadata of one is unreadable."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            # Topics come first in every version.
            topics.update(_CODEC.decode(member.metadata(group.protocol)[2:], whole=False).topics)
        except ProtocolError:
            return None
    return frozenset(topics)
