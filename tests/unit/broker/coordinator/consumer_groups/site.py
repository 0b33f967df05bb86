"""Groups of both types on a clock that is set by hand: decisions are carried out at once."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID

from tests.unit.broker.coordinator.groups.site import LIMITS, Asked, Coordinator, assert_awaited
from tidelog.broker.coordinator.consumer_groups.group import (
    Assignment,
    ConsumerGroup,
    ResolvedRegex,
    SubscribedTopic,
)
from tidelog.broker.coordinator.consumer_groups.messages import (
    ConsumerGroupSettings,
    HeartbeatAnswer,
    MemberHeartbeat,
)
from tidelog.broker.coordinator.decision import Decision, Timer
from tidelog.broker.coordinator.group_machine import GROUP_RECORD_FORMATS, GroupMachine, GroupRules
from tidelog.broker.coordinator.groups.group import Protocol
from tidelog.broker.coordinator.groups.messages import JoinRequest, MemberIdentity, SyncRequest
from tidelog.broker.coordinator.share_groups.machine import ShareGroupSettings
from tidelog.protocol.codecs import Codec
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.consumer_groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tidelog.protocol.messages.declaration import message_of

SESSION_MS = 45_000
REBALANCE_MS = 30_000
INTERVAL_MS = 5_000
CLASSIC_SESSION_MS = 10_000
SHARE_SETTINGS = ShareGroupSettings(45_000, 5_000, 200)
SETTINGS = ConsumerGroupSettings(
    SESSION_MS, INTERVAL_MS, 1_000, ("uniform", "range"), may_upgrade=True, may_downgrade=True
)


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().rjust(16, b"\0"))


@dataclass
class Site(Coordinator):
    """A coordinator of all groups. `topics`: name -> number of partitions."""

    topics: dict[str, int] = field(default_factory=lambda: {"t": 4})
    settings: ConsumerGroupSettings = SETTINGS
    now_ms: int = 1_000
    log: dict[bytes, bytes] = field(default_factory=dict)
    """The last record of each key, encoded, in the order of the log."""
    timers: dict[Hashable, Timer] = field(default_factory=dict)
    parked: dict[Hashable, Asked] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Group -> what was set for it alone."""

    def __post_init__(self) -> None:
        self.machine = GroupMachine(GroupRules(1_000, LIMITS, self.settings, SHARE_SETTINGS), self)
        self.groups = self.machine.groups
        self.numbers = count(1)

    # The topics

    def subscribed_topic(self, name: str) -> SubscribedTopic | None:
        return SubscribedTopic(topic_id(name), self.topics[name]) if name in self.topics else None

    def topic_name(self, wanted: UUID) -> str | None:
        return next((name for name in self.topics if topic_id(name) == wanted), None)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        return self.configs.get(group_id, {})

    def topics_changed(self, resolved: Mapping[str, set[str]] | None = None) -> None:
        revision = next(self.numbers) + 1
        found = {
            regex: ResolvedRegex(frozenset(names), revision, self.now_ms)
            for regex, names in (resolved or {}).items()
        }
        for group_id in self.groups.consumer.ids():
            self.run(partial(self.groups.consumer.topics_changed, group_id, found))

    # Time

    def write(self, records: Sequence[Any]) -> None:
        for record in records:
            key, value = GROUP_RECORD_FORMATS.encode(record)
            self.log.pop(key, None)
            if value is not None:
                self.log[key] = value

    def run(self, operation: Callable[[int], Decision[Any, Any]]) -> Asked:
        asked = super().run(operation)
        assert_awaited(self.timers, self.groups.classic)
        return asked

    def restarted(self) -> "Site":
        """A coordinator that knows of this one what its log still has."""
        site = Site(self.topics, self.settings, self.now_ms, dict(self.log))
        for key, value in self.log.items():
            site.machine.apply(GROUP_RECORD_FORMATS.decode(key, value))
        site.run(partial(site.groups.loaded, [*site.groups.ids()]))
        return site

    # Requests

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        names: list[str] | None = None,
        regex: tuple[str, set[str]] | None = None,
        owned: Assignment | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        timeout_ms: int = -1,
        group_id: str = "g",
    ) -> HeartbeatAnswer:
        """Raises ApiError. `regex`: the expression and what it matches now."""
        request = MemberHeartbeat(
            group_id,
            member_id,
            epoch,
            instance_id,
            None,
            timeout_ms,
            "client",
            "/127.0.0.1",
            None if names is None else tuple(names),
            None if regex is None else regex[0],
            assignor,
            owned,
            None if regex is None else ResolvedRegex(frozenset(regex[1]), 1, self.now_ms),
        )
        answer: HeartbeatAnswer = self.run(partial(self.groups.consumer_heartbeat, request)).answer
        return answer

    def join(self, member_id: str, names: list[str] | None = None, **more: Any) -> "Client":
        client = Client(self, member_id, more.get("instance_id"), more.get("group_id", "g"))
        if names is None and "regex" not in more:
            names = ["t"]
        client.take(self.heartbeat(member_id, 0, names=names, owned={}, timeout_ms=REBALANCE_MS, **more))
        return client

    # Requests of the classic protocol

    def join_classic(
        self,
        member_id: str = "",
        names: list[str] | None = None,
        owned: Mapping[str, list[int]] | None = None,
        *,
        instance_id: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        requires_id: bool = False,
        protocol_type: str = "consumer",
        metadata: bytes | None = None,
    ) -> Asked:
        said = subscribed(names or ["t"], owned or {}) if metadata is None else metadata
        request = JoinRequest(
            "g",
            member_id,
            instance_id,
            "" if member_id else f"classic-{next(self.numbers)}",
            CLASSIC_SESSION_MS,
            REBALANCE_MS,
            protocol_type,
            tuple(Protocol(name, said) for name in protocols),
            "client",
            "/127.0.0.1",
            requires_id,
            True,
        )
        return self.run(partial(self.groups.join, request))

    def sync_classic(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **more: Any
    ) -> Asked:
        request = SyncRequest(
            "g",
            generation,
            member_id,
            more.get("instance_id"),
            more.get("protocol_type"),
            more.get("protocol"),
            assignments or {},
        )
        return self.run(partial(self.groups.sync, request))

    def heartbeat_classic(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        asked = self.run(partial(self.groups.heartbeat, "g", member_id, instance_id, generation))
        code: ErrorCode = asked.answer
        return code

    def leave_classic(self, *leaving: tuple[str, str | None]) -> list[ErrorCode]:
        asked = self.run(partial(self.groups.leave, "g", [MemberIdentity(*each) for each in leaving]))
        codes: list[ErrorCode] = asked.answer
        return codes

    def classic_group(
        self, *partitions: list[int], protocol: str = "range", user_data: bytes | None = None
    ) -> tuple[int, list[str]]:
        """Make a stable classic group whose members own these partitions of "t".

        Returns its generation and their ids.
        """
        joins = [self.join_classic(protocols=(protocol,)) for _ in partitions]
        self.pass_ms(2 * LIMITS.initial_rebalance_delay_ms)
        generation = joins[0].answer.generation
        ids = [join.answer.member_id for join in joins]
        shares = {
            member_id: assigned({"t": share}, user_data)
            for member_id, share in zip(ids, partitions, strict=True)
        }
        for member_id in reversed(ids):
            self.sync_classic(member_id, generation, shares)
        return generation, ids

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group: ConsumerGroup | None = self.groups.consumer.get(group_id)
        assert group is not None
        return group

    def settle(self, *clients: "Client") -> None:
        """Let the members send heartbeats until all of them have what they should."""
        for _ in range(3 * len(clients) + 3):
            for client in clients:
                client.beat()
        assert self.group(clients[0].group_id).state.value == "Stable"


@dataclass
class Client:
    """A member as a client keeps it: it revokes at once what it must give up."""

    site: Site
    member_id: str
    instance_id: str | None = None
    group_id: str = "g"
    epoch: int = 0
    owned: Assignment = field(default_factory=dict)

    def take(self, answer: HeartbeatAnswer) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment

    def beat(self, **more: Any) -> HeartbeatAnswer:
        answer = self.site.heartbeat(
            self.member_id,
            self.epoch,
            owned=self.owned,
            instance_id=self.instance_id,
            group_id=self.group_id,
            **more,
        )
        self.take(answer)
        return answer

    def leave(self, epoch: int = -1) -> HeartbeatAnswer:
        return self.site.heartbeat(
            self.member_id, epoch, instance_id=self.instance_id, group_id=self.group_id
        )

    def partitions(self, name: str = "t") -> set[int]:
        return set(self.owned.get(topic_id(name), ()))


@dataclass
class ClassicClient:
    """A member as a client of the classic protocol keeps it: it joins again when a heartbeat asks for it."""

    site: Site
    member_id: str
    generation: int
    owned: dict[str, list[int]] = field(default_factory=dict)

    def beat(self) -> None:
        code = self.site.heartbeat_classic(self.member_id, self.generation)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        else:
            assert code == ErrorCode.NONE

    def join(self) -> None:
        joined = self.site.join_classic(self.member_id, owned=self.owned).answer
        self.generation = joined.generation
        synced = self.site.sync_classic(self.member_id, self.generation).answer
        if synced.error_code == ErrorCode.NONE:
            self.owned = partitions_in(synced.assignment)

    def partitions(self) -> set[int]:
        return set(self.owned.get("t", ()))


def subscribed(names: list[str], owned: Mapping[str, list[int]], version: int = 3) -> bytes:
    """The metadata of a member of the classic protocol."""
    values = {"topics": names, "owned_partitions": _named(owned) if version else []}
    return version.to_bytes(2, "big") + Codec(
        message_of(ConsumerProtocolSubscription), version, 1_000
    ).encode(values)


def assigned(partitions: Mapping[str, list[int]], user_data: bytes | None = None) -> bytes:
    """The assignment of a member of the classic protocol, as its leader sends it."""
    values = {"assigned_partitions": _named(partitions), "user_data": user_data}
    return bytes(2) + Codec(message_of(ConsumerProtocolAssignment), 0, 1_000).encode(values)


def partitions_in(assignment: bytes) -> dict[str, list[int]]:
    """What a member of the classic protocol reads from its assignment."""
    version = int.from_bytes(assignment[:2], "big")
    values = Codec(message_of(ConsumerProtocolAssignment), version, 1_000).decode(assignment[2:])
    return {each.topic: each.partitions for each in values.assigned_partitions}


def _named(partitions: Mapping[str, list[int]]) -> list[dict[str, Any]]:
    return [{"topic": name, "partitions": indexes} for name, indexes in partitions.items()]


def code_of(call: Callable[[], Any]) -> ErrorCode:
    """The code with which the call is refused."""
    try:
        call()
    except ApiError as error:
        return error.code
    raise AssertionError("it was not refused")
