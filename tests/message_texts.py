"""Messages of Kafka's protocol as text: what a request asks, and what stands in an answer.

A request is the fields of its message as YAML; `<name>` in it stands for a value that a test gives. An answer
lacks the fields that have their default. Numbers with names in Kafka are written as names; `x * 9` is a text
of nine x.
"""

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final
from uuid import UUID

import yaml

from tidelog.broker.configuration.broker_settings import ConfigSource
from tidelog.broker.configuration.topic_settings import ConfigType
from tidelog.broker.handlers.configs import ConfigOperation
from tidelog.protocol.acls import Operation, PatternType, Permission, ResourceType
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import ZERO, Field, version_in
from tidelog.protocol.schema import APIS, ApiKey

KEYS: Final[Mapping[str, ApiKey]] = {api.name: key for key, api in APIS.items()}
_ACL_APIS = (ApiKey.CREATE_ACLS, ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS)
_LONGEST_LINE = 105
_REPEATED = re.compile(r"(.) \* (\d+)")
_GIVEN = re.compile(r"<(\w+)>")


class ConfigResource(IntEnum):
    """What settings are of."""

    TOPIC = 2
    BROKER = 4
    LOGGERS = 8
    CLIENT_METRICS = 16
    GROUP = 32


_NAMES: dict[str, type[IntEnum]] = {
    "partition_error_code": ErrorCode,
    "error_code": ErrorCode,
    "resource_type": ConfigResource,
    "resource_types": ConfigResource,
    "resource_type_filter": ResourceType,
    "pattern_type": PatternType,
    "resource_pattern_type": PatternType,
    "pattern_type_filter": PatternType,
    "operation": Operation,
    "permission_type": Permission,
    "config_source": ConfigSource,
    "source": ConfigSource,
    "config_type": ConfigType,
    "config_operation": ConfigOperation,
}


def request_values(key: ApiKey, text: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return values_in(text, APIS[key].request.fields, given, _enums(key))


def values_in(
    text: str,
    fields: Sequence[Field],
    given: Mapping[str, Any] | None = None,
    enums: Mapping[str, type[IntEnum]] = _NAMES,
) -> dict[str, Any]:
    """What a text says of a message with these fields."""
    values = yaml.safe_load(f"{{{text}}}")
    return _meant(_filled(values, given) if given else values, fields, enums)


def answer_text(key: ApiKey, answer: Any) -> str:
    """An answer in a line, or each of its fields, or the elements of a long one each in a line."""
    fields, enums = APIS[key].response.fields, _enums(key)
    whole = _element(answer, Field("", "struct", fields=tuple(fields)), enums)
    if len(whole) < _LONGEST_LINE:
        return whole[1:-1] or "NONE"
    lines = []
    for field in fields:
        text = _text(answer[field.name], field, enums)
        if text is None:
            continue
        if len(text) + len(field.name) > _LONGEST_LINE and field.is_array:
            lines += [f"{field.name}:", *(f"- {_element(each, field, enums)}" for each in answer[field.name])]
        else:
            lines.append(f"{field.name}: {text}")
    return "\n".join(lines)


def found_in(values: Any, ending: str) -> list[Any]:
    """What the fields whose names end like this have, however deep in an answer."""
    if isinstance(values, list):
        return [found for each in values for found in found_in(each, ending)]
    if not isinstance(values, Mapping):
        return []
    own = [value for name, value in values.items() if name.endswith(ending)]
    return own + found_in(list(values.values()), ending)


def in_version(values: Any, fields: Sequence[Field], version: int) -> dict[str, Any]:
    """What a version of a message has of these values."""
    return {
        field.name: [in_version(each, field.fields, version) for each in values[field.name]]
        if field.type == "[]struct" and values[field.name]
        else values[field.name]
        for field in fields
        if field.name in values and version_in(version, field.versions)
    }


def _enums(key: ApiKey) -> Mapping[str, type[IntEnum]]:
    return {**_NAMES, "resource_type": ResourceType} if key in _ACL_APIS else _NAMES


def _filled(value: Any, given: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(each, given) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, given) for each in value]
    found = _GIVEN.fullmatch(value) if isinstance(value, str) else None
    return given[found[1]] if found else value


def _meant(values: Any, fields: Sequence[Field], enums: Mapping[str, type[IntEnum]]) -> dict[str, Any]:
    """The values of a request as its codec takes them."""
    known = {field.name: field for field in fields}
    return {name: _value(value, known[name], enums) for name, value in values.items()}


def _value(value: Any, field: Field, enums: Mapping[str, type[IntEnum]]) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_value(each, field, enums) for each in value]
    kind = field.element_type
    if kind == "struct":
        return _meant(value, field.fields, enums)
    if kind == "string" and not isinstance(value, str):
        return str(value)
    if kind == "bytes":
        return value.encode() if isinstance(value, str) else bytes(value)
    if isinstance(value, str) and kind == "uuid":
        return UUID(value)
    if isinstance(value, str) and kind == "string":
        found = _REPEATED.fullmatch(value)
        return found[1] * int(found[2]) if found else value
    return enums[field.name][value] if isinstance(value, str) else value


def _text(value: Any, field: Field, enums: Mapping[str, type[IntEnum]]) -> str | None:
    """None of a value that is the field's default."""
    if value is None:
        return None if field.default is None else "null"
    if field.is_array:
        return f"[{', '.join(_element(each, field, enums) for each in value)}]" if value else None
    is_zero = not value or value == UUID(int=0)
    if (is_zero if field.default is ZERO else value == field.default) and field.element_type != "struct":
        return None
    return _element(value, field, enums)


def _element(value: Any, field: Field, enums: Mapping[str, type[IntEnum]]) -> str:
    if field.element_type == "struct":
        parts = ((each.name, _text(value[each.name], each, enums)) for each in field.fields)
        return f"{{{', '.join(f'{name}: {text}' for name, text in parts if text is not None)}}}"
    if field.name.endswith("authorized_operations"):
        return f"[{', '.join(each.name for each in Operation if value >> each & 1)}]"
    if field.name in enums:
        kind = enums[field.name]
        return kind(value).name if value in set(kind) else str(value)
    if isinstance(value, bytes | memoryview):
        value = bytes(value).decode() if len(value) < 40 else f"{len(value)} bytes"
    return str(value) if value != "" else '""'
