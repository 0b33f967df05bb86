"""What a member of the consumer protocol, or of a share group, does next, for each answer of its coordinator:
`consumer_membership.txt`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.scripts import Case, cases
from tests.unit.client.groups.test_membership import _partitions, do_next_step
from tidelog.client import ConnectionLostError
from tidelog.client.groups.consumer_membership import ConsumerMembership
from tidelog.client.groups.steps import Adopt, Identity, Leave, Revoke
from tidelog.client.share.membership import ShareMembership
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import decode_request, encode_request

TOPIC_ID = UUID(int=7)


class Script:
    """The commands answer with the member's next step; partitions are those of topic t."""

    it: ConsumerMembership | ShareMembership

    def __init__(self) -> None:
        self.new()

    def new(self, instance_id: str | None = None) -> str:
        timeouts = {"rebalance_timeout_ms": 60_000, "heartbeat_interval_ms": 3_000}
        self.it = ConsumerMembership("g", "me", group_instance_id=instance_id, assignor=None, **timeouts)
        self.it.subscribe(frozenset({"t"}))
        return self.next()

    def new_share(self) -> str:
        self.it = ShareMembership("g", UUID(int=1), rack_id="r")
        self.it.subscribe(frozenset({"t"}))
        return f"{self.next()}, is {self.it.identity.member_id}"

    def next(self) -> str:
        step = self.it.next_step()
        if isinstance(step, Revoke):
            told = f"{'lose' if step.is_lost else 'give up'} {_partitions(step.partitions)}"
        elif isinstance(step, Adopt):
            told = f"adopt {_partitions(step.partitions)}"
        elif isinstance(step, Leave):
            told = f"leave with epoch {step.values['member_epoch']} by {step.api_key.name}"
        else:
            names = {
                "FindCoordinator": "find the coordinator",
                "ResolveTopics": "resolve topics",
                "Rest": "rest",
            }
            told = names[type(step).__name__]
        told += f", {self.it.failures} failed" * bool(self.it.failures)
        told += ", must report" * self.it.must_report + ", no heartbeats" * (not self.it.can_heartbeat)
        return told + (f", {type(self.it.error).__name__}" if self.it.error else "")

    def found(self) -> str:
        self.it.coordinator_found(1)
        return self.next()

    def beat(self, answer: str, *partitions: str) -> str:
        """Send a heartbeat; it is answered with an epoch and partitions, or with an error."""
        asked = self.it.identity
        key, values = self.it.heartbeat()
        sent = decode_request(key, 1, encode_request(key, 1, values))
        shown = f"sent {sent.member_id} epoch {sent.member_epoch}"
        if "topic_partitions" in values:
            owned = values["topic_partitions"]
            shown += (
                ", kept"
                if owned is None
                else f", owns {' '.join(str(each['partitions']) for each in owned) or 'nothing'}"
            )
        assigned = [SimpleNamespace(topic_id=TOPIC_ID, partitions=[int(each) for each in partitions])]
        reply = SimpleNamespace(
            error_code=ErrorCode.NONE if answer.isdigit() else ErrorCode[answer],
            error_message="why",
            member_id="me",
            member_epoch=int(answer) if answer.isdigit() else 1,
            heartbeat_interval_ms=500,
            assignment=SimpleNamespace(topic_partitions=assigned if partitions else []),
        )
        self.it.heartbeat_received(asked, reply)
        return f"{shown}\n{self.next()}"

    def stable(self, *partitions: str, instance_id: str | None = None) -> str:
        """A member that has these."""
        self.new(instance_id)
        self.found()
        self.beat("1", *partitions)
        self.resolve()
        self.done()
        self.it.heartbeat()
        return self.next()

    def stable_static(self, *partitions: str) -> str:
        return self.stable(*partitions, instance_id="static")

    def resolve(self, *unknown: str) -> str:
        """The ids of topics, or none yet."""
        known: Any = {} if unknown else {"t": TOPIC_ID}
        return f"{'all are' if self.it.resolved(known) else 'some are not'}; {self.next()}"

    def done(self) -> str:
        """What was asked for of the application, or of the coordinator."""
        do_next_step(self.it)
        return self.next()

    def owned(self) -> str:
        return _partitions(self.it.owned)

    def lose(self) -> str:
        """The answer to a heartbeat."""
        self.it.heartbeat()
        self.it.request_failed(ConnectionLostError("lost"))
        return self.next()

    def commit_answered(self, code: str, *earlier: str) -> str:
        """To this identity, or to an earlier one."""
        self.it.heartbeat_answered(Identity("me", 0) if earlier else self.it.identity, ErrorCode[code])
        return self.next()

    def not_polled(self) -> str:
        """For longer than max.poll.interval.ms."""
        self.it.poll_interval_exceeded()
        return self.next()

    def polled(self) -> str:
        self.it.polled()
        return self.next()

    def unsubscribe(self) -> str:
        self.it.subscribe(None)
        return self.next()

    def is_stable(self) -> str:
        return f"{self.it.is_stable}, every {self.it.heartbeat_interval_ms} ms"


@cases(Path(__file__).parent / "consumer_membership.txt")
async def test_consumer_membership(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
