"""A group over its life, and who may join it: `joining.txt`, `generations.txt`, `offsets.txt`."""

import gc
import tracemalloc
from pathlib import Path
from typing import Any

from tests.scripts import Case, cases
from tests.unit.broker.coordinator.groups.site import LIMITS, Asked, Site
from tidelog.broker.coordinator.groups.joining import MAX_METADATA_BYTES, MAX_PROTOCOLS
from tidelog.broker.coordinator.groups.messages import JoinAnswer, SyncAnswer
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.protocol.errors import ErrorCode

_SUBSCRIPTION = bytes.fromhex("0003 00000002 0001 61 0001 62 ffffffff 00000000 ffffffff ffff")
"""Version 3, topics a and b, no user data, nothing owned, no generation, no rack."""
_METADATA = {
    "topics": b"topics",
    "a-and-b": _SUBSCRIPTION,
    "cut": _SUBSCRIPTION[:9],
    "none": b"",
    "too-much": bytes(MAX_METADATA_BYTES),
}


class Script:
    """The commands. New members are m1, m2, … Below each command are its answer, the answers to requests that
    waited, and the group if it changed."""

    def __init__(self) -> None:
        self.site = Site()
        self.waiting: list[Asked] = []
        self.shown = ""

    def limit(self, name: str, value: str) -> None:
        self.site.limits = self.site.limits._replace(**{name.replace("-", "_"): int(value)})
        self.site.machine.limits = self.site.limits

    def join(self, *words: str) -> str:
        """Words: the id of the member, if it has one; `known`: it can get one first; `name=value`."""
        member_id = "".join(word for word in words if "=" not in word and word != "known")
        given = dict(word.split("=") for word in words if "=" in word)
        more: dict[str, Any] = {"group_id": given.get("group", "g")}
        if "static" in given:
            more["instance_id"] = given["static"]
        if "type" in given:
            more["protocol_type"] = given["type"].strip("-")
        names = given.get("protocols", "range").split(",")
        if given.get("protocols") == "too-many":
            names = [str(number) for number in range(MAX_PROTOCOLS + 1)]
        metadata = given.get("metadata", "topics")
        data = bytes(int(metadata)) if metadata.isdigit() else _METADATA[metadata]
        more["protocols"] = dict.fromkeys(names, data)
        more |= {f"{name}_timeout_ms": int(given[name]) for name in ("session", "rebalance") if name in given}
        more["requires_known_member_id"] = "known" in words
        more["can_skip_assignment"] = given.get("skip") != "no"
        return self._answered(self.site.join(member_id, **more))

    def join_many(self, count: str, *words: str) -> str:
        for _ in range(int(count)):
            self.join(*words)
        return self._answered()

    def sync(self, member_id: str, generation: str, *words: str) -> str:
        """Words: `member=assignment`, where a number is so many bytes; `type=`, `protocol=`, `static=`."""
        given = dict(word.split("=") for word in words)
        more = {"protocol_type": given.pop("type", None), "protocol": given.pop("protocol", None)}
        more["instance_id"] = given.pop("static", None)
        sent = {name: bytes(int(text)) if text.isdigit() else text.encode() for name, text in given.items()}
        return self._answered(self.site.sync(member_id, int(generation), sent, **more))

    def stable(self, *instances: str) -> str:
        """Make a stable group of so many members, or of these static ones."""
        if instances[0].isdigit():
            self.site.stable(int(instances[0]))
        else:
            self.site.stable(**{each: each for each in instances})
        return self._answered()

    def heartbeat(self, member_id: str, generation: str, instance: str | None = None) -> str:
        return self._coded(self.site.heartbeat(member_id, int(generation), instance_id=instance))

    def leave(self, *words: str) -> str:
        """Words: members; `static=` for one; `-` for no member id."""
        given = dict(word.split("=") for word in words if "=" in word)
        ids = [word.strip("-") for word in words if "=" not in word]
        return self._coded(*self.site.leave(*ids, instance_id=given.get("static")))

    def commit(self, member_id: str, generation: str, instance: str | None = None) -> str:
        committer = Committer(int(generation), member_id.strip("-"), instance)
        self.site.timers.update(self.site.machine.check_commit("g", committer, self.site.now_ms))
        return "NONE"

    def reads(self, *topics: str) -> str:
        return " ".join("yes" if self.site.machine.is_subscribed("g", each) else "no" for each in topics)

    def may_delete_offsets(self) -> str:
        self.site.machine.check_offset_delete("g")
        return "yes"

    def offsets_idle(self, committed_ms: str) -> str:
        """How long an offset of that time has been idle."""
        since_ms = self.site.machine.idle_since_ms("g", int(committed_ms))
        return "in use" if since_ms is None else f"for {self.site.now_ms - since_ms} ms"

    def delete(self) -> str:
        for record in self.site.machine.deletion("g"):
            self.site.write([record])
            self.site.machine.apply(record)
        return self._answered()

    def writes(self, how: str) -> None:
        self.site.journal_works = how == "succeed"

    def wait(self, milliseconds: str) -> str:
        self.site.pass_ms(int(milliseconds))
        return self._answered()

    def restart(self) -> str:
        self.site = self.site.restarted()
        return self._answered()

    def describe(self, group_id: str = "g") -> str:
        described = self.site.machine.describe(group_id)
        members = [
            f"{each.member_id} {each.client_host} {_short(each.metadata)} {_short(each.assignment)}"
            for each in described.members
        ]
        return "\n".join(
            (f"{described.state.value} {described.protocol_type} {described.protocol}", *members)
        )

    def timers(self) -> str:
        return str(len(self.site.timers))

    def bytes(self) -> str:
        return str(self.site.machine.held_bytes)

    def written(self) -> str:
        """The last record."""
        group = self.site.records[-1].group
        return "deleted" if group is None else f"generation {group.generation}: {' '.join(group.members)}"

    def _coded(self, *codes: ErrorCode) -> str:
        return "\n".join((" ".join(code.name for code in codes), *self._news()))

    def _answered(self, asked: Asked | None = None) -> str:
        told = []
        if asked is not None and asked.answer is None:
            told.append("waits")
            self.waiting.append(asked)
        elif asked is not None:
            told.append(_text(asked.answer))
        return "\n".join((*told, *self._news()))

    def _news(self) -> list[str]:
        told = [_text(each.answer) for each in self.waiting if each.answer is not None]
        self.waiting = [each for each in self.waiting if each.answer is None]
        shown = " ".join((f"group {self.site.state().value}:", *self.site.members()))
        if shown != self.shown:
            self.shown = shown
            told.append(shown)
        return told


