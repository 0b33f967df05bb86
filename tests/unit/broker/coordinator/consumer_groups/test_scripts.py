"""Members of consumer groups: `heartbeats.txt`, members of the classic protocol: `classic_members.txt`, and
groups that change their protocol: `migration.txt`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.scripts import Case, cases
from tests.unit.broker.coordinator.consumer_groups.site import (
    INTERVAL_MS,
    REBALANCE_MS,
    Client,
    Site,
    assigned,
    partitions_in,
    subscribed,
    topic_id,
)
from tests.unit.broker.coordinator.groups.site import Asked
from tidelog.broker.coordinator.consumer_groups.group import Assignment
from tidelog.broker.coordinator.consumer_groups.heartbeats import MAX_TOPIC_NAMES
from tidelog.broker.coordinator.consumer_groups.messages import HeartbeatAnswer
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset, OffsetRecord
from tidelog.protocol.errors import ErrorCode

_FOLDER = Path(__file__).parent


class Script:
    """The commands. Consumers have names, members of the classic protocol are classic-1, classic-2, …

    Partitions are `topic:0,1`. Below each command are its answer, the answers to requests that
    waited, and the group if it changed."""

    def __init__(self) -> None:
        self.site = Site()
        self.clients: dict[str, Client] = {}
        self.waiting: list[Asked] = []
        self.shown = ""

    def topics(self, *words: str) -> None:
        self.site.topics = {name: int(count) for name, count in (word.split("=") for word in words)}

    def topics_changed(self, *words: str) -> str:
        """Words: `regex=topic,topic`."""
        found = (word.split("=") for word in words)
        self.site.topics_changed({regex: set(names.split(",")) for regex, names in found})
        return self._answered()

    def setting(self, name: str, value: str) -> None:
        settings = self.site.settings._replace(**{name.replace("-", "_"): _value(value)})
        self.site.settings = self.site.groups.consumer.settings = settings

    def group_setting(self, name: str, value: str) -> None:
        self.site.configs.setdefault("g", {})[name] = value

    def interval(self) -> str:
        """What the first member is told."""
        name, client = next(iter(self.clients.items()))
        answer = self.site.heartbeat(name, client.epoch, owned=client.owned)
        return f"{answer.heartbeat_interval_ms} ms"

    def limit(self, name: str, value: str) -> None:
        classic = self.site.groups.classic
        classic.limits = classic.limits._replace(**{name.replace("-", "_"): int(value)})

    def join(self, name: str, *words: str) -> str:
        """Join as a client does; see `_said`."""
        given = self._said(words)
        self.clients[name] = self.site.join(name, given.pop("names", None), **given)
        return self._answered(self._of(name))

    def beat(self, name: str, *words: str) -> str:
        """Send a heartbeat as a client does, which revokes at once."""
        answer = self.clients[name].beat(**self._said(words))
        return self._answered(_told(answer))

    def heartbeat(self, name: str, epoch: str, *words: str) -> str:
        """Send this and nothing else."""
        member_id = "" if name == "-" else name
        return self._answered(_told(self.site.heartbeat(member_id, int(epoch), **self._said(words))))

    def lost_answer(self, name: str, *words: str) -> str:
        """A heartbeat as of a client, which does not get the answer."""
        client = self.clients[name]
        answer = self.site.heartbeat(name, client.epoch, owned=client.owned, **self._said(words))
        return self._answered(_told(answer))

    def settle(self, *names: str) -> str:
        self.site.settle(*(self.clients[name] for name in names))
        return self._answered(*map(self._of, names))

    def beats(self, milliseconds: str, *names: str) -> str:
        """Let time pass while consumers, and each `member/generation` of the others, send heartbeats."""
        for _ in range(int(milliseconds) // INTERVAL_MS):
            for name in names:
                member_id, _, generation = name.partition("/")
                if generation:
                    self.site.heartbeat_classic(member_id, int(generation))
                else:
                    self.clients[name].beat()
            self.site.pass_ms(INTERVAL_MS)
        return self._answered()

    def leave(self, name: str, epoch: str = "-1") -> str:
        """With epoch -2 for a while."""
        return self._answered(f"epoch {self.clients[name].leave(int(epoch)).member_epoch}")

    def join_classic(self, *words: str) -> str:
        """Words: the id of the member, if it has one; `known`: it can get one first; `names=`, `owned=`,
        `static=`, `protocols=`, `type=`, `version=`; `unreadable`."""
        given = dict(word.split("=") for word in words if "=" in word)
        flags = {"known", "unreadable"}
        member_id = "".join(word for word in words if "=" not in word and word not in flags)
        more: dict[str, Any] = {"requires_id": "known" in words}
        names = given.get("names", "t").split(",")
        owned = _named(given.get("owned", ""))
        if "unreadable" in words:
            more["metadata"] = b"\0\1"
        elif "version" in given:
            version = int(given["version"])
            more["metadata"] = version.to_bytes(2, "big") + subscribed(names, owned, min(version, 3))[2:]
        if "protocols" in given:
            more["protocols"] = tuple(each for each in given["protocols"].split(",") if each)
        if "type" in given:
            more["protocol_type"] = given["type"]
        more["instance_id"] = given.get("static")
        return self._waited(self.site.join_classic(member_id, names, owned, **more))

    def sync_classic(self, member_id: str, generation: str, *words: str) -> str:
        """Words: `member=partitions` of a leader; `type=`, `protocol=`."""
        given = dict(word.split("=") for word in words)
        more = {"protocol_type": given.pop("type", None), "protocol": given.pop("protocol", None)}
        shares = {name: assigned(_named(text)) for name, text in given.items()}
        return self._waited(self.site.sync_classic(member_id, int(generation), shares, **more))

    def heartbeat_classic(self, member_id: str, generation: str, instance: str | None = None) -> str:
        return self._answered(self.site.heartbeat_classic(member_id, int(generation), instance).name)

    def leave_classic(self, *words: str) -> str:
        """Words: `member` or `member/instance`."""
        leaving = [(name, instance or None) for name, _, instance in (word.partition("/") for word in words)]
        return self._answered(" ".join(code.name for code in self.site.leave_classic(*leaving)))

    def classic_group(self, *shares: str) -> str:
        """Make a stable classic group whose members own these partitions. Words: `protocol=`, `data`."""
        words = {"protocol": "range"} | dict(share.split("=") for share in shares if "=" in share)
        data = b"data" if "data" in shares else None
        owned = [_numbers(share) for share in shares if share[0].isdigit()]
        self.site.classic_group(*owned, protocol=words["protocol"], user_data=data)
        return self._answered()

    def commit(self, member_id: str, generation: str) -> str:
        record = OffsetRecord("g", "t", 0, CommittedOffset(5, topic_id=topic_id("t")))
        committer = Committer(int(generation), member_id, None, 9)
        self.site.run(self.site.machine.offsets.commit("g", committer, [record]))
        return "NONE"

    def describe(self) -> str:
        if (found := self.site.groups.consumer.describe("g")) is not None:
            return f"consumer group, assignor {found.assignor}, regexes {sorted(self.site.group().regexes)}"
        described = self.site.groups.describe("g")
        members = [f"{each.member_id} {_partitions(_read(each.assignment))}" for each in described.members]
        return "\n".join((f"classic group {described.state.value}", *members))

    def owned(self, member_id: str) -> str:
        """What the group knows that a member has."""
        return _assignment(self.site.group().current(member_id).assigned)

    def bytes(self) -> str:
        return str(self.site.groups.consumer.held_bytes)

    def wait(self, milliseconds: str) -> str:
        self.site.pass_ms(int(milliseconds))
        return self._answered()

    def restart(self) -> str:
        before, self.site = self.site, self.site.restarted()
        for client in self.clients.values():
            client.site = self.site
        if (group := before.groups.consumer.get("g")) is not None:
            for part in ("epoch", "target_epoch", "topics", "members", "currents", "targets", "regexes"):
                assert getattr(self.site.group(), part) == getattr(group, part), part
        assert self.site.groups.consumer.held_bytes == before.groups.consumer.held_bytes
        return self._answered()

    def _said(self, words: Iterable[str]) -> dict[str, Any]:
        """Words: topics; `regex=EXPRESSION:topic,topic`, `owned=topic:0,1`, `static=`, `assignor=`,
        `timeout=`, `group=`; `full`: all that a client says when it joins; `many` or
        `too-many` topics."""
        said: dict[str, Any] = {}
        names = [word for word in words if "=" not in word and word not in ("full", "many", "too-many")]
        if names:
            said["names"] = names
        if "many" in words:
            said["names"] = [f"topic-{number}" for number in range(100)]
        if "too-many" in words:
            said["names"] = [f"topic-{number}" for number in range(MAX_TOPIC_NAMES + 1)]
        if "full" in words:
            said |= {"owned": {}, "timeout_ms": REBALANCE_MS}
        for name, _, value in (word.partition("=") for word in words if "=" in word):
            match name:
                case "regex":
                    expression, _, found = value.partition(":")
                    said["regex"] = expression, {each for each in found.split(",") if each}
                case "owned":
                    named = _named(value).items()
                    said["owned"] = {topic_id(topic): frozenset(indexes) for topic, indexes in named}
                case "static":
                    said["instance_id"] = value
                case "timeout":
                    said["timeout_ms"] = int(value)
                case "group":
                    said["group_id"] = value.replace("_", " ")
                case _:
                    said[name] = value
        return said

    def _of(self, name: str) -> str:
        client = self.clients[name]
        return f"{name} epoch {client.epoch}: {_assignment(client.owned)}"

    def _waited(self, asked: Asked) -> str:
        if asked.answer is None:
            self.waiting.append(asked)
            return self._answered("waits")
        return self._answered(_classic(asked.answer))

    def _answered(self, *told: str) -> str:
        released = [_classic(each.answer) for each in self.waiting if each.answer is not None]
        self.waiting = [each for each in self.waiting if each.answer is None]
        shown = self._group()
        news, self.shown = ([shown] if shown != self.shown else []), shown
        return "\n".join((*told, *released, *news))

    def _group(self) -> str:
        if (group := self.site.groups.consumer.get("g")) is not None:
            return f"group {group.state.value}, epoch {group.epoch}: {' '.join(group.members)}"
        described = self.site.groups.describe("g")
        return (
            f"classic group {described.state.value}: {' '.join(each.member_id for each in described.members)}"
        )


def _value(text: str) -> Any:
    return {"yes": True, "no": False}.get(text) if text in ("yes", "no") else int(text)


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def _named(text: str) -> dict[str, list[int]]:
    parts = (part.split(":") for part in text.split(";") if part)
    return {name: _numbers(indexes) for name, indexes in parts}


def _told(answer: HeartbeatAnswer) -> str:
    told = f"epoch {answer.member_epoch}"
    return told if answer.assignment is None else f"{told}: {_assignment(answer.assignment)}"


def _assignment(assignment: Assignment) -> str:
    names = ((wanted.bytes.lstrip(b"\0").decode(), indexes) for wanted, indexes in assignment.items())
    return _partitions({name: sorted(indexes) for name, indexes in names})


def _partitions(named: Mapping[str, Iterable[int]]) -> str:
    found = sorted(f"{name}:{','.join(map(str, indexes))}" for name, indexes in named.items())
    return " ".join(found) or "nothing"


def _read(assignment: bytes) -> Mapping[str, Iterable[int]]:
    return partitions_in(assignment) if assignment else {}


def _classic(answer: Any) -> str:
    if answer.error_code != ErrorCode.NONE:
        return f"{answer.error_code.name} {getattr(answer, 'member_id', '')}"
    if hasattr(answer, "assignment"):
        version = int.from_bytes(answer.assignment[:2], "big")
        return f"assigned {_partitions(_read(answer.assignment))} (version {version})"
    leads = "leads" if answer.leader == answer.member_id else f"leader {answer.leader or 'none'}"
    return f"{answer.member_id} joins generation {answer.generation}: {answer.protocol}, {leads}"


@cases(_FOLDER / "heartbeats.txt")
async def test_heartbeats(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


@cases(_FOLDER / "classic_members.txt")
async def test_classic_members(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


@cases(_FOLDER / "migration.txt")
async def test_migration(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
