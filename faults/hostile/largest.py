"""The largest requests that the wire allows, of every API and for every list in its request.

Owns how a request is made large: each list in turn gets as many elements as the limit of a request leaves,
all the same, or each with another name or number. Pure. Invariant: one element is encoded and repeated as
bytes, so that making a request costs far less than it may cost the broker.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidelog.protocol.messages.declaration import Field, version_in
from tidelog.protocol.schema import APIS, MAX_REQUEST_ELEMENTS, Api, ApiKey, encode_request
from tidelog.protocol.varint import unsigned_varint

ELEMENTS: Final = MAX_REQUEST_ELEMENTS
_NAME: Final = "n0000000"
_NUMBER: Final = 0x5A5A5A5A
_NAME_BYTES: Final = _NAME.encode()
_NUMBER_BYTES: Final = _NUMBER.to_bytes(4, "big")
_FETCH_VERSION: Final = 12
_TOPIC_RESOURCE: Final = 2
_VALUES: Final[Mapping[str, Any]] = {"validate_only": True, "resource_type": _TOPIC_RESOURCE}
"""What a field of a name must be for the broker to look at the rest."""
_INNER: Final = 1
"""Elements of lists within an element."""


class Large(NamedTuple):
    """A request: `path` is the list that is full, `is_repeated` whether with equal elements."""

    api: ApiKey
    version: int
    path: str
    is_repeated: bool
    elements: int
    body: bytes

    def __str__(self) -> str:
        how = "the same" if self.is_repeated else "different"
        return f"{self.api.name} with {self.elements:,} × {how} {self.path}"


def largest_requests(topic: str, versions: Mapping[int, int], elements: int) -> Iterator[Large]:
    """Every one of them. `topic` is one that there is, `versions` says the newest that the broker serves."""
    for api in APIS.values():
        if api.key not in versions:
            continue
        version = min(api.max_version, versions[api.key])
        for path in _list_paths(api.request.fields, version):
            same, different = (_large(api, version, path, each, topic, elements) for each in (True, False))
            yield same
            if different.body != same.body:  # Some elements have nothing by which they differ.
                yield different


def enlarged(large: Large, topic: str) -> Large:
    """The same list, as long as the limit of a request allows: most of it is made only when it is sent."""
    path = tuple(large.path.split("."))
    return _large(APIS[large.api], large.version, path, large.is_repeated, topic, ELEMENTS)


def waiting_fetch(topic: str, repeats: int, max_wait_ms: int) -> Large:
    """A Fetch of one empty partition again and again that waits for a record."""
    path = ("topics", "partitions")
    more = {"max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 1 << 20}
    return _large(APIS[ApiKey.FETCH], _FETCH_VERSION, path, True, topic, repeats, more)


def _list_paths(fields: tuple[Field, ...], version: int) -> Iterator[tuple[str, ...]]:
    for field in _of_version(fields, version):
        if field.is_array:
            yield (field.name,)
            for inner in _list_paths(field.fields, version):
                yield (field.name, *inner)


def _large(
    api: Api,
    version: int,
    path: tuple[str, ...],
    is_repeated: bool,
    topic: str,
    elements: int,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Large:
    """One element is encoded, and where its bytes lie shows by the request with two of them."""
    one, two = (
        encode_request(
            api.key,
            version,
            {**_values(api.request.fields, version, path, count, is_repeated, topic), **more},
        )
        for count in (1, 2)
    )
    count_at = next(at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    is_compact = version_in(version, api.request.flexible)
    element = two[count_at + 1 : count_at + 1 + len(two) - len(one)]
    head = one[: count_at + 1 - (1 if is_compact else 4)]
    tail = one[count_at + 1 + len(element) :]
    number = max(0, elements // _elements_each(api.request.fields, version, path) - len(path))
    count = unsigned_varint(number + 1) if is_compact else number.to_bytes(4, "big")
    pieces = element * number if is_repeated else b"".join(_numbered(element, each) for each in range(number))
    return Large(api.key, version, ".".join(path), is_repeated, number, head + count + pieces + tail)


def _numbered(element: bytes, number: int) -> bytes:
    """The element under another name, or with another number where it has no name."""
    if _NAME_BYTES in element:
        return element.replace(_NAME_BYTES, b"n%07d" % number, 1)
    return element.replace(_NUMBER_BYTES, number.to_bytes(4, "big"), 1)


def _values(
    fields: tuple[Field, ...], version: int, path: tuple[str, ...], count: int, is_repeated: bool, topic: str
) -> dict[str, Any]:
    """A request with `count` elements at `path`, one element in the lists around it."""
    values: dict[str, Any] = {}
    for field in _of_version(fields, version):
        if field.name == path[0]:
            values[field.name] = _elements(field, version, path, count, is_repeated, topic)
        elif field.type == "string" and not field.nullable:
            values[field.name] = topic
        elif field.name in _VALUES:
            values[field.name] = _VALUES[field.name]
    return values


def _of_version(fields: tuple[Field, ...], version: int) -> list[Field]:
    return [each for each in fields if version_in(version, each.versions) and each.tag is None]


def _elements(
    field: Field, version: int, path: tuple[str, ...], count: int, is_repeated: bool, topic: str
) -> list[Any]:
    if len(path) > 1:
        return [_values(field.fields, version, path[1:], count, is_repeated, topic)]
    if field.element_type != "struct":
        return [_scalar(field.element_type, is_repeated, topic)] * count
    return [_element(field.fields, version, is_repeated, topic)] * count


def _element(fields: tuple[Field, ...], version: int, is_repeated: bool, topic: str) -> Mapping[str, Any]:
    """One element: its first name or number distinguishes it from others."""
    values: dict[str, Any] = {}
    has_identity = False
    for field in _of_version(fields, version):
        if field.is_array:
            values[field.name] = _elements(field, version, (field.name,), _INNER, True, topic)
        elif field.name in _VALUES:
            values[field.name] = _VALUES[field.name]
        elif not has_identity and field.type in ("string", "int32"):
            values[field.name] = _scalar(field.type, is_repeated, topic)
            has_identity = True
    return values


def _scalar(kind: str, is_repeated: bool, topic: str) -> Any:
    if kind == "string":
        return topic if is_repeated else _NAME
    if kind == "int32":
        return 0 if is_repeated else _NUMBER
    return 0


def _elements_each(fields: tuple[Field, ...], version: int, path: tuple[str, ...]) -> int:
    """How many elements an element at `path` takes: itself, and one in each list within."""
    field = next(each for each in fields if each.name == path[0])
    if len(path) > 1:
        return _elements_each(field.fields, version, path[1:])
    return 1 + _inner_elements(field.fields, version)


def _inner_elements(fields: tuple[Field, ...], version: int) -> int:
    lists = [each for each in _of_version(fields, version) if each.is_array]
    return sum(_INNER * (1 + _inner_elements(each.fields, version)) for each in lists)
