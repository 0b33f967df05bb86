"""What scripts say to members of the share group `pool`, which work on the topic `jobs`.

Offsets are `3` or `0..3`; what a member gets is shown with how often it was delivered: `0..2 x1`.
"""

from itertools import groupby
from typing import Any

from tests.unit.broker.handlers.conftest import make_batch
from tests.unit.broker.handlers.sharing import Member
from tests.unit.broker.handlers.site import Site
from tidelog.broker.share.share_partition import AcknowledgeType
from tidelog.protocol.errors import ErrorCode


class ShareSite(Site):
    def __init__(self, open_asker: Any) -> None:
        super().__init__(open_asker)
        self._members: dict[str, Member] = {}

    def _member(self, name: str) -> Member:
        """The first heartbeat of a group is that of `join`; each other member has a session alone."""
        if name not in self._members:
            self._members[name] = Member(self.asker, member_id=name, epoch=0)
        self._members[name].asker = self.asker
        return self._members[name]

    async def records(self, count: str, per_batch: str = "1") -> None:
        """The topic, with so many records."""
        await self.asker.create("jobs")
        for _ in range(0, int(count), int(per_batch)):
            await self.asker.produce("jobs", make_batch(*([b"v"] * int(per_batch))))

    async def join(self, name: str = "first", *settings: str) -> None:
        """Of a group with these settings, that begins at the earliest record unless they say otherwise."""
        await self._member(name).join(**dict(each.split("=") for each in settings))

    async def got(self, name: str, *words: str) -> str:
        """Words: fields of ShareFetch like `max_records=1`."""
        found = await self._member(name).got(**_fields(words))
        return _runs(found)

    async def acknowledge(self, name: str, *words: str) -> str:
        """`0..3=ACCEPT` or `0..1=ACCEPT,RELEASE`, with numbers too; and fields of ShareAcknowledge."""
        batches, fields = _asked(words)
        return ErrorCode(await self._member(name).acknowledge(*batches, **fields)).name

    async def fetch(self, name: str, *words: str) -> str:
        """Acknowledges and fetches in one request."""
        batches, fields = _asked(words)
        answer = await self._member(name).fetch(*batches, **fields)
        (part,) = answer.responses[0].partitions
        runs = (
            f"{each.first_offset}..{each.last_offset} x{each.delivery_count}"
            for each in part.acquired_records
        )
        codes = (ErrorCode(part.error_code).name, ErrorCode(part.acknowledge_error_code).name)
        return f"{codes[0]}, acknowledged: {codes[1]}, got {' '.join(runs) or 'nothing'}"

    def begin_anew(self, name: str) -> None:
        """Its session."""
        self._member(name).epoch = 0

    def state(self) -> str:
        (held,) = self.asker.services.share.partitions.of_group("pool")
        return f"start {held.machine.start_offset}, end {held.machine.end_offset}"

    def load(self) -> str:
        """What metrics count: groups, members, and records in flight; what became of the others."""
        counts = self.asker.services.metrics.share
        assert counts is not None
        done = " ".join(f"{kind}={count}" for kind, count in counts.acknowledged.items())
        return f"{' '.join(map(str, counts.load()))} {done}".strip()


def _fields(words: tuple[str, ...]) -> dict[str, Any]:
    return {name: int(value) for name, value in (word.split("=") for word in words)}


def _asked(words: tuple[str, ...]) -> tuple[list[tuple[int, int, list[int]]], dict[str, Any]]:
    batches = []
    for where, kinds in (word.split("=") for word in words if word[0] in "-0123456789"):
        first, _, last = where.partition("..")
        named = (AcknowledgeType[kind] if kind.isalpha() else int(kind) for kind in kinds.split(",") if kind)
        batches.append((int(first), int(last or first), list(named)))
    return batches, _fields(tuple(word for word in words if word[0].isalpha()))


def _runs(held: dict[int, int]) -> str:
    runs = []
    for _, group in groupby(enumerate(sorted(held)), lambda each: (each[1] - each[0], held[each[1]])):
        offsets = [offset for _, offset in group]
        runs.append(f"{offsets[0]}..{offsets[-1]} x{held[offsets[0]]}")
    return " ".join(runs) or "nothing"
