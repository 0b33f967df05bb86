"""Groups of both types on a clock that is set by hand: decisions are carried out at once."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID

from tests.unit.broker.coordinator.groups.site import LIMITS, Asked
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
from tidelog.broker.coordinator.decision import Decision, Parked, Timer
from tidelog.broker.coordinator.group_machine import GROUP_RECORD_FORMATS, GroupMachine, GroupRules
from tidelog.protocol.errors import ApiError, ErrorCode

SESSION_MS = 45_000
REBALANCE_MS = 30_000
INTERVAL_MS = 5_000
SETTINGS = ConsumerGroupSettings(
    SESSION_MS, INTERVAL_MS, 1_000, ("uniform", "range"), may_upgrade=True, may_downgrade=True
)
NO_PARTITIONS: Assignment = {}


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().rjust(16, b"\0"))


@dataclass
class Site:
    """A coordinator without a loop and without a disk. `topics`: name -> number of partitions."""

    topics: dict[str, int] = field(default_factory=lambda: {"t": 4})
    settings: ConsumerGroupSettings = SETTINGS
    now_ms: int = 1_000
    log: dict[bytes, bytes] = field(default_factory=dict)
    """The last record of each key, encoded, in the order of the log."""
    timers: dict[Hashable, Timer] = field(default_factory=dict)
    parked: dict[Hashable, Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.machine = GroupMachine(GroupRules(1_000, LIMITS, self.settings), self)
        self.groups = self.machine.groups
        self.numbers = count(1)

    # The topics

    def subscribed_topic(self, name: str) -> SubscribedTopic | None:
        return SubscribedTopic(topic_id(name), self.topics[name]) if name in self.topics else None

    def topic_name(self, wanted: UUID) -> str | None:
        return next((name for name in self.topics if topic_id(name) == wanted), None)

    def topics_changed(self, resolved: Mapping[str, set[str]] | None = None) -> None:
        found = {
            regex: ResolvedRegex(frozenset(names), 2, self.now_ms)
            for regex, names in (resolved or {}).items()
        }
        self.run(partial(self.groups.consumer.topics_changed, [*self.groups.ids()], found))

    # Time

    def run(self, operation: Callable[[int], Decision[Any, Any]]) -> Asked:
        """Raises ApiError."""
        decision = operation(self.now_ms)
        for record in decision.records:
            key, value = GROUP_RECORD_FORMATS.encode(record)
            self.log.pop(key, None)
            if value is not None:
                self.log[key] = value
        for change in (*decision.records, *decision.changes):
            self.machine.apply(change)
        for timer_key, timer in decision.timers.items():
            self.timers.pop(timer_key, None)
            if timer is not None:
                self.timers[timer_key] = timer
        for parked_key, answer in decision.released.items():
            self.parked.pop(parked_key).answer = answer
        asked = Asked()
        if isinstance(decision.response, Parked):
            self.parked[decision.response.key] = asked
        else:
            asked.answer = decision.response
        return asked

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and timers fire in their order."""
        end_ms = self.now_ms + duration_ms
        while due := [
            (timer.at_ms, str(key), key) for key, timer in self.timers.items() if timer.at_ms <= end_ms
        ]:
            at_ms, _, key = min(due, key=lambda each: each[:2])
            self.now_ms = max(self.now_ms, at_ms)
            self.run(self.timers.pop(key).operation)
        self.now_ms = end_ms

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

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.groups.consumer.get(group_id)
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
    """A member as a client keeps it: it revokes at once what it is told to."""

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


def code_of(call: Callable[[], Any]) -> ErrorCode:
    """The code with which the call is refused."""
    try:
        call()
    except ApiError as error:
        return error.code
    raise AssertionError("it was not refused")