def _text(answer: Any) -> str:
    match answer:
        case JoinAnswer(ErrorCode.NONE):
            told = f"{answer.member_id} joins generation {answer.generation}: {answer.protocol}"
            if not answer.members:
                return f"{told}, leader {answer.leader}"
            known = ", ".join(
                f"{each.member_id}{f' ({each.group_instance_id})' if each.group_instance_id else ''}"
                f" {_short(each.metadata)}"
                for each in answer.members
            )
            return f"{told}, {'leads without assigning' if answer.skip_assignment else 'leads'}: {known}"
        case SyncAnswer(ErrorCode.NONE):
            return f"assigned {_short(answer.assignment)}"
        case ErrorCode():
            return answer.name
    return f"{answer.error_code.name} {getattr(answer, 'member_id', '')}"


def _short(data: bytes) -> str:
    return repr(bytes(data))[1:] if len(data) < 20 else f"{len(data)} bytes"


@cases(Path(__file__).parent / "joining.txt")
async def test_joining(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


@cases(Path(__file__).parent / "generations.txt")
async def test_generations(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


@cases(Path(__file__).parent / "offsets.txt")
async def test_offsets(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


def test_what_is_counted_is_no_less_than_the_memory_that_is_held() -> None:
    site = Site()
    tracemalloc.start()
    try:
        for number in range(100):
            site.stable(group_id=f"group-{number:0500d}")
        site.records.clear()
        gc.collect()
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes <= site.machine.held_bytes <= 100 * 6_000


def test_the_ids_of_groups_count_too() -> None:
    site = Site(LIMITS._replace(max_bytes=50_000))
    assert site.join(group_id="a" * 20_000).answer is None
    assert site.join(group_id="b" * 20_000).answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert 40_000 <= site.machine.held_bytes <= 50_000
