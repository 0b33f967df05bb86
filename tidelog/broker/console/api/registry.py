"""The schema registry of the console: its subjects, their versions, and what differs between two of them.

Owns the routes and pages, which are shown where `console.schema.registry.url` is set. They need DESCRIBE on
the cluster: a subject is no resource of Kafka.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from typing import Annotated, Final, TypedDict

from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, Listing, Page, Parameters, page, route
from tidelog.broker.console.views.of_cluster import Listed
from tidelog.broker.security.required_access import DESCRIBE_CLUSTER, whole
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.schemas.registry import PROTOBUF, RegistryError, SchemaRegistry, SubjectVersion

_NEEDS: Final = whole(DESCRIBE_CLUSTER)
_MOST_COMPARED_LINES: Final = 5_000
_Version = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class SubjectsAsked(Listing, frozen=True, kw_only=True):
    search: Annotated[str, Meta(max_length=1_000, description="Part of the name.")] = ""


class SubjectAsked(Parameters, frozen=True, kw_only=True):
    subject: Annotated[str, Meta(min_length=1, max_length=1_000)]
    version: Annotated[_Version | None, Meta(description="Without it: the newest.")] = None
    against: Annotated[_Version | None, Meta(description="Without it: the one before.")] = None


class SubjectRow(TypedDict):
    """A subject of the registry."""

    subject: str


class Subjects(Listed):
    """Subjects, in the order of their names."""

    is_enabled: bool
    """Whether the console has a registry."""
    rows: list[SubjectRow]


class Subject(TypedDict):
    """One version of a subject, and how it differs from another one."""

    subject: str
    versions: list[int]
    version: int
    schema_id: int
    type: str
    text: str
    against: int | None
    """Null: there is no other one."""
    difference: list[str]
    """Lines of a unified difference, from `against` to `version`."""


def _registry(console: Console) -> SchemaRegistry:
    """Raises ApiError."""
    if console.records.registry is None:
        message = "this console has no schema registry: set console.schema.registry.url"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return console.records.registry


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except RegistryError as error:
        code = ErrorCode.RESOURCE_NOT_FOUND if error.status == 404 else ErrorCode.NETWORK_EXCEPTION
        raise ApiError(code, str(error)) from None


@route("GET", "/registry", needs=_NEEDS)
async def subjects_route(console: Console, caller: Caller, asked: SubjectsAsked) -> Subjects:
    """The subjects of the schema registry."""
    registry = console.records.registry
    with _refusals():
        subjects = [] if registry is None else await registry.subjects()
    found = [each for each in subjects if asked.search in each]
    rows: list[SubjectRow] = [{"subject": each} for each in found[asked.offset : asked.offset + asked.limit]]
    return {
        "is_enabled": registry is not None,
        "total": len(found),
        "offset": asked.offset,
        "limit": asked.limit,
        "rows": rows,
    }


@route("GET", "/registry/subject", needs=_NEEDS)
async def _subject(console: Console, caller: Caller, asked: SubjectAsked) -> Subject:
    """A version of a subject, and what differs from another version."""
    registry = _registry(console)
    with _refusals():
        versions = await registry.versions(asked.subject)
        number = asked.version or max(versions, default=1)
        against = asked.against or max((each for each in versions if each < number), default=None)
        shown = await registry.version(asked.subject, number)
        other = None if against is None else await registry.version(asked.subject, against)
    difference = [] if other is None else await asyncio.to_thread(_difference, other, shown)
    return {
        "subject": asked.subject,
        "versions": versions,
        "version": number,
        "schema_id": shown.schema_id,
        "type": shown.type,
        "text": _text(shown),
        "against": against,
        "difference": difference,
    }


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


def _has_registry(console: Console) -> bool:
    return console.records.registry is not None


PAGES: Final[Sequence[Page]] = (
    page("/registry", "Schemas", "registry", is_shown=_has_registry, subjects=subjects_route),
    page("/registry/subject", "Schema", "subject", is_detail=True, subject=_subject),
)
