"""A schema registry, and the format of a value that names its schema there.

Owns the format (byte 0, the schema's id in four bytes, the data) and the requests. Invariants: only the
address of the registry is ever asked, whatever a value or a schema says, and no redirect is followed; an
answer has a bounded size, and a schema a bounded number of others that it refers to.

Source: Confluent's "Wire format" and Schema Registry API.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientSession

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
PREFIX_BYTES: Final = 5
_MAGIC: Final = 0
_MOST_ANSWER_BYTES: Final = 1 << 20
_MOST_REFERENCES: Final = 64
_TIMEOUT_SECONDS: Final = 5.0
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class RegistryError(ValueError):
    """The registry does not have a schema, or not in a form that can be used. The message is for users.
    `status`: of its answer, 0 for none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class RegisteredSchema(NamedTuple):
    """A schema as its text, of Protobuf as the base64 of its descriptor. `references`: the name under which
    it refers to another -> the text of that, each after those it needs."""

    type: str
    text: str
    references: Mapping[str, str] = MappingProxyType({})


class SubjectVersion(NamedTuple):
    """A version of a subject: its number, its schema's id in the registry, type and text."""

    number: int
    schema_id: int
    type: str
    text: str


def schema_id(data: bytes | None) -> int | None:
    """The id in a value of the wire format; None for any other value."""
    if data is None or len(data) < PREFIX_BYTES or data[0] != _MAGIC:
        return None
    return int.from_bytes(data[1:PREFIX_BYTES], "big")


def required_schema_id(data: bytes) -> int:
    """The id in a value of the wire format. Raises ValueError for any other value."""
    number = schema_id(data)
    if number is None:
        raise ValueError(f"expected byte 0 and a schema's id before the value, got {data[:PREFIX_BYTES]!r}")
    return number


def prefix(number: int) -> bytes:
    """What stands before the data of a value with this schema."""
    return bytes((_MAGIC,)) + number.to_bytes(4, "big")


class SchemaRegistry:
    """A registry at `url`. `user_info` is `user:password` for basic authentication; empty for none."""

    def __init__(self, url: str, user_info: str = "") -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        if user_info:
            self._headers["Authorization"] = f"Basic {b64encode(user_info.encode()).decode()}"

    async def schema(self, number: int) -> RegisteredSchema:
        """A schema by its id, with all that it refers to. Raises RegistryError."""
        async with self._session() as session:
            path = f"/schemas/ids/{number}"
            answer = _with_schema(await self._ask(session, "GET", path), path)
            kind = str(answer.get("schemaType", AVRO))
            suffix = "?format=serialized" if kind == PROTOBUF else ""
            if suffix:
                answer |= _with_schema(await self._ask(session, "GET", path + suffix), path)
            references: dict[str, str] = {}
            await self._refer(session, answer, references, set(), suffix)
        return RegisteredSchema(kind, answer["schema"], references)

    async def subjects(self) -> list[str]:
        """All subjects. Raises RegistryError."""
        async with self._session() as session:
            return sorted(map(str, await self._list(session, "/subjects")))

    async def versions(self, subject: str) -> list[int]:
        """The numbers of the versions of a subject. Raises RegistryError."""
        async with self._session() as session:
            found = await self._list(session, _versions_path(subject))
        return sorted(each for each in found if isinstance(each, int))

    async def version(self, subject: str, number: int) -> SubjectVersion:
        """One version of a subject. Raises RegistryError."""
        path = f"{_versions_path(subject)}/{number}"
        async with self._session() as session:
            answer = _with_schema(await self._ask(session, "GET", path), path)
        kind = str(answer.get("schemaType", AVRO))
        return SubjectVersion(number, int(answer.get("id", -1)), kind, answer["schema"])

    async def _list(self, session: ClientSession, path: str) -> list[Any]:
        found = await self._ask(session, "GET", path)
        if not isinstance(found, list):
            raise RegistryError(f"the schema registry's answer to {path} is no list")
        return found

    async def register(self, subject: str, schema: RegisteredSchema) -> int:
        """The id of a schema, which is new to this subject or not. Raises RegistryError."""
        path = _versions_path(subject)
        asked = {"schema": schema.text} | ({} if schema.type == AVRO else {"schemaType": schema.type})
        async with self._session() as session:
            answer = await self._ask(session, "POST", path, asked)
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
            raise RegistryError(f"the schema registry's answer to {path} has no id")
        return int(answer["id"])

    async def _refer(
        self,
        session: ClientSession,
        answer: Mapping[str, Any],
        found: dict[str, str],
        seen: set[str],
        suffix: str,
    ) -> None:
        """Take what `answer` refers to into `found`, the deepest first."""
        for reference in answer.get("references") or ():
            try:
                versions, number = _versions_path(str(reference["subject"])), int(reference["version"])
            except (TypeError, KeyError, ValueError):
                raise RegistryError("a schema refers to another without its subject and version") from None
            path = f"{versions}/{number}{suffix}"
            if path in seen:
                continue
            seen.add(path)
            if len(seen) > _MOST_REFERENCES:
                raise RegistryError(f"a schema refers to more than {_MOST_REFERENCES} others")
            referred = _with_schema(await self._ask(session, "GET", path), path)
            await self._refer(session, referred, found, seen, suffix)
            found[str(reference.get("name", path))] = referred["schema"]

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[ClientSession]:
        from aiohttp import ClientSession, ClientTimeout

        async with ClientSession(headers=self._headers, timeout=ClientTimeout(_TIMEOUT_SECONDS)) as session:
            yield session

    async def _ask(
        self, session: ClientSession, method: str, path: str, asked: Mapping[str, str] | None = None
    ) -> Any:
        from aiohttp import ClientError

        body = None if asked is None else json.dumps(asked).encode()
        headers = {} if body is None else {"Content-Type": _CONTENT_TYPE}
        try:
            async with session.request(
                method, self._url + path, data=body, headers=headers, allow_redirects=False
            ) as answer:
                text = b""
                while not answer.content.at_eof() and len(text) < _MOST_ANSWER_BYTES:
                    text += await answer.content.read(_MOST_ANSWER_BYTES - len(text))
                status = answer.status
        except (TimeoutError, ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise RegistryError(f"the schema registry does not answer {path}: {reason}") from None
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if status != 200:
            said = fields.get("message") if isinstance(fields, dict) else None
            why = f": {said:.500}" if isinstance(said, str) else ""
            raise RegistryError(f"the schema registry answers {status} to {path}{why}", status)
        return fields


def _versions_path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions"


def _with_schema(answer: Any, path: str) -> dict[str, Any]:
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise RegistryError(f"the schema registry's answer to {path} has no schema")
    return answer
