"""The share groups of one coordinator: a pure machine from requests to decisions.

Owns ShareGroupHeartbeat and the changes of operators. Invariants:
- a request that is refused changes nothing;
- the epoch of a group rises with each change of members, of what they read, or of those topics; then the
  targets of all members are computed again with the next heartbeat;
- a member that sends another epoch than its own is fenced, but it may repeat its last request;
- a group exists from its first member until an operator deletes it, because it keeps where it has read.

Pure. Source: Kafka's GroupMetadataManager (shareGroupHeartbeat), KIP-932.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

from tidelog.broker.coordinator.consumer_groups.group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    Assignment,
    Current,
    MemberState,
    SubscribedTopic,
)
from tidelog.broker.coordinator.consumer_groups.heartbeats import fenced
from tidelog.broker.coordinator.consumer_groups.messages import TopicsView
from tidelog.broker.coordinator.decision import Decision, Timer
from tidelog.broker.coordinator.group_table import GroupTable
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.broker.coordinator.share_groups import records
from tidelog.broker.coordinator.share_groups.assignor import assign
from tidelog.broker.coordinator.share_groups.group import (
    GroupStates,
    ShareGroup,
    ShareGroupState,
    ShareMember,
    StatePartitions,
)
from tidelog.protocol.errors import ApiError, ErrorCode

ASSIGNOR = "simple"
MAX_TOPIC_NAMES = 1_000
"""Bound for one member, and so for the work of a request."""
MAX_MEMBER_ID_LENGTH = 36
"""As Kafka: clients make them of a UUID."""


class ShareGroupSettings(NamedTuple):
    """What the settings `group.share.*` of the broker say."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int


