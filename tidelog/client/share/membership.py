"""A consumer's membership in a share group: which request comes next.

Owns: how its requests differ from those of a member of a consumer group (`groups.consumer_membership`): it
names no partitions, because partitions are shared, and has no name by which it may restart. Its id is a
Kafka UUID, because brokers know a share session by it.

Pure. Source: KIP-932, Kafka's ShareMembershipManager.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from uuid import UUID

from tidelog.client.groups.consumer_membership import JOINING, LEAVING, ConsumerMembership
from tidelog.protocol import message_types as types
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey

_FIRST_INTERVAL_MS = 5_000


class ShareMembership(ConsumerMembership):
    """`member_id` is new and unique."""

    api_key = ApiKey.SHARE_GROUP_HEARTBEAT

    def __init__(self, group_id: str, member_id: UUID, *, rack_id: str | None) -> None:
        super().__init__(
            group_id,
            urlsafe_b64encode(member_id.bytes).decode().rstrip("="),
            group_instance_id=None,
            rebalance_timeout_ms=-1,
            heartbeat_interval_ms=_FIRST_INTERVAL_MS,
            assignor=None,
        )
        self._rack_id = rack_id

    def heartbeat_values(self) -> Mapping[str, object]:
        values: DictOf[types.ShareGroupHeartbeatRequest] = {
            "group_id": self.group_id,
            "member_id": self.identity.member_id,
            "member_epoch": max(self.identity.generation, JOINING),
            "rack_id": self._rack_id,
            "subscribed_topic_names": sorted(self.topics or ()),
        }
        return values

    def leave_values(self) -> Mapping[str, object]:
        values: DictOf[types.ShareGroupHeartbeatRequest] = {
            "group_id": self.group_id,
            "member_id": self.identity.member_id,
            "member_epoch": LEAVING,
        }
        return values
