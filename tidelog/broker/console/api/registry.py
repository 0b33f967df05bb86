"""The schema registry of the console: its subjects, their versions, and what differs between two of them.

Owns the routes. They need DESCRIBE on the cluster: a subject is no resource of Kafka.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from typing import Annotated, Final, TypedDict

from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, route
from tidelog.broker.console.shapes import INT32, From, Listed, Listing, Parameters, part_of, row_of
from tidelog.broker.security.required_access import DESCRIBE_CLUSTER
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.schemas.registry import PROTOBUF, RegistryError, SubjectVersion

_MOST_COMPARED_LINES: Final = 5_000
_Version = Annotated[int, Meta(ge=1, le=INT32)]


class SubjectsAsked(Listing, frozen=True, kw_only=True):
    search: Annotated[str, Meta(max_length=1_000, description="Part of the name.")] = ""


class SubjectAsked(Parameters, frozen=True, kw_only=True):
    subject: Annotated[str, Meta(min_length=1, max_length=1_000)]
    version: Annotated[_Version | None, Meta(description="Without it: the newest.")] = None
    against: Annotated[_Version | None, Meta(description="Without it: the one before.")] = None


class SubjectRow(TypedDict):
    subject: str


class Subjects(Listed):
    is_enabled: bool
    """Whether the console has a registry."""
    rows: list[SubjectRow]


class Subject(TypedDict):
    subject: str
    versions: list[int]
    version: Annotated[int, From("number")]
    schema_id: int
    type: str
    text: str
    against: int | None
    """Null: there is no other one."""
    difference: list[str]
    """Lines of a unified difference, from `against` to `version`."""


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except RegistryError as error:
        code = ErrorCode.RESOURCE_NOT_FOUND if error.status == 404 else ErrorCode.NETWORK_EXCEPTION
        raise ApiError(code, str(error)) from None


@route("GET", "/registry", needs=DESCRIBE_CLUSTER)
async def subjects(console: Console, caller: Caller, asked: SubjectsAsked) -> Subjects:
    """The subjects of the schema registry, in the order of their names."""
    registry = console.records.registry
    with _refusals():
        held = [] if registry is None else await registry.subjects()
    found = [each for each in held if asked.search in each]
    return part_of(Subjects, found, asked, lambda each: {"subject": each}, is_enabled=registry is not None)


@route("GET", "/registry/subject", needs=DESCRIBE_CLUSTER)
async def subject(console: Console, caller: Caller, asked: SubjectAsked) -> Subject:
    """A version of a subject, and what differs from another version."""
    registry = console.records.registry
    if registry is None:
        message = "this console has no schema registry: set console.schema.registry.url"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    with _refusals():
        versions = await registry.versions(asked.subject)
        number = asked.version or max(versions, default=1)
        against = asked.against or max((each for each in versions if each < number), default=None)
        shown = await registry.version(asked.subject, number)
        other = None if against is None else await registry.version(asked.subject, against)
    difference = [] if other is None else await asyncio.to_thread(_difference, other, shown)
    found = {"versions": versions, "against": against, "difference": difference}
    return row_of(Subject, found, shown, subject=asked.subject, text=_text(shown))


def _difference(old: SubjectVersion, new: SubjectVersion) -> list[str]:
    lines = [_text(each).splitlines() for each in (old, new)]
    if max(map(len, lines)) > _MOST_COMPARED_LINES:
        return [f"The versions have more than {_MOST_COMPARED_LINES} lines, which is too long to compare."]
    before, after = (f"version {each.number}" for each in (old, new))
    return list(unified_diff(lines[0], lines[1], before, after, lineterm=""))


def _text(version: SubjectVersion) -> str:
    if version.type == PROTOBUF:
        return version.text
    try:
        return json.dumps(json.loads(version.text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return version.text
