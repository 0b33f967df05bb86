"""What a member does next, for each answer of its coordinator: `membership.txt`."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.scripts import Case, cases
from tidelog.client import ConnectionLostError, TopicPartition
from tidelog.client.groups.consumer_membership import ConsumerMembership
from tidelog.client.groups.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.client.groups.membership import Membership
from tidelog.client.groups.steps import Adopt, AssignAll, Identity, Join, Leave, Revoke, Sync
from tidelog.client.share.membership import ShareMembership
from tidelog.protocol.errors import ErrorCode

ME = "me"


def do_next_step(member: Membership | ConsumerMembership | ShareMembership) -> None:
    """Do what it asks for of the application, or of the coordinator."""
    step = member.next_step()
    if isinstance(step, Adopt):
        member.adopted(step.partitions)
    elif isinstance(step, Revoke):
        member.revoked(step.partitions)
    elif isinstance(step, Leave):
        member.left()


class Script:
    """The commands answer with the member's next step. A partition is `TOPIC-INDEX`."""

    def __init__(self) -> None:
        self.new()

    def new(self, *words: str) -> str:
        """A member; words: its assignor, `static`."""
        self.instance_id = "static" if "static" in words else None
        self.assignor = next((word for word in words if word != "static"), "range")
        self.it = Membership(
            "g",
            (self.assignor,),
            group_instance_id=self.instance_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            heartbeat_interval_ms=3_000,
        )
        self.it.subscribe(frozenset({"t"}))
        return self.next()

    def next(self) -> str:
        told = _step(self.it.next_step())
        if self.it.failures:
            told += f", {self.it.failures} failed"
        if self.it.error is not None:
            told += f", {type(self.it.error).__name__}"
        return told

    def stable(self, assignor: str, *partitions: str) -> str:
        """A member that has these; `static-` before the assignor of a static one."""
        self.new(*assignor.split("-", 1) if assignor.startswith("static-") else (assignor,))
        self.found()
        self.joined("NONE")
        return self.synced(*partitions)

    def found(self) -> str:
        self.it.coordinator_found(1)
        return self.next()

    def join_begun(self) -> str:
        self.it.join_begun()
        return self.next()

    def joined(self, code: str, *words: str) -> str:
        """Words: `leads` with `OTHER` members, `skip-assignment`, `generation=`."""
        metadata = encode_subscription({"t"}, (), -1, None)
        names = [ME, *(word for word in words if word in ("you", "they"))] if "leads" in words else []
        generation = next((int(word[11:]) for word in words if word.startswith("generation=")), 1)
        self.it.joined(
            _answer(
                error_code=ErrorCode[code],
                member_id=ME,
                generation_id=generation,
                protocol_name=self.assignor,
                leader=ME if names else "other",
                skip_assignment="skip-assignment" in words,
                members=[
                    _answer(member_id=name, group_instance_id=self.instance_id, metadata=metadata)
                    for name in names
                ],
            )
        )
        return self.next()

    def assigned(self, partitions: str) -> str:
        """So many partitions does the topic have."""
        self.it.assigned({"t": int(partitions)})
        return self.next()

    def metadata(self, partitions: str) -> str:
        self.it.metadata_changed({"t": int(partitions)})
        return self.next()

    def synced(self, *partitions: str) -> str:
        """The answer; what it gives is adopted, and what it takes is revoked."""
        assignment = encode_assignment(map(_partition, partitions))
        self.it.synced(_answer(error_code=ErrorCode.NONE, assignment=assignment))
        return self.next()

    def sync_refused(self, code: str) -> str:
        self.it.synced(_answer(error_code=ErrorCode[code], assignment=b""))
        return self.next()

    def done(self) -> str:
        """What was asked for of the application, or of the coordinator."""
        do_next_step(self.it)
        return self.next()

    def heartbeat(self, code: str, member_id: str = "", generation: str = "") -> str:
        """The answer to one of this identity, or of an earlier one."""
        identity = Identity(member_id.strip('"'), int(generation)) if generation else self.it.identity
        self.it.heartbeat_answered(identity, ErrorCode[code])
        return self.next() + ", no heartbeats" * (not self.it.can_heartbeat)

    def connection_lost(self) -> str:
        self.it.request_failed(ConnectionLostError("gone"))
        return self.next()

    def not_polled(self) -> str:
        """For longer than max.poll.interval.ms."""
        self.it.poll_interval_exceeded()
        return self.next() + ", no heartbeats" * (not self.it.can_heartbeat)

    def polled(self) -> str:
        self.it.polled()
        return self.next()

    def subscribe(self, *topics: str) -> str:
        self.it.subscribe(frozenset(topics) or None)
        return self.next()

    def owned(self) -> str:
        return _partitions(self.it.owned)


def _answer(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def _partition(text: str) -> TopicPartition:
    topic, _, index = text.partition("-")
    return TopicPartition(topic, int(index))


def _partitions(found: Any) -> str:
    return " ".join(f"{each.topic}-{each.partition}" for each in sorted(found)) or "nothing"


def _step(step: Any) -> str:
    if isinstance(step, Join):
        member_id = step.values["member_id"] or "nobody"
        protocols: Sequence[Any] = step.values["protocols"]  # type: ignore[assignment]
        owned = decode_subscription(protocols[0]["metadata"]).owned
        return f"join as {member_id}" + (f" with {_partitions(owned)}" if owned else "")
    if isinstance(step, Sync):
        shares: Any = step.values["assignments"]
        given = (
            f"{each['member_id']} {_partitions(decode_assignment(each['assignment']))}" for each in shares
        )
        return ", ".join(("sync", *given))
    if isinstance(step, Revoke):
        return f"{'lose' if step.is_lost else 'give up'} {_partitions(step.partitions)}"
    if isinstance(step, Adopt):
        return f"adopt {_partitions(step.partitions)}"
    if isinstance(step, AssignAll):
        return f"assign {' '.join(sorted(step.topics))}"
    if isinstance(step, Leave):
        members: Any = step.values["members"]
        return f"leave as {' '.join(each['member_id'] for each in members)}"
    return {"FindCoordinator": "find the coordinator", "Rest": "rest"}[type(step).__name__]


@cases(Path(__file__).parent / "membership.txt")
async def test_membership(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
