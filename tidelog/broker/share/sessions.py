"""Share sessions: which partitions a member of a share group fetches from this broker, and its epoch.

Owns the sessions of one broker. Invariants:
- a request of a session was sent after the answer to the one before: each raises the epoch, and another epoch
  is refused;
- all sessions together have a bounded number of partitions;
- a session ends with its last request, with its connection, or when its member begins another one.

Pure. Source: KIP-932, Kafka's ShareSessionCache and SharePartitionManager.newContext.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from tidelog.broker.coordinator.share_states.state import SharePartitionKey
from tidelog.protocol.errors import ApiError, ErrorCode

MOST_PARTITIONS = 100_000
"""Of all sessions together: each takes about 200 bytes."""
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1


class ShareSession:
    """One member's partitions, in the order in which the next request is to read them."""

    __slots__ = ("connection_id", "epoch", "group_id", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str, connection_id: int) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection_id = connection_id
        self.epoch = 1
        self.partitions: dict[SharePartitionKey, None] = {}

    def rotate(self) -> None:
        """Let the next request begin with another partition."""
        if self.partitions:
            first = next(iter(self.partitions))
            del self.partitions[first]
            self.partitions[first] = None


class ShareSessions:
    """The sessions of one broker, at most one for each member of a group."""

    def __init__(self, most_partitions: int = MOST_PARTITIONS) -> None:
        self._most_partitions = most_partitions
        self._partition_count = 0
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    @property
    def group_ids(self) -> set[str]:
        return {group_id for group_id, _ in self._sessions}

    def begin(self, group_id: str, member_id: str, connection_id: int, limit: int) -> ShareSession:
        """A new session, in place of the member's other one. Raises ApiError(SHARE_SESSION_LIMIT_REACHED)."""
        present = self._sessions.get((group_id, member_id))
        if present is not None:
            self.end(present)
        if len(self._sessions) >= limit:
            raise ApiError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this broker has {len(self._sessions)} share sessions, as many as "
                "group.share.max.share.sessions allows",
            )
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id, connection_id)
        return session

    def of(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request, whose epoch is the next one from now on unless it is the last request.

        Raises ApiError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ApiError(
                ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {member_id} has no share session on this broker"
            )
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"expected share session epoch {session.epoch}, got {epoch}",
            )
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        return session

    def update(
        self, session: ShareSession, added: Iterable[tuple[UUID, int]], forgotten: Iterable[tuple[UUID, int]]
    ) -> None:
        """Raises ApiError(SHARE_SESSION_LIMIT_REACHED) once all sessions have too many partitions."""
        before, left = len(session.partitions), self._most_partitions - self._partition_count
        try:
            for topic_id, partition in added:
                session.partitions[SharePartitionKey(session.group_id, topic_id, partition)] = None
                if len(session.partitions) - before > left:
                    del session.partitions[SharePartitionKey(session.group_id, topic_id, partition)]
                    raise ApiError(
                        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                        f"all share sessions together have {self._most_partitions} partitions",
                    )
            for topic_id, partition in forgotten:
                session.partitions.pop(SharePartitionKey(session.group_id, topic_id, partition), None)
        finally:
            self._partition_count += len(session.partitions) - before

    def end(self, session: ShareSession) -> bool:
        """Whether it was the member's session until now."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        self._partition_count -= len(session.partitions)
        return True

    def of_connection(self, connection_id: int) -> list[ShareSession]:
        return [each for each in self._sessions.values() if each.connection_id == connection_id]
