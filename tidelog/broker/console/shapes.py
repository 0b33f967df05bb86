"""The shapes of parameters and answers that subjects share.

Owns how a row is taken from what the broker has, by its declaration: a field of the same name is named once.
Pure.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, Generic, NamedTuple, TypedDict, TypeVar, cast, get_type_hints

from msgspec import Meta, Struct

from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps

S = TypeVar("S")
T = TypeVar("T")
_ABSENT: Final = object()
MOST_ROWS: Final = 500
INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1
TopicName = Annotated[str, Meta(min_length=1, max_length=249, description="Name of a topic.")]
PartitionNumber = Annotated[int, Meta(ge=0, le=INT32, description="Number of a partition.")]
Offset = Annotated[int, Meta(ge=0, le=INT64, description="Offset of the first record.")]
ProducerId = Annotated[int, Meta(ge=0, le=INT64)]
ProducerEpoch = Annotated[int, Meta(ge=0, le=2**15 - 1)]


class Parameters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of a route: each field with its type, its bounds (`Annotated[int, Meta(ge=0)]`) and its
    default. Texts of a query become numbers and booleans; an empty text in a query counts as absent."""


class Listing(Parameters, frozen=True, kw_only=True):
    """The parameters of a list, whose answer is `Listed`."""

    offset: Annotated[int, Meta(ge=0, le=INT32, description="Number of the first row.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS, description="Most rows.")] = 50


class OfTopic(Parameters, frozen=True, kw_only=True):
    topic: TopicName


class OfGroup(Parameters, frozen=True, kw_only=True):
    group_id: str


class OfCluster(TypedDict, total=False):
    """What an answer has that several brokers give together."""

    unanswered: list[int]
    """Ids of the brokers that did not answer: their data is missing."""


class Listed(OfCluster):
    """A part of a list: its `rows` from number `offset` on, at most `limit` of all `total`."""

    total: int
    offset: int
    limit: int


class Rows(Listed, Generic[T]):
    """A part of a list, from number `offset` on at most `limit` of all `total` rows."""

    rows: list[T]


class From(NamedTuple):
    """Where a field comes from, if it is not called as there: names of attributes with dots between them."""

    path: str


@cache
def _paths(shape: Any) -> Sequence[tuple[str, str, Sequence[str]]]:
    """Of each field that a row must have: its name, the attribute that it is of, and those within that."""
    hints = get_type_hints(shape, include_extras=True)
    found = {
        name: getattr(hints[name], "__metadata__", ()) for name in hints if name in shape.__required_keys__
    }
    stated = {
        name: [each.path for each in all_of if isinstance(each, From)] for name, all_of in found.items()
    }
    ways = ((name, *(paths[0] if paths else name).split(".")) for name, paths in stated.items())
    return [(name, first, rest) for name, first, *rest in ways]


def row_of(shape: type[S], *sources: object, **values: object) -> S:
    """A row of the shape of a TypedDict. A field has its value in `values`, else in the first source that has
    it: a dictionary by its name, an object where the shape says; of an enum its name, of a tuple a list. None
    on the way there gives None. Raises AttributeError."""
    row: dict[str, object] = {}
    for name, first, rest in _paths(cast(Any, shape)):
        for source in (values, *sources):
            if isinstance(source, dict):
                held = source.get(name, _ABSENT if rest else source.get(first, _ABSENT))
            else:
                held = getattr(source, first, _ABSENT)
                for each in rest:
                    held = None if held is None else getattr(held, each, _ABSENT)
            if held is not _ABSENT:
                break
        else:
            raise AttributeError(f"{shape.__name__}: nothing has {name}")
        row[name] = held.name if isinstance(held, Enum) else list(held) if type(held) is tuple else held
    return row  # type: ignore[return-value]


def part_of(
    shape: type[S], found: Sequence[T], asked: Listing, make: Callable[[T], Any], **more: object
) -> S:
    """The rows of `found` that are asked for, as a list of the shape `shape`."""
    rows = [make(each) for each in found[asked.offset : asked.offset + asked.limit]]
    listed = {"total": len(found), "offset": asked.offset, "limit": asked.limit, "rows": rows}
    return {**listed, **more}  # type: ignore[return-value]


def chosen(items: Iterable[T], is_wanted: Callable[[T], object]) -> Steps[list[T]]:
    pace = Pace(CHECKS_PER_STEP)
    found = []
    for item in items:
        if is_wanted(item):
            found.append(item)
        if pace.spent():
            yield
    return found
