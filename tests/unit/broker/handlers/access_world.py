"""A broker with an authorizer, its administrator, Alice, and the requests of `access.txt`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tests.message_texts import KEYS, found_in, request_values
from tests.unit.broker.handlers.conftest import LISTENER, make_batch
from tests.unit.broker.net.peers import request_frame
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState, Principal
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.exchange import Exchange
from tidelog.broker.net.produce_stream import ProduceStream
from tidelog.broker.security.required_access import Need
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.broker.services import Services
from tidelog.protocol.acls import Acl
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import decode_response_header
from tidelog.protocol.schema import ApiKey, decode_response

ALICE = "User:alice"
Names = Mapping[str, Any]
"""What `<name>` stands for in a request."""
_WORDS = {"needs", "before", "tolerates", "shows", "about", "tells-existence"}


class Case(NamedTuple):
    """A request of `access.txt`, whose head says the meaning of `words`."""

    key: ApiKey
    version: int
    words: Mapping[str, str]
    text: str

    def __str__(self) -> str:
        return f"{self.key.name}-{self.version}-{','.join(map(str, self.needs))}"

    @property
    def needs(self) -> list[int]:
        return [int(each) for each in self.words.get("needs", "0").split(",") if each]

    @property
    def rows(self) -> list[Need]:
        return [SERVED_APIS[self.key].needs[index] for index in self.needs]

    @property
    def before(self) -> list[str]:
        return [each for each in self.words.get("before", "").split(",") if each]

    @property
    def tolerated(self) -> set[int]:
        return {0, *(ErrorCode[each] for each in (self.words.get("tolerates"),) if each)}

    def values(self, names: Names) -> dict[str, Any]:
        return request_values(self.key, self.text, names)

    def shows(self, names: Names, body: bytes, answer: Any) -> bool | None:
        """Whether the answer has what it may lack; None if there is no such thing."""
        what = self.words.get("shows")
        if what is None:
            return None
        if not what.startswith("<"):
            return any(found_in(answer, what))
        name = names[what[1:-1]]
        return (name.bytes if isinstance(name, UUID) else name.encode()) in body


def _case(text: str) -> Case:
    head, _, fields = text.partition("\n")
    api, version, *rest = head.split()
    words = {name: value for name, _, value in (word.partition("=") for word in rest)}
    assert words.keys() <= _WORDS, f"{head}: expected words of {sorted(_WORDS)}"
    return Case(KEYS[api], int(version), words, fields)


SECTIONS = {
    title: [_case(each) for each in re.split(r"\n(?=\w)", text.rstrip())]
    for title, text in (
        each.split("\n", 1) for each in Path(__file__).with_name("access.txt").read_text().split("\n== ")[1:]
    )
}
CASES = SECTIONS["requests"]


class Client:
    """A connection as dispatch sees it."""

    def __init__(self, dispatcher: Dispatcher, name: str) -> None:
        self.state = ConnectionState(1, LISTENER, SecurityProtocol.PLAINTEXT, "10.0.0.1")
        self.state.principal = Principal("User", name)
        self.routes = dispatcher.routes_at(AuthenticationStep.NOT_REQUIRED)
        self.ready: asyncio.Queue[Exchange] = asyncio.Queue()
        self.stream: ProduceStream | None = None
        self.last_produce: tuple[object, ...] = ()
        self._dispatcher = dispatcher
        self.has_waited = False
        """Whether the last answer did not come at once."""

    def answer_ready(self, pending: Exchange) -> None:
        self.ready.put_nowait(pending)

    def effect_taken(self, pending: Exchange, freed_bytes: int) -> None: ...

    def holds(self, more_held_bytes: int, more_reserved_bytes: int) -> None: ...

    async def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> tuple[bytes, Any]:
        """The answer's body, and its values."""
        frame = request_frame(key, version, values, 99)
        answer: Any = self._dispatcher.dispatch(self, memoryview(frame)[4:], 0.0)  # type: ignore[arg-type]
        self.has_waited = isinstance(answer, Exchange)
        if isinstance(answer, Exchange):
            if answer.answer is None:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await self.ready.get()
            answer = answer.answer
        assert answer is not None
        data = b"".join(answer)[4:]
        _, position = decode_response_header(key, version, memoryview(data))
        return data[position:], decode_response(key, version, data[position:])


@dataclass
class World:
    """One broker with an authorizer, its administrator and Alice, who may do what a test allows."""

    services: Services
    admin: Client
    alice: Client
    allowed: tuple[Acl, ...] = ()
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 10_000)))

    def allow(self, *acls: Acl) -> None:
        """From now on these ACLs hold and no others."""
        assert self.services.acls.authorizer is not None
        self.services.acls.authorizer.change(set(acls), set(self.allowed))
        self.allowed = tuple(set(acls))

    def state(self) -> object:
        """Everything durable: the catalog's revision and the ends and starts of all logs."""
        logs = {
            key: (replica.log.end_offset, replica.log.start_offset)
            for key, replica in self.services.replicas.items()
        }
        return self.services.catalog.revision, logs, self.services.producer_ids.bound()

    async def make(self, *more: str) -> Names:
        """A topic with records, a group of either protocol and a transaction, that no other test uses."""
        number = next(self.ids)
        topic, group = f"topic-{number:04d}", f"group-{number:04d}"
        names: dict[str, Any] = {
            "topic": topic,
            "group": group,
            "transaction": f"transaction-{number:04d}",
            "consumers": f"consumers-{group}",
            "fresh": f"new-{topic}",
            "user": f"user-{topic}",
            "records": make_batch(b"v"),
        }
        for step in ("make", *more):
            for case in SECTIONS[step]:
                _, answer = await self.admin.ask(case.key, case.version, case.values(names))
                if case.key is ApiKey.INIT_PRODUCER_ID:
                    names |= {name: answer[name] for name in ("producer_id", "producer_epoch")}
            made = self.services.catalog.topic(topic)
            assert made is not None
            names["topic_id"] = made.topic_id
        return names