class ShareHeartbeat(NamedTuple):
    """None: as in the last heartbeat. The times are those of the group."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...] | None
    session_timeout_ms: int
    heartbeat_interval_ms: int


class ShareHeartbeatAnswer(NamedTuple):
    """`assignment` is None if the member has it already. `without_state`: partitions that the group reads and
    that must be initialized before they are assigned."""

    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None
    without_state: Mapping[UUID, StatePartitions]
    deleting: Mapping[UUID, str]
    """Topics, by id and name, whose states must be deleted before that."""
    epoch: int


class DescribedShareMember(NamedTuple):
    member_id: str
    member: ShareMember
    epoch: int
    assigned: Assignment


class DescribedShareGroup(NamedTuple):
    """A group as operators see it. `topics`: id -> name of the topics that are assigned."""

    group_id: str
    state: ShareGroupState
    epoch: int
    target_epoch: int
    members: Sequence[DescribedShareMember]
    topics: Mapping[UUID, str]


def session_timer(group_id: str, member_id: str) -> Hashable:
    return ("share session", group_id, member_id)


def check_request(request: ShareHeartbeat) -> None:
    """Raise ApiError for a request that is wrong in every state of its group."""
    for name, text in (("group id", request.group_id), ("member id", request.member_id)):
        if not text.strip():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"expected a {name}, got an empty one")
    if request.rack_id is not None and not request.rack_id.strip():
        raise ApiError(ErrorCode.INVALID_REQUEST, "expected a rack id, got an empty one")
    if len(request.member_id) > MAX_MEMBER_ID_LENGTH:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected a member id of at most {MAX_MEMBER_ID_LENGTH} characters, "
            f"got {len(request.member_id)}",
        )
    if request.member_epoch < LEAVING_EPOCH:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"expected an epoch from -1, got {request.member_epoch}")
    if request.member_epoch == JOINING_EPOCH and not request.topic_names:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a member that joins must send its topics")
    if request.topic_names is not None and len(request.topic_names) > MAX_TOPIC_NAMES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected at most {MAX_TOPIC_NAMES} topic names, got {len(request.topic_names)}",
        )


class _Update:
    """One operation while it is decided. `group` is the group as it will be, a copy."""

    def __init__(self, group: ShareGroup, topics: TopicsView) -> None:
        self.group = group.copy()
        self._view = topics
        self.records: list[Any] = []
        self.timers: dict[Hashable, Timer | None] = {}

    def write(self, record: records.ShareGroupRecord) -> None:
        record.apply_to(self.group)
        self.records.append(record)

    @cached_property
    def topics(self) -> dict[str, SubscribedTopic]:
        """Name -> topic, by their names, for all subscribed topics that exist. Asked for once the members
        are as they will be."""
        found = ((name, self._view.subscribed_topic(name)) for name in sorted(self.group.subscribed_names))
        return {name: topic for name, topic in found if topic is not None}

    def decision(self, response: Any) -> Decision[Any, Any]:
        return Decision(self.records, response, self.timers)


class ShareGroups(GroupTable[ShareGroup]):
    """Operations take `now_ms` last and return a Decision."""

    def __init__(
        self, settings: ShareGroupSettings, topics: TopicsView, free_bytes: Callable[[], int]
    ) -> None:
        """`free_bytes`: how much more all groups together may hold."""
        super().__init__(ShareGroup, records.ShareGroupEpochRecord)
        self.settings = settings
        self._topics = topics
        self._free_bytes = free_bytes

    # Members

    def heartbeat(self, request: ShareHeartbeat, now_ms: int) -> Decision[Any, ShareHeartbeatAnswer]:
        """Raises ApiError."""
        group_id, member_id = request.group_id, request.member_id
        is_joining = request.member_epoch == JOINING_EPOCH
        group = self._groups.get(group_id)
        if group is None:
            if not is_joining:
                raise not_found(group_id)
            group = ShareGroup(group_id)
        if member_id not in group.members and not is_joining:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} has no member {member_id}")
        update = _Update(group, self._topics)
        if request.member_epoch == LEAVING_EPOCH:
            self._remove(update, member_id)
            return update.decision(ShareHeartbeatAnswer(LEAVING_EPOCH, 0, None, {}, {}, update.group.epoch))
        before = group.current(member_id)
        if not is_joining:
            # A member that did not get the last answer may repeat its request.
            if request.member_epoch not in (before.epoch, before.previous_epoch):
                raise fenced(before, request.member_epoch)
        elif member_id not in group.members and len(group.members) >= self.settings.max_size:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has {len(group.members)} members, as many as group.share.max.size allows",
            )
        has_changed = self._subscribe(update, request)
        self._assign(update)
        if has_changed and update.group.held_bytes - group.held_bytes > max(self._free_bytes(), 0):
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "all groups together hold as much as groups.max.bytes allows",
            )
        current = self._reconcile(update, member_id)
        self._keep_alive(update, member_id, request.session_timeout_ms, now_ms)
        is_told = request.topic_names is not None or current.assigned != before.assigned
        return update.decision(
            ShareHeartbeatAnswer(
                current.epoch,
                request.heartbeat_interval_ms,
                current.assigned if is_told else None,
                _without_state(update),
                update.group.states.deleting,
                update.group.epoch,
            )
        )

    def _subscribe(self, update: _Update, request: ShareHeartbeat) -> bool:
        """Store the metadata of a member; whether that changed."""
        group, member_id = update.group, request.member_id
        present = group.members.get(member_id) or ShareMember()
        names = (
            present.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
        )
        rack_id = present.rack_id if request.rack_id is None else request.rack_id
        wanted = ShareMember(rack_id, request.client_id, request.client_host, names)
        if group.members.get(member_id) == wanted:
            return False
        is_known = member_id in group.members
        update.write(records.ShareMemberRecord(group.group_id, member_id, wanted))
        if not is_known or names != present.topic_names:
            self._raise_epoch(update)
        return True

    def _raise_epoch(self, update: _Update) -> None:
        group = update.group
        epoch = records.ShareGroupEpoch(group.epoch + 1, _metadata_hash(update))
        update.write(records.ShareGroupEpochRecord(group.group_id, epoch))

    def _assign(self, update: _Update) -> None:
        """Compute the targets of all members if the group or its topics changed since the last time."""
        group = update.group
        if _metadata_hash(update) != group.metadata_hash:
            self._raise_epoch(update)
        if group.epoch <= group.target_epoch:
            return
        ids = {name: topic.topic_id for name, topic in update.topics.items()}
        read = {
            member_id: frozenset(ids[name] for name in each.topic_names if name in ids)
            for member_id, each in group.members.items()
        }
        present = {
            topic_id: group.initialized[topic_id].partitions
            for topic_id in ids.values()
            if topic_id in group.initialized
        }
        for member_id, target in assign(read, present).items():
            if target != group.targets.get(member_id):
                update.write(records.ShareTargetRecord(group.group_id, member_id, target))
        update.write(records.ShareTargetEpochRecord(group.group_id, group.epoch))

    def _reconcile(self, update: _Update, member_id: str) -> Current:
        """Members share partitions, so each may have its target at once."""
        group = update.group
        before, target = group.current(member_id), group.target(member_id)
        current = Current(group.target_epoch, before.epoch, MemberState.STABLE, target)
        if before.epoch == current.epoch and before.assigned == target:
            return before
        update.write(records.ShareCurrentRecord(group.group_id, member_id, current))
        return current

    def _remove(self, update: _Update, member_id: str) -> None:
        update.timers[session_timer(update.group.group_id, member_id)] = None
        for record in records.removal_of_member(update.group.group_id, member_id):
            update.write(record)
        self._raise_epoch(update)

    def _keep_alive(self, update: _Update, member_id: str, timeout_ms: int, now_ms: int) -> None:
        group_id = update.group.group_id
        operation = partial(self.member_expired, group_id, member_id)
        update.timers[session_timer(group_id, member_id)] = Timer(now_ms + timeout_ms, operation)

    # States

    def initialized(
        self, group_id: str, partitions: Mapping[UUID, StatePartitions], now_ms: int
    ) -> Decision[Any, None]:
        """These partitions have a state from now on."""
        group = self._groups.get(group_id)
        if group is None:
            return Decision((), None)
        present = dict(group.initialized)
        for topic_id, each in partitions.items():
            known = present.get(topic_id)
            present[topic_id] = StatePartitions(
                each.name, each.partitions | (known.partitions if known else frozenset())
            )
        return self._with_states(group, GroupStates(present, group.states.deleting))

    def begin_deletion(
        self, group_id: str, topic_ids: Iterable[UUID] | None, now_ms: int
    ) -> Decision[Any, Mapping[UUID, str]]:
        """The states of these topics (None: of all) of a group without members are to be deleted; returns
        all topics of which they are, by id and name.

        Raises ApiError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self.without_members(group_id)
        wanted = group.initialized.keys() if topic_ids is None else frozenset(topic_ids)
        left = {topic_id: each for topic_id, each in group.initialized.items() if topic_id not in wanted}
        gone = {topic_id: each.name for topic_id, each in group.initialized.items() if topic_id in wanted}
        deleting = {**group.states.deleting, **gone}
        return self._with_states(group, GroupStates(left, deleting))._replace(response=deleting)

    def deleted(self, group_id: str, topic_ids: Iterable[UUID], now_ms: int) -> Decision[Any, None]:
        """The states of these topics are deleted."""
        group = self._groups.get(group_id)
        if group is None:
            return Decision((), None)
        gone = frozenset(topic_ids)
        deleting = {
            topic_id: name for topic_id, name in group.states.deleting.items() if topic_id not in gone
        }
        return self._with_states(group, GroupStates(group.initialized, deleting))

    def topics_deleted(self, group_id: str, now_ms: int) -> Decision[Any, None]:
        """Forget the states of topics that do not exist any more."""
        group = self._groups.get(group_id)
        if group is None:
            return Decision((), None)
        exists = self._topics.topic_name
        states = GroupStates(
            {topic_id: each for topic_id, each in group.states.initialized.items() if exists(topic_id)},
            {topic_id: name for topic_id, name in group.states.deleting.items() if exists(topic_id)},
        )
        return self._with_states(group, states)

    def _with_states(self, group: ShareGroup, states: GroupStates) -> Decision[Any, Any]:
        update = _Update(group, self._topics)
        if states != group.states:
            update.write(records.GroupStatesRecord(group.group_id, states))
            self._raise_epoch(update)
        return update.decision(None)

    def begin_alteration(self, group_id: str, now_ms: int) -> Decision[Any, int]:
        """The start offsets of a group without members are to change; returns the epoch of its new states.

        Raises ApiError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        update = _Update(self.without_members(group_id), self._topics)
        self._raise_epoch(update)
        return update.decision(update.group.epoch)

    def without_members(self, group_id: str) -> ShareGroup:
        """A group that has no members. Raises ApiError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._groups.get(group_id)
        if group is None:
            raise not_found(group_id)
        if group.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"the group has {len(group.members)} members")
        return group

    # Offsets

    def check_commit(self, group_id: str, committer: Committer, now_ms: int) -> Mapping[Any, Timer | None]:
        """Share groups have no committed offsets. Raises ApiError."""
        raise _has_no_offsets(group_id)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        raise _has_no_offsets(group_id)

    def check_offset_delete(self, group_id: str) -> None:
        raise _has_no_offsets(group_id)

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        return False

    def idle_since_ms(self, group_id: str, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    # Operators

    def describe(self, group_id: str) -> DescribedShareGroup | None:
        """None for a group that does not exist."""
        group = self.committed(group_id)
        if group is None:
            return None
        members = [
            DescribedShareMember(
                member_id, each, group.current(member_id).epoch, group.current(member_id).assigned
            )
            for member_id, each in group.members.items()
        ]
        named = {
            topic_id: self._topics.topic_name(topic_id) for each in members for topic_id in each.assigned
        }
        return DescribedShareGroup(
            group_id,
            group.state,
            group.epoch,
            group.target_epoch,
            members,
            {topic_id: name for topic_id, name in named.items() if name is not None},
        )

    def deletion(self, group_id: str) -> Sequence[records.ShareGroupRecord]:
        """The records that delete a group without members. Raises ApiError."""
        return tuple(records.removal_of_group(self.without_members(group_id)))

    def deletion_if_empty(self, group_id: str) -> Sequence[records.ShareGroupRecord]:
        """None: an empty share group keeps where it has read."""
        return ()

    # Time

    def loaded(self, group_ids: Sequence[str], now_ms: int) -> Mapping[Hashable, Timer | None]:
        """The timers of the members of these groups, which must send heartbeats from now on."""
        timers: dict[Hashable, Timer | None] = {}
        for group_id in group_ids:
            group = self._groups.get(group_id)
            if group is not None:
                update = _Update(group, self._topics)
                for member_id in group.members:
                    self._keep_alive(update, member_id, self.settings.session_timeout_ms, now_ms)
                timers.update(update.timers)
        return timers

    def member_expired(self, group_id: str, member_id: str, now_ms: int) -> Decision[Any, None]:
        group = self._groups.get(group_id)
        if group is None or member_id not in group.members:
            return Decision((), None)
        update = _Update(group, self._topics)
        self._remove(update, member_id)
        return update.decision(None)


def _metadata_hash(update: _Update) -> int:
    """Of the subscribed topics: their ids and sizes. Changes of states raise the epoch themselves."""
    hashed = blake2b(digest_size=8)
    for topic in update.topics.values():
        hashed.update(f"{topic.topic_id} {topic.partition_count};".encode())
    return int.from_bytes(hashed.digest(), "big", signed=True)


def _without_state(update: _Update) -> Mapping[UUID, StatePartitions]:
    found = {}
    for name, topic in update.topics.items():
        known = update.group.initialized.get(topic.topic_id)
        missing = frozenset(range(topic.partition_count)) - (known.partitions if known else frozenset())
        if missing:
            found[topic.topic_id] = StatePartitions(name, missing)
    return found


def not_found(group_id: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")


def _has_no_offsets(group_id: str) -> ApiError:
    message = f"Group {group_id} is a share group: it has no committed offsets"
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
