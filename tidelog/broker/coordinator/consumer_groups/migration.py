"""A group with members changes its protocol: what it was in the one protocol becomes what it is in the other.

Owns both conversions. Invariants: a member keeps its id, its instance id and its partitions; a member of the
classic protocol keeps what it said when it joined, so the group can be converted back; the generation becomes
the epoch, and the other way round, so what members commit meanwhile counts.

Pure. Source: Kafka's ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup, KIP-848.
"""

from collections.abc import Iterator

from tidelog.broker.coordinator.consumer_groups import consumer_protocol, records
from tidelog.broker.coordinator.consumer_groups.group import ConsumerGroup, Current
from tidelog.broker.coordinator.consumer_groups.messages import TopicsView
from tidelog.broker.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE, Group, Member
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError

_KNOWN_ASSIGNORS = frozenset(("range", "roundrobin", "sticky", "cooperative-sticky"))
"""Assignors whose data in assignments may be lost, librdkafka's too: it only says which member owns what."""


def upgrade(group: Group, topics: TopicsView) -> Iterator[records.ConsumerGroupRecord]:
    """The records of the consumer group that continues a classic group of consumers.

    Raises ApiError(GROUP_ID_NOT_FOUND) if what the members said cannot be read.
    """
    group_id, epoch = group.group_id, group.generation
    for member_id, member in group.members.items():
        try:
            said = consumer_protocol.read_subscription(member.protocols[0].metadata, topics)
            assigned, has_user_data = consumer_protocol.read_assignment(member.assignment, topics)
        except ProtocolError as error:
            raise _cannot(
                group_id, f"the metadata of its member {member_id} cannot be read: {error}"
            ) from None
        if has_user_data and group.protocol not in _KNOWN_ASSIGNORS:
            reason = f"its assignor {group.protocol} keeps data in assignments, which would be lost"
            raise _cannot(group_id, reason)
        yield records.MemberRecord(group_id, member_id, said.stored(member))
        yield records.TargetRecord(group_id, member_id, assigned)
        yield records.CurrentRecord(group_id, member_id, Current(epoch, epoch, assigned=assigned))
    yield records.GroupEpochRecord(group_id, epoch)
    yield records.TargetEpochRecord(group_id, epoch)


def _cannot(group_id: str, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group_id} is not a consumer group, and cannot become one: {reason}",
    )


def downgrade(group: ConsumerGroup, generation: int, topics: TopicsView, now_ms: int) -> Group:
    """The classic group that continues a consumer group whose members all use the classic protocol."""
    made = Group(group.group_id, GroupState.STABLE, generation, CONSUMER_PROTOCOL_TYPE, state_since_ms=now_ms)
    for member_id, each in group.members.items():
        if each.classic is None:
            raise ValueError(f"member {member_id} does not use the classic protocol")
        version = consumer_protocol.read_subscription(each.classic.protocols[0].metadata, topics).version
        made = made.with_member(
            Member(
                member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.classic.session_timeout_ms,
                each.rebalance_timeout_ms,
                each.classic.protocols,
                assignment=consumer_protocol.written_assignment(group.target(member_id), version, topics),
            )
        )
    return made._replace(protocol=made.chosen_protocol())
